"""Timers as documents: what names a ring for good, and the event that it becomes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import bson
from hypothesis import given
from hypothesis import strategies as st

from recvq.connect import aware_options
from recvq.documents import Document, conversation_id, name_of
from recvq.timers import EPOCH, due_event_id, make_timer_document, timer_id

DUE = datetime(2026, 11, 21, 7, 30, 0, 5_000, tzinfo=UTC)
NOW = datetime(2026, 11, 21, 7, 30, 0, 17_000, tzinfo=UTC)


def a_row(**fields: Any) -> Document:
    row = {
        "_id": "main/U1/medicine",
        "channel": "main",
        "key": "U1",
        "name": "medicine",
        "n": 7,
        "runAt": DUE,
        "every": None,
        "data": {"asked": 2},
        "source": {"type": "user", "userId": "U1"},
        "setBy": "E1",
    }
    return {**row, **fields}


def test_a_timer_is_its_conversations_or_one_members() -> None:
    assert timer_id("main", "U1", "medicine") == "main/U1/medicine"
    assert timer_id("main", "C1", "medicine", member="U1") == "main/C1/U1/medicine"


def test_a_ring_is_named_by_its_row_its_number_and_its_time() -> None:
    assert due_event_id(a_row()) == "timer:main/U1/medicine:7:2026-11-21T07:30:00.005Z"
    others = [a_row(n=8), a_row(runAt=DUE + timedelta(milliseconds=1)), a_row(_id="main/U2/x")]
    assert len({due_event_id(row) for row in [a_row(), *others]}) == 4


def test_the_same_moment_in_another_zone_is_the_same_ring() -> None:
    tokyo = DUE.astimezone(datetime.fromisoformat("2026-01-01T00:00+09:00").tzinfo)
    assert due_event_id(a_row(runAt=tokyo)) == due_event_id(a_row())


def test_a_ring_is_shaped_like_an_event_of_lines() -> None:
    made = make_timer_document(a_row(), accept_time=NOW)
    del made["_id"]
    assert made == {
        "eventId": "timer:main/U1/medicine:7:2026-11-21T07:30:00.005Z",
        "channel": "main",
        "key": "U1",
        "acceptTime": NOW,
        "event": {
            "type": "timer",
            "mode": "active",
            "timestamp": 1795246200005,
            "source": {"type": "user", "userId": "U1"},
            "timer": {
                "id": "main/U1/medicine",
                "name": "medicine",
                "n": 7,
                "runAt": DUE,
                "data": {"asked": 2},
            },
        },
    }


def test_a_ring_made_again_has_the_same_name_in_the_same_conversation() -> None:
    first, again = (make_timer_document(a_row(), accept_time=at) for at in (DUE, NOW))
    assert first["_id"] != again["_id"]
    assert name_of(first) == name_of(again)
    assert conversation_id(first) == conversation_id(again) == "main/U1"


def test_a_timer_set_by_an_event_without_a_source_has_none() -> None:
    assert "source" not in make_timer_document(a_row(source=None), accept_time=NOW)["event"]


@given(st.integers(min_value=0, max_value=4 * 10**12))
def test_a_ring_tells_its_time_to_the_millisecond(milliseconds: int) -> None:
    row = a_row(runAt=EPOCH + timedelta(milliseconds=milliseconds))
    read_back = bson.decode(bson.encode(row), aware_options())
    assert make_timer_document(read_back, accept_time=NOW)["event"]["timestamp"] == milliseconds
    assert due_event_id(read_back) == due_event_id(row)
