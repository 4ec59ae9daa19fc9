"""Each example of docs/bots.md is run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PAGE = Path(__file__).parents[2] / "docs" / "bots.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"# (\w+\.py)\n")


def files() -> dict[str, str]:
    """The page's files; a block that names one a second time goes on with it."""
    found: dict[str, str] = {}
    for block in BLOCK.findall(PAGE.read_text("utf-8")):
        name = NAME.match(block)
        assert name is not None, f"a block that begins with no file's name: {block[:60]}"
        found[name[1]] = found.get(name[1], "") + block
    return found


def test_each_example_does_what_the_page_says(pytester: pytest.Pytester) -> None:
    written = files()
    for name, text in written.items():
        (pytester.path / name).write_text(text, "utf-8")
    tested = {name for name in written if name.startswith("test_")}
    bots = written.keys() - tested
    assert {f"test_{name}" for name in bots} == tested - {"test_both.py", "test_workers.py"}
    answer = pytester.runpytest_inprocess(
        "-p", "linedesk.testing.pytest_plugin", "-W", "error::UserWarning"
    )
    answer.assert_outcomes(passed=sum(text.count("\ndef test_") for text in written.values()))


def test_a_bots_test_runs_beside_files_with_the_names_of_our_packages(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ours alone, since the others take seconds to import.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    written = files()
    for name in ("parrot.py", "test_parrot.py"):
        (pytester.path / name).write_text(written[name], "utf-8")
    for name in ("recvq", "frontdesk", "scheduler", "dispatcher", "bots", "console"):
        (pytester.path / f"{name}.py").write_text("raise RuntimeError('not ours')\n")
    # As `python -m pytest`, for which that folder is the first of all.
    answer = pytester.runpytest_subprocess("-p", "linedesk.testing.pytest_plugin")
    answer.assert_outcomes(passed=written["test_parrot.py"].count("\ndef test_"))


def test_no_code_on_the_page_is_left_out() -> None:
    kinds = re.findall(r"^```(\w*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert set(kinds) == {"python", "console", ""}
