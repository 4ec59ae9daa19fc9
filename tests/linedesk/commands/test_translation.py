"""`status` and `doctor` in the reader's language: in a pseudo language no English text is left, and
Japanese fits a terminal of 80 columns. All other commands are English.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result, _NamedTextIOWrapper
from rich.cells import cell_len

from linedesk.launch import main
from linedesk.runtime import language
from linedesk.runtime.exit_codes import Exit
from linedesk.store.client import Client
from tests.linedesk.commands.terminals import shown_on
from tests.linedesk.operate import a_day
from tests.linedesk.page.test_language import BRACKETED, Pseudo
from tests.servers import one_for_all


@pytest.fixture
def pseudo(monkeypatch: pytest.MonkeyPatch) -> None:
    """LINEDESK_LANG=ja is the pseudo language."""
    english = language.catalogue_of("en")
    monkeypatch.setattr(
        language, "catalogue_of", lambda name: Pseudo() if name == "ja" else english
    )
    monkeypatch.setenv("LINEDESK_LANG", "ja")


@pytest.fixture(scope="module")
def environ(client: Client, mongo_uri: str) -> Iterator[dict[str, str]]:
    """A database with a day's rows, which no test changes."""
    with one_for_all(client) as database:
        a_day.fill(database, hours=0.1)
        database.status.update_many({}, {"$set": {"words": "12.4 events/s"}})
        database.deadletters.update_many({}, {"$set": {"cause": "quota"}})
        yield {"MONGODB_URI": mongo_uri, "MONGODB_DATABASE": database.name, "SUDO_USER": "hanako"}


def run(environ: dict[str, str], *arguments: str) -> Result:
    return CliRunner().invoke(main.linedesk, arguments, env=environ)


# Words that are the same in every language: names, values of settings, and parts of commands.
NAMES = {
    *("linedesk", "recvq", "oplog", "MongoDB", "RabbitMQ", "LINE", "frontdesk", "dispatcher"),
    *("reply", "push", "main", "api", "data", "live", "chat", "message", "quota"),
    *("ms", "min", "KB", "MB", "GB", "TB", "UTC", "integer", "range", "float"),
    *("ok", "warn", "bad", "skip", "PRIMARY"),
}


def english_in(shown: str) -> list[str]:
    """The English words of an output outside ⟦…⟧, without names, ids, options and commands."""
    while (inner := BRACKETED.sub(" ", shown)) != shown:
        shown = inner
    text = re.sub(r"\(\w*Error\)|\"[^\"]*\"|`[^`]*`|'[^']*'|\[[^\]]*\]", " ", shown)
    words = re.findall(r"(?<![\w/.:=+{}-])[A-Za-z]{2,}(?![\w/.:=+{}-])", text)
    names = NAMES | {word for word in words if word.isupper() or word.endswith("Error")}
    return [word for word in words if word not in names]


@pytest.mark.usefixtures("pseudo")
def test_status_the_doctors_report_and_errors_of_settings_are_translated(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In a pipe, where lines are not folded.
    settings = {"SPOOL_PATH": str(tmp_path / "spool.db"), "FRONTDESK_PORT": "1"}
    report = run(environ | settings, "doctor", "--no-line").output
    assert {line[:4] for line in report.splitlines()} >= {"ok  ", "warn", "bad ", "skip"}
    wrong = {"MONGODB_URI": "x", "FRONTDESK_PORT": "x", "LINE_CONCURRENCY": "900", "BOT": "x"}
    errors = run(wrong, "status").output
    assert len(errors.splitlines()) == 4
    monkeypatch.setattr(_NamedTextIOWrapper, "isatty", lambda self: True, raising=False)
    # Without LINES rich takes a dumb terminal for one of 80 columns, whatever COLUMNS says.
    for name, value in {"COLUMNS": "200", "LINES": "50", "NO_COLOR": "1", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    for shown in (report, errors, run(environ, "status").output):
        assert "⟦" in shown
        assert english_in(shown) == [], shown


@pytest.mark.usefixtures("pseudo")
@pytest.mark.parametrize(
    "arguments", [("status", "--help"), ("status", "--json"), ("trace", a_day.EVENT)], ids=" ".join
)
def test_help_json_and_other_commands_are_english(
    environ: dict[str, str], arguments: tuple[str, ...]
) -> None:
    shown = run(environ, *arguments).output
    assert shown
    assert "⟦" not in shown


def test_an_unknown_language_is_a_wrong_setting() -> None:
    answer = run({"LINEDESK_LANG": "klingon"}, "status")
    assert answer.exit_code == Exit.CONFIG
    assert "LINEDESK_LANG: no language 'klingon'; use one of en, ja" in answer.output


@pytest.mark.long
@pytest.mark.parametrize("arguments", [("doctor", "--no-line"), ("status",)])
def test_japanese_fits_a_terminal_of_80_columns(
    environ: dict[str, str], arguments: tuple[str, ...]
) -> None:
    lines, code = shown_on(environ | {"LINEDESK_LANG": "ja"}, *arguments, columns=80)
    assert code in (Exit.OK, Exit.FAILED), lines
    assert max(map(cell_len, lines)) <= 80, [line for line in lines if cell_len(line) > 80]
