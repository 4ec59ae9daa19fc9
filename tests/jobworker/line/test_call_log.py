"""The rows of `calls`: kept for LINE's sake, and never at the work's expense."""

from datetime import UTC, datetime
from typing import Any

import pytest

from jobworker import row_log
from jobworker.line.call_log import CallLog
from jobworker.row_log import RowLog, RowWriter
from tests.jobworker.line.test_gate import hand as hand
from tests.rows import Db, rows_of
from tests.waiting import eventually

PUSH = "/v2/bot/message/push"
CONTEXT = {"eventId": "E1", "key": "U1", "attempt": 2}


def note(log: CallLog, status: int | None = 200, *, path: str = PUSH, to: Any = "U1") -> None:
    with log.noted("POST", path, CONTEXT, to=to) as row:
        row.status, row.request_id = status, "r-1"


def write(log: RowLog) -> None:
    """Let the writer's thread write the waiting rows, and end."""
    writer = RowWriter(log)
    writer.start()
    writer.stop()
    assert writer.join(5)


def test_a_row_has_the_fields_that_line_asks_bot_makers_to_keep(database: Db) -> None:
    log = CallLog(database.calls)
    note(log)
    write(log)
    (row,) = eventually(lambda: rows_of(database.calls))
    assert {name: row[name] for name in row if name not in ("at", "ms")} == {
        "method": "POST",
        "endpoint": PUSH,
        "status": 200,
        "requestId": "r-1",
        "eventId": "E1",
        "key": "U1",
        "attempt": 2,
        "paid": 1,
    }
    assert 0 <= row["ms"] < 1000


def test_today_counts_people_and_what_other_processes_sent(database: Db) -> None:
    now = datetime.now(UTC)
    log, other = (CallLog(database.calls, now=lambda: now) for _ in range(2))
    note(log)
    note(log, 429)
    note(log, None)
    note(log, path="/v2/bot/message/multicast", to=["U1", "U2"])
    note(log, to="C1")
    assert (log.counted_today(), other.counted_today()) == (4, 0)
    for _ in range(2):
        write(log)
        write(other)
        assert (log.counted_today(), other.counted_today()) == (4, 4)
    note(other)
    write(other)
    assert other.counted_today() == 5


def test_rows_beyond_the_bound_are_dropped_and_counted(
    database: Db, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_log, "MOST_WAITING", 5)
    unwritten: list[int] = []
    log = RowLog(database.calls, unwritten.append)
    for status in range(8):
        log.add({"status": status})
    write(log)
    assert unwritten == [3]
    rows = eventually(lambda: rows_of(database.calls))
    assert [row["status"] for row in rows] == [3, 4, 5, 6, 7]
    assert "rows of calls dropped rows=3" in caplog.text
