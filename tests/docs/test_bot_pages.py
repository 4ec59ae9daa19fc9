"""Each Python example of the pages for bot authors runs as the page shows it.

A block begins with the name of its file, or continues that file.
"""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (
    "how-to/change-a-bot.md",
    "how-to/flex-and-templates.md",
    "how-to/groups-and-mentions.md",
    "how-to/let-a-person-answer.md",
    "how-to/photos-and-files.md",
    "how-to/regular-messages.md",
    "how-to/slow-handlers.md",
    "how-to/states-and-timers.md",
    "how-to/write-tests.md",
    "reference/bot-api.md",
)
PYTHON = re.compile(r"^ *```python\n(# (\w+\.py)\n.*?)^ *```$", re.MULTILINE | re.DOTALL)
# Tests of a bot that the page tests already.
MORE = {"test_fixture.py"}


@pytest.mark.parametrize("page", PAGES)
def test_each_example_does_what_the_page_says(pytester: pytest.Pytester, page: str) -> None:
    written: dict[str, str] = {}
    text = (DOCS / page).read_text("utf-8")
    for block, name in PYTHON.findall(text):
        written[name] = written.get(name, "") + block
    assert len(PYTHON.findall(text)) == text.count("```python")
    for name, code in written.items():
        (pytester.path / name).write_text(code, "utf-8")
    tested = {name for name in written if name.startswith("test_")}
    assert {f"test_{name}" for name in written.keys() - tested} - MORE == tested - MORE
    answer = pytester.runpytest_inprocess(
        "-p", "linedesk.testing.pytest_plugin", "-W", "error::UserWarning"
    )
    answer.assert_outcomes(passed=sum(code.count("\ndef test_") for code in written.values()))
