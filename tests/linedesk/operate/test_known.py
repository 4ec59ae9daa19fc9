"""Texts of other parts are known as they are written, and translated with their values."""

from __future__ import annotations

import ast
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from linedesk.operate.text import REASONS, TEXTS, known
from linedesk.runtime.language import speaking
from linedesk.store.records.waits import Why, reason

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("dispatcher", "frontdesk", "jobworker", "linedesk")
# Texts that the code joins from parts.
JOINED = re.compile(r"(message|send) \w+|MongoDB does not answer yet")


def sources() -> str:
    """All constant texts of the code, except those of the list itself."""
    found = []
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if path.name != "known.py":
                tree = ast.parse(path.read_text("utf-8"))
                nodes = (one for one in ast.walk(tree) if isinstance(one, ast.Constant))
                found += [one.value for one in nodes if isinstance(one.value, str)]
    return "\n".join(found)


def test_each_known_text_is_written_by_the_code() -> None:
    written = sources()
    pieces = {
        piece.strip(" ,:·()")
        for text in TEXTS
        if not JOINED.fullmatch(text)
        for piece in re.split(r"\{\w+\}|: |, | since | \(", text)
    }
    assert {one for one in pieces if len(one) > 3 and one not in written} == set()


@pytest.mark.parametrize(
    ("text", "japanese"),
    [
        ("12.1 events/s · 3 in hand", "毎秒12.1件 · 処理中3件"),
        (
            "waits for its turn at the gate, beside 1 push to its own chat and 2 calls that "
            "nothing waits for",
            "ゲートで順番待ち(同順位: 同じトークへのプッシュ1件と待つ処理のない呼び出し2件)",
        ),
        # LINE's English stays as LINE wrote it, alone and behind our words.
        ("A text must have between 1 and 13 letters",) * 2,
        (
            "LINE refused it with 400: The property must be between 1 and 13",
            "LINEが400で拒否: The property must be between 1 and 13",
        ),
        ("<b>no text of ours</b>", "<b>no text of ours</b>"),
        ("", ""),
    ],
)
def test_a_known_text_is_japanese_with_its_values(text: str, japanese: str) -> None:
    with speaking("ja"):
        assert known(text) == japanese
    assert known(text) == text


UNTIL = datetime(2026, 11, 1, 12, 3, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("why", "english", "japanese"),
    [
        (reason(Why.PAUSED), "paused", "一時停止中"),
        (
            {**reason(Why.HANDLER_FAILED, failures=2), "until": UNTIL},
            "the handler failed 2 times, next try at 12:03:05 UTC",
            "ハンドラーが2回失敗、次の試行は12:03:05 UTC",
        ),
        (reason(Why.HANDLER_FAILED, failures=1), "the handler failed once", "ハンドラーが1回失敗"),
        (
            reason(Why.NO_WORKER, cause="no worker is connected"),
            "no worker is connected",
            "接続中のワーカーなし",
        ),
        # `jobs` has the code alone; a row of a later release, a code that is not known here.
        ("paused", "paused", "一時停止中"),
        ({"code": "moon_phase"}, "moon_phase", "moon_phase"),
        ({}, "None", "None"),
    ],
)
def test_a_reason_is_a_sentence_with_its_values(
    why: dict[str, Any] | str, english: str, japanese: str
) -> None:
    assert known(why) == english
    with speaking("ja"):
        assert known(why) == japanese


def test_each_reason_has_a_sentence_and_a_row_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "collections.md").read_text("utf-8")
    listed = re.findall(r"^\| `(\w+)` \| (.+) \|$", page.split("## Reasons\n")[1], re.M)
    assert set(REASONS) == set(Why) == {code for code, _ in listed}
