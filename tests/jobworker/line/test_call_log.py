"""The rows of `calls`: kept for LINE's sake, and never at the work's expense."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo.database import Database

from jobworker.line.call_log import CallLog, people_of
from jobworker.line.gate import current_ticket
from jobworker.line.gate_order import Standing, Ticket
from jobworker.row_log import RowLog, RowWriter
from linedesk.store.client import connect
from linedesk.store.records.calls import TurnClass
from tests.jobworker.line.test_gate import Hand
from tests.jobworker.line.test_gate import hand as hand
from tests.rows import rows_of
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


def test_a_row_has_the_fields_that_line_asks_bot_makers_to_keep(database: Database[Any]) -> None:
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


@pytest.mark.parametrize(
    ("way", "to", "people"),
    [
        ("reply", None, 0),
        ("push", "U1", 1),
        ("push", "C1", None),
        ("push", "R1", None),
        ("multicast", ["U1", "U2", "U3"], 3),
        ("multicast", "U1", None),
        ("broadcast", None, None),
        ("narrowcast", None, None),
    ],
)
def test_line_s_count_of_a_send_is_reported(way: str, to: Any, people: int | None) -> None:
    assert people_of(f"/v2/bot/message/{way}", to, lambda to: None) == people


def test_a_row_has_class_and_wait_at_the_gate(database: Database[Any], hand: Hand) -> None:
    log = CallLog(database.calls)
    ticket = Ticket(Standing(TurnClass.OTHER, 1.0), granted=lambda ticket: granted.append(ticket))
    granted: list[Ticket] = []
    hand.gate.enter(ticket)
    hand.now += 0.5
    hand.run()
    with hand.gate.holding(ticket):
        assert current_ticket() is ticket
        hand.gate.begin(ticket)
        note(log)
    assert current_ticket() is None
    note(log)
    write(log)
    first, second = eventually(lambda: len(rows := rows_of(database.calls)) == 2 and rows)
    assert (first["class"], first["waitedMs"]) == ("other", 500.0)
    assert not {"class", "waitedMs"} & set(second)


def test_today_counts_people_and_what_other_processes_sent(database: Database[Any]) -> None:
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


def test_what_was_sent_while_mongodb_is_away_is_counted(database: Database[Any]) -> None:
    uri = "mongodb://127.0.0.1:1/?replicaSet=rs0"
    with connect(uri, app_name="away", server_selection_seconds=0.1) as away:
        log = CallLog(away["away"]["calls"])
        note(log)
        write(log)
        assert log.counted_today() == 1


def test_a_call_that_raises_leaves_its_row_too(database: Database[Any]) -> None:
    log = CallLog(database.calls)
    with pytest.raises(OSError, match="gone"), log.noted("POST", PUSH, {}):
        raise OSError("gone")
    write(log)
    (row,) = eventually(lambda: rows_of(database.calls))
    assert (row["status"], row["requestId"], row["attempt"]) == (None, None, 1)


def test_rows_are_written_in_batches(database: Database[Any]) -> None:
    log = CallLog(database.calls)
    writer = RowWriter(log)
    writer.start()
    for _ in range(100):
        note(log)
    eventually(lambda: len(rows_of(database.calls)) == 100)
    writer.stop()
    assert writer.join(5)
    assert database.calls.count_documents({}) < 20


def test_rows_beyond_the_bound_are_dropped_and_counted(
    database: Database[Any], caplog: pytest.LogCaptureFixture
) -> None:
    unwritten: list[int] = []
    log = RowLog(database.calls, unwritten=unwritten.append, most_waiting=5)
    for status in range(8):
        log.add({"status": status})
    write(log)
    assert unwritten == [3]
    rows = eventually(lambda: rows_of(database.calls))
    assert [row["status"] for row in rows] == [3, 4, 5, 6, 7]
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
