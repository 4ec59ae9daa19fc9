"""Codes become sentences with their values, in the reader's language; other texts stay."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from linedesk.operate.text import (
    known,
)
from linedesk.runtime.language import speaking
from linedesk.store.records.letters import HANDLER, LINE_REFUSED, QUOTA, WRITE_REFUSED, Cause
from linedesk.store.records.waits import Why, reason

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
        (
            reason(Why.NO_WORKER, cause="no_worker_connected"),
            "no worker is connected",
            "接続中のワーカーなし",
        ),
        (
            {**reason(Why.GATE, behind=1200), "people": 3},
            "waits for its turn at the gate, behind 1,200 calls (one multicast to 3 people)",
            "ゲートで順番待ち(先に1,200件の呼び出し)(3人へのマルチキャスト1件)",
        ),
        (
            QUOTA,
            "quota: the month's messages are used up",
            "quota: 今月の通数を使い切りました",
        ),
        # LINE's English stays as LINE wrote it, also where it is a code of ours.
        (
            Cause(LINE_REFUSED, {"status": 400, "reason": "The property must be between 1 and 13"}),
            "LINE refused it with 400: The property must be between 1 and 13",
            "LINEが400で拒否: The property must be between 1 and 13",
        ),
        (
            Cause(HANDLER, {"error": "did_not_return", "calledLine": True}),
            "handler: did not return, after it had called LINE itself: another try would send "
            "twice",
            "ハンドラー: 戻りませんでした。ハンドラーがLINEを直接呼び出した後のため、"
            "リトライすると2回送信されます",
        ),
        (
            Cause(WRITE_REFUSED, {"errorCode": 17419}),
            "MongoDB refuses the write: code 17419",
            "MongoDBが書き込みを拒否: コード17419",
        ),
        # A row without its values, and a code of a later release.
        (Cause("dropped"), "dropped by -", "-が破棄"),
        ({"code": "moon_phase"}, "moon_phase", "moon_phase"),
        ({}, "None", "None"),
        # `jobs` has the code alone; a row of an earlier release, and of a later one.
        ("paused", "paused", "一時停止中"),
        (
            "LINE refused it with 400: no",
            "LINE refused it with 400: no",
            "LINE refused it with 400: no",
        ),
        ("message text (unsent)", "message text (unsent)", "テキストメッセージ(送信取消)"),
        ("<b>no text of ours</b>", "<b>no text of ours</b>", "<b>no text of ours</b>"),
        ("", "", ""),
        (None, "", ""),
    ],
)
def test_a_code_is_a_sentence_with_its_values(stored: Any, english: str, japanese: str) -> None:
    assert known(stored) == english
    with speaking("ja"):
        assert known(stored) == japanese


def test_the_line_of_a_cause_is_the_cause() -> None:
    for cause in (QUOTA, Cause(LINE_REFUSED, {"status": 400, "reason": "{ } not fetched"})):
        assert Cause.from_line(str(cause)) == cause
    assert Cause.from_line("LINE {said}") == Cause("LINE {said}")
