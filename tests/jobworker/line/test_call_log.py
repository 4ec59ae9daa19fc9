"""The rows of `calls`: kept for LINE's sake, and never at the work's expense."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo.database import Database

from jobworker.line.call_log import CallLog
from jobworker.row_log import RowLog, RowWriter
from linedesk.store.client import connect
from tests.waiting import eventually

PUSH = "/v2/bot/message/push"
CONTEXT = {"eventId": "E1", "key": "U1", "attempt": 2}


def note(log: CallLog, status: int | None = 200) -> None:
    with log.noted("POST", PUSH, CONTEXT) as row:
        row.status, row.request_id = status, "r-1"


def write(log: RowLog) -> None:
    """Have the writer's thread write what waits, and end."""
    writer = RowWriter(log)
    writer.start()
    writer.stop()
    assert writer.join(5)


def test_a_row_tells_what_line_asks_bot_makers_to_keep(database: Database[Any]) -> None:
    log = CallLog(database.calls)
    note(log)
    write(log)
    (row,) = eventually(lambda: list(database.calls.find()))
    assert {name: row[name] for name in row if name not in ("_id", "at", "ms")} == {
        "method": "POST",
        "endpoint": PUSH,
        "status": 200,
        "requestId": "r-1",
        "eventId": "E1",
        "key": "U1",
        "attempt": 2,
    }
    assert 0 <= row["ms"] < 1000


def test_a_call_that_raises_leaves_its_row_too(database: Database[Any]) -> None:
    log = CallLog(database.calls)
    with pytest.raises(OSError, match="gone"), log.noted("POST", PUSH, {}):
        raise OSError("gone")
    write(log)
    (row,) = eventually(lambda: list(database.calls.find()))
    assert (row["status"], row["requestId"], row["attempt"]) == (None, None, 1)


def test_rows_are_written_in_batches(database: Database[Any]) -> None:
    log = CallLog(database.calls)
    writer = RowWriter(log)
    writer.start()
    for _ in range(100):
        note(log)
    eventually(lambda: database.calls.count_documents({}) == 100)
    writer.stop()
    assert writer.join(5)


def test_rows_beyond_the_bound_are_dropped_and_counted(
    database: Database[Any], caplog: pytest.LogCaptureFixture
) -> None:
    unwritten: list[int] = []
    log = RowLog(database.calls, unwritten=unwritten.append, most_waiting=5)
    for status in range(8):
        log.add({"status": status})
    write(log)
    eventually(lambda: database.calls.count_documents({}) == 5)
    assert unwritten == [3]
    assert sorted(row["status"] for row in database.calls.find()) == [3, 4, 5, 6, 7]
    assert "rows of calls dropped rows=3" in caplog.text


def test_rows_end_nothing_while_mongodb_is_away(caplog: pytest.LogCaptureFixture) -> None:
    uri = "mongodb://127.0.0.1:1/?replicaSet=rs0"
    with connect(uri, app_name="away", server_selection_seconds=0.1) as away:
        log = CallLog(away["away"]["calls"])
        note(log)
        write(log)
    assert "rows of calls not written rows=1" in caplog.text


def test_rows_that_mongodb_refuses_end_nothing(
    database: Database[Any], caplog: pytest.LogCaptureFixture
) -> None:
    database.drop_collection("strict_calls")
    strict = database.create_collection("strict_calls", validator={"never": {"$exists": True}})
    log = CallLog(strict)
    note(log)
    write(log)
    assert "rows of strict_calls not written rows=1" in caplog.text
