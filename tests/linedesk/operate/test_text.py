"""Codes become sentences with their values, in the reader's language; other texts stay."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from linedesk.operate.text import CAUSES, EVENTS, SENDS, known
from linedesk.runtime.language import speaking
from linedesk.store.records.letters import LINE_REFUSED, QUOTA, Cause
from linedesk.store.records.waits import Why, reason

ROOT = Path(__file__).parents[3]
UNTIL = datetime(2026, 11, 1, 12, 3, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("stored", "english", "japanese"),
    [
        (reason(Why.PAUSED), "paused", "一時停止中"),
        (
            {**reason(Why.HANDLER_FAILED, failures=2), "until": UNTIL},
            "failed tries of its handler: 2, next try at 12:03:05 UTC",
            "ハンドラーの失敗2回、次の試行は12:03:05 UTC",
        ),
        # LINE's English stays as LINE wrote it, also where it is a code of ours.
        (
            Cause(LINE_REFUSED, {"status": 400, "reason": "The property must be between 1 and 13"}),
            "LINE refused it with 400: The property must be between 1 and 13",
            "LINEが400で拒否: The property must be between 1 and 13",
        ),
        # A row without its values, and a code of a later release.
        (Cause("dropped"), "dropped by -", "-が破棄"),
        ({"code": "moon_phase"}, "moon_phase", "moon_phase"),
        # `jobs` has the code alone; a row of an earlier release, and of a later one.
        ("paused", "paused", "一時停止中"),
        (
            "LINE refused it with 400: no",
            "LINE refused it with 400: no",
            "LINE refused it with 400: no",
        ),
        ("<b>no text of ours</b>", "<b>no text of ours</b>", "<b>no text of ours</b>"),
        (None, "", ""),
    ],
)
def test_a_code_is_a_sentence_with_its_values(stored: Any, english: str, japanese: str) -> None:
    assert known(stored) == english
    with speaking("ja"):
        assert known(stored) == japanese


def test_each_code_has_a_sentence_and_an_entry_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "collections.md").read_text("utf-8")
    waits, _, causes = page.split("## Reasons\n")[1].partition("## Causes\n")
    first = re.compile(r"^- ((?:`[^`]+`(?:, )?)+): ", re.M)

    def codes(part: str) -> set[str]:
        return {code for cell in first.findall(part) for code in re.findall("`([^`]+)`", cell)}

    console_only = {Why.FIRST_OF, Why.FIRST_TRIED_OF}
    assert codes(waits) == {*EVENTS, *SENDS, Why.WRITE_REFUSED} - console_only
    assert set(EVENTS) | set(SENDS) | {Why.WRITE_REFUSED} == set(Why)
    assert codes(causes.split("\n## ")[0]) == set(CAUSES)


def test_the_line_of_a_cause_is_the_cause() -> None:
    for cause in (QUOTA, Cause(LINE_REFUSED, {"status": 400, "reason": "{ } not fetched"})):
        assert Cause.from_line(str(cause)) == cause
    assert Cause.from_line("LINE {said}") == Cause("LINE {said}")
