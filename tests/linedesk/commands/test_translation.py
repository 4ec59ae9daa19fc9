"""`status` and `doctor` in the reader's language: in a pseudo language no English text is left, and
Japanese fits a terminal of 80 columns. All other commands are English.
"""

from __future__ import annotations

import re
import string
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from babel.messages.pofile import read_po
from click.testing import CliRunner, Result, _NamedTextIOWrapper
from pymongo.database import Database
from rich.cells import cell_len

from linedesk.launch import main
from linedesk.runtime import language
from linedesk.runtime.exit_codes import Exit
from linedesk.setup.collections import create_collections
from linedesk.store.client import Client
from linedesk.store.collections import MEGABYTE
from tests.linedesk.commands.terminals import shown_on
from tests.linedesk.operate import a_day

Run = Callable[..., Result]


class PseudoCatalogue:
    """Sets each text of the catalogue in 【…】, but not the values in it."""

    def __init__(self) -> None:
        with (language.FOLDER / "ja" / "LC_MESSAGES" / "linedesk.po").open("rb") as file:
            found = [one.id for one in read_po(file, locale="ja") if one.id]
        self._known = {one if isinstance(one, str) else one[0] for one in found}

    def gettext(self, message: str) -> str:
        return marked(message) if message in self._known else message

    def ngettext(self, singular: str, plural: str, count: int) -> str:
        return marked(singular if count == 1 else plural) if singular in self._known else singular


def marked(message: str) -> str:
    return "\n\n".join(map(_marked, message.split("\n\n")))


def _marked(paragraph: str) -> str:
    before = "\b\n" if paragraph.startswith("\b\n") else ""
    paragraph = paragraph.removeprefix(before)
    try:
        parts = list(string.Formatter().parse(paragraph))
    except ValueError:
        return f"{before}【{paragraph}】"
    told = ""
    for text, name, spec, conversion in parts:
        told += f"【{text}】" if text else ""
        if name is not None:
            told += "{" + name + (f"!{conversion}" if conversion else "")
            told += (f":{spec}" if spec else "") + "}"
    return before + told


@pytest.fixture
def pseudo(monkeypatch: pytest.MonkeyPatch) -> None:
    """LINEDESK_LANG=ja is the pseudo language."""
    catalogue = PseudoCatalogue()
    english = language.catalogue_of("en")
    monkeypatch.setattr(
        language, "catalogue_of", lambda name: catalogue if name == "ja" else english
    )
    monkeypatch.setenv("LINEDESK_LANG", "ja")


@pytest.fixture(scope="module")
def database(client: Client) -> Iterator[Database[Any]]:
    """A database with a day's rows. No test changes it."""
    database = client[f"test_translation_{uuid.uuid4().hex[:12]}"]
    create_collections(database, capped_bytes=MEGABYTE)
    a_day.fill(database)
    database.status.update_many({}, {"$set": {"words": "12.4 events/s"}})
    database.deadletters.update_many({}, {"$set": {"cause": "quota"}})
    yield database
    client.drop_database(database.name)


@pytest.fixture
def environ(mongo_uri: str, database: Database[Any]) -> dict[str, str]:
    return {"MONGODB_URI": mongo_uri, "MONGODB_DATABASE": database.name, "SUDO_USER": "hanako"}


@pytest.fixture
def run(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command on something that seems to be a terminal."""
    monkeypatch.setattr(_NamedTextIOWrapper, "isatty", lambda self: True, raising=False)
    # Without LINES rich takes a dumb terminal for one of 80 columns, whatever COLUMNS says.
    size = {"COLUMNS": "200", "LINES": "50"}
    for name, value in (size | {"NO_COLOR": "1", "TERM": "dumb"}).items():
        monkeypatch.setenv(name, value)
    return partial(CliRunner().invoke, main.linedesk, env=environ)


# Words that are the same in every language: names, values of settings, and parts of commands.
NAMES = {
    *("linedesk", "python", "recvq", "oplog", "jobs", "calls", "MongoDB", "RabbitMQ", "LINE"),
    *("frontdesk", "dispatcher", "reply", "push", "multicast", "profile", "main"),
    *("mongod", "Ctrl", "ms", "min", "KB", "MB", "GB", "TB", "rs", "bot", "id", "hanako", "UTC"),
    *("integer", "range", "float", "File", "KeyError", "live", "chat", "message", "quota"),
    *("admin", "operator", "console", "api", "data", "text", "file"),
    *("as", "ok", "warn", "bad", "skip", "PRIMARY", "system", "wiredTiger", "parrot", "timer"),
}


def english_in(shown: str) -> list[str]:
    """The English words of an output outside 【…】, without names, ids, options and commands."""
    text = re.sub(r"【[^【】]*】", " ", shown)
    text = re.sub(r"\(\w*Error\)|\"[^\"]*\"|`[^`]*`|'[^']*'|\[[^\]]*\]", " ", text)
    words = re.findall(r"(?<![\w/.:=+{}-])[A-Za-z]{2,}(?![\w/.:=+{}-])", text)
    names = NAMES | {word for word in words if word.isupper() or word.endswith("Error")}
    return [word for word in words if word not in names]


# Commands


@pytest.mark.usefixtures("pseudo")
def test_status_is_translated(run: Run) -> None:
    answer = run(["status"])
    assert answer.exit_code in (Exit.OK, Exit.FAILED), answer.output
    assert "【" in answer.output
    left = english_in(answer.output)
    assert not left, f"{left}\n{answer.output}"


@pytest.mark.usefixtures("pseudo")
@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "--help"],
        ["status", "--json"],
        ["trace", a_day.EVENT],
        ["conversation", "show", "Uffff"],
    ],
    ids=" ".join,
)
def test_help_json_and_other_commands_are_english(run: Run, arguments: list[str]) -> None:
    answer = run(arguments)
    assert answer.output
    assert "【" not in answer.output


@pytest.mark.usefixtures("pseudo")
def test_the_doctors_report_is_translated(environ: dict[str, str], tmp_path: Path) -> None:
    """In a pipe, where lines are not folded."""
    settings = environ | {"SPOOL_PATH": str(tmp_path / "spool.db"), "FRONTDESK_PORT": "1"}
    answer = CliRunner().invoke(main.linedesk, ["doctor", "--no-line"], env=settings)
    assert {line[:4] for line in answer.output.splitlines()} >= {"ok  ", "warn", "bad ", "skip"}
    left = english_in(answer.output)
    assert not left, f"{left}\n{answer.output}"


@pytest.mark.usefixtures("pseudo")
def test_errors_of_settings_are_translated(run: Run, tmp_path: Path) -> None:
    wrong = {"MONGODB_URI": "x", "FRONTDESK_PORT": "x", "LINE_CONCURRENCY": "900", "BOT": "x"}
    shown = CliRunner().invoke(main.linedesk, ["status"], env=wrong).output
    assert len(shown.splitlines()) == 4
    assert english_in(shown) == []
    config = tmp_path / "line.toml"
    config.write_text("FRONTDESK_PROT = 1\n")
    shown = CliRunner().invoke(main.linedesk, ["status", "--config", str(config)]).output
    assert "【 (did you mean 】" in shown.replace("】【", "") or "did you mean" in shown
    assert english_in(shown) == []


def test_an_unknown_language_is_a_wrong_setting() -> None:
    for arguments in (["status"], ["doctor", "--json"]):
        answer = CliRunner().invoke(main.linedesk, arguments, env={"LINEDESK_LANG": "klingon"})
        assert answer.exit_code == Exit.CONFIG
        expected = "linedesk: LINEDESK_LANG: no language 'klingon'; use one of en, ja\n"
        assert answer.output == expected


# Texts in the code

# Two English words with a space between them.
# Other texts: names, commands, styles of rich, SQL, PEM and a program.


# Japanese


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("doctor", "--no-line"), ("レプリカセット", "警告")),
        (("status",), ("プロセス", "容量")),
    ],
)
def test_japanese_fits_a_terminal_of_80_columns(
    environ: dict[str, str], arguments: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    lines, code = shown_on(environ | {"LINEDESK_LANG": "ja"}, *arguments, columns=80)
    assert code in (Exit.OK, Exit.FAILED), lines
    assert all(any(words in line for line in lines) for words in expected), lines
    assert max(map(cell_len, lines)) <= 80, [line for line in lines if cell_len(line) > 80]
