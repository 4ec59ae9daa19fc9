"""Which version a Python bot has: another one wherever code of its own is another."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobworker.remote.python_bot import PythonBot

BOT = """
from linedesk import Bot
from {helper} import words
bot = Bot()
@bot.default()
def handler(event, talk):
    talk.reply(words)
"""
PLACES = {
    "a package beside it": ("versioned.bot", "versioned_parts.helper", ""),
    "an installed package": ("versioned.bot", "versioned.parts.helper", "lib/site-packages"),
}


@pytest.fixture(autouse=True)
def _forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield
    forget()


def forget() -> None:
    for name in [one for one in sys.modules if one.startswith("versioned")]:
        del sys.modules[name]


def put(folder: Path, name: str, text: str) -> None:
    *packages, module = name.split(".")
    for package in packages:
        folder /= package
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").touch()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.py").write_text(text)


def version_of(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    forget()
    importlib.invalidate_caches()
    with monkeypatch.context() as patch:
        patch.syspath_prepend(folder)
        bot = importlib.import_module(name).bot
    return PythonBot(bot, settings={}, secrets={}).version


@pytest.mark.parametrize(("name", "helper", "inside"), PLACES.values(), ids=PLACES)
def test_another_imported_module_is_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, helper: str, inside: str
) -> None:
    folder = tmp_path / inside
    put(folder, name, BOT.format(helper=helper))
    put(folder, helper, "words = 'a'")
    first = version_of(name, folder, monkeypatch)
    assert version_of(name, folder, monkeypatch) == first
    put(folder, helper, "words = 'b'")
    assert version_of(name, folder, monkeypatch) != first


def test_where_it_lies_and_what_is_installed_below_it_change_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = set()
    for number in range(2):
        folder = tmp_path / str(number)
        installed = folder / ".venv" / "site-packages"
        put(folder, "versioned_bot", BOT.format(helper="versioned_installed"))
        put(installed, "versioned_installed", f"words = {number}")
        with monkeypatch.context() as patch:
            patch.syspath_prepend(installed)
            found.add(version_of("versioned_bot", folder, monkeypatch))
    assert len(found) == 1
