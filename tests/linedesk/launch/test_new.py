"""`linedesk new`: its folder runs and its tests pass as they are."""

import sys
from pathlib import Path

import pytest

from linedesk.launch.new import make_bot
from linedesk.operate.text import NotDone
from linedesk.settings.settings import load_settings
from tests.waiting import ran

LANGUAGES = ("en", "ja")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_new_bot_passes_its_tests_and_has_its_settings(here: Path, language: str) -> None:
    folder = make_bot("kitten", language=language)
    settings = load_settings({}, config_path=folder / "sim.toml")
    assert settings.bot == "kitten:bot"
    assert "mybot" not in "".join(one.read_text("utf-8") for one in folder.iterdir())
    assert ("会話" in (folder / "README.md").read_text("utf-8")) == (language == "ja")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ended = ran(command, cwd=folder)
    assert ended.returncode == 0, ended.stdout
    assert "2 passed" in ended.stdout


@pytest.mark.parametrize("name", ["my-bot", "Mybot", "class", "json", "linedesk", "there"])
def test_a_name_that_cannot_be_imported_is_refused(here: Path, name: str) -> None:
    (here / "there").mkdir()
    with pytest.raises(NotDone, match=name):
        make_bot(name, language="en")
    assert [one.name for one in here.iterdir()] == ["there"]
