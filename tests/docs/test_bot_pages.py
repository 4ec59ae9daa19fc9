"""Each Python example of the pages for bot authors runs as the page shows it.

A block begins with the name of its file, or continues that file. The Japanese pages have the same
blocks as the English ones.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

DOCS = Path(__file__).parents[2] / "docs"
WITH_EXAMPLES = (
    "how-to/change-a-bot.md",
    "how-to/photos-and-files.md",
    "how-to/slow-handlers.md",
    "how-to/states-and-timers.md",
    "how-to/write-tests.md",
    "reference/bot-api.md",
)
HOW_TO = (
    *(page for page in WITH_EXAMPLES if page.startswith("how-to/")),
    "how-to/bot-in-another-language.md",
    "how-to/move-a-bot.md",
)
FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"# (\w+\.py)\n")
# Tests of a bot that the page tests already, and an older version that has no test of its own.
MORE = {"test_fixture.py", "test_workers.py", "test_shop_1.py"}


def blocks(page: str) -> list[tuple[str, str]]:
    """The kind and the text of each block of a page."""
    return FENCED.findall((DOCS / page).read_text("utf-8"))


def files(page: str) -> dict[str, str]:
    """The Python files of a page; a block that names one again continues it."""
    found: dict[str, str] = {}
    for kind, text in blocks(page):
        if kind == "python":
            name = NAME.match(text)
            assert name is not None, f"a block of {page} begins with no file's name: {text[:60]}"
            found[name[1]] = found.get(name[1], "") + text
    return found


@pytest.mark.parametrize("page", WITH_EXAMPLES)
def test_each_example_does_what_the_page_says(pytester: pytest.Pytester, page: str) -> None:
    written = files(page)
    for name, text in written.items():
        (pytester.path / name).write_text(text, "utf-8")
    tested = {name for name in written if name.startswith("test_")}
    bots = written.keys() - tested
    assert {f"test_{name}" for name in bots} - MORE == tested - MORE
    answer = pytester.runpytest_inprocess(
        "-p", "linedesk.testing.pytest_plugin", "-W", "error::UserWarning"
    )
    answer.assert_outcomes(passed=sum(text.count("\ndef test_") for text in written.values()))


def test_a_bots_test_runs_beside_files_with_the_names_of_our_packages(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ours alone, since the others take seconds to import.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    written = files("how-to/write-tests.md")
    for name in ("egg.py", "test_egg.py"):
        (pytester.path / name).write_text(written[name], "utf-8")
    for name in ("recvq", "frontdesk", "dispatcher", "bots", "console"):
        (pytester.path / f"{name}.py").write_text("raise RuntimeError('not ours')\n")
    # As `python -m pytest`, for which that folder is the first of all.
    answer = pytester.runpytest_subprocess("-p", "linedesk.testing.pytest_plugin")
    answer.assert_outcomes(passed=written["test_egg.py"].count("\ndef test_"))


@pytest.mark.parametrize("page", HOW_TO)
def test_the_japanese_page_has_the_same_blocks(page: str) -> None:
    assert blocks(f"ja/{page}") == blocks(page)


@pytest.mark.parametrize("page", HOW_TO)
def test_each_page_names_its_twin_in_the_second_line(page: str) -> None:
    name = page.removeprefix("how-to/")
    english, japanese = (DOCS / folder / page for folder in ("", "ja"))
    assert english.read_text("utf-8").splitlines()[1] == f"[日本語](../ja/how-to/{name})"
    assert japanese.read_text("utf-8").splitlines()[1] == f"[English](../../how-to/{name})"


@pytest.mark.parametrize("page", [*WITH_EXAMPLES, *HOW_TO])
def test_each_block_is_of_a_kind_that_a_test_runs_or_compares(page: str) -> None:
    assert {kind for kind, _ in blocks(page)} <= {"python", "console", "diff", "js", ""}
