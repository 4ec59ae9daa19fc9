"""Rows as stored: a field's name is defined in one place, and the bytes do not change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest

from dispatcher.conversations.mailbox import GiveUp
from jobworker.effects import of_event
from linedesk.store.records import (
    letters,
)
from linedesk.store.records.audit import begun_row, ended
from linedesk.store.records.calls import CallRecord
from linedesk.store.records.letters import HANDLER, Cause

AT = datetime(2026, 11, 22, 3, 4, 5, 678000, UTC)
LATER = AT + timedelta(seconds=1)


def is_stored_as(document: dict[str, Any], expected: dict[str, Any]) -> bool:
    """The same bytes: names, values and their order."""
    return bson.encode(document) == bson.encode(expected)


def test_a_call_is_stored_as_ever() -> None:
    row = CallRecord(AT, "POST", "/v2/bot/message/push", event_id="E1", key="U1", attempt=2)
    stored = {
        "at": AT,
        "ms": 0.0,
        "method": "POST",
        "endpoint": "/v2/bot/message/push",
        "status": None,
        "requestId": None,
        "eventId": "E1",
        "key": "U1",
        "attempt": 2,
    }
    assert is_stored_as(row.to_document(), stored)
    row.ms, row.status, row.request_id = 12.5, 200, "r-1"
    answered = {**stored, "ms": 12.5, "status": 200, "requestId": "r-1", "paid": None}
    assert is_stored_as(row.to_document(), answered)
    assert CallRecord.from_document(answered) == row


def test_a_call_has_its_class_its_wait_its_cost_and_its_sends() -> None:
    multicast = "/v2/bot/message/multicast"
    row = CallRecord(AT, "POST", multicast, event_id="E1", key="U1", attempt=1)
    row.turn_class, row.waited_ms, row.people = "chat", 420.5, 2
    row.also = [{"eventId": "E2", "key": "U2"}]
    refused = row.to_document()
    assert (refused["class"], refused["waitedMs"]) == ("chat", 420.5)
    assert "paid" not in refused
    for status in (200, 409):
        row.status = status
        assert row.to_document()["paid"] == 2
        assert CallRecord.from_document(row.to_document()) == row
    row.endpoint = "/v2/bot/message/quota"
    assert "paid" not in row.to_document()


@pytest.mark.parametrize("also", [None, "text", 7, ["text", None], {"eventId": "E2"}])
def test_a_call_whose_company_was_typed_by_hand_has_none(also: Any) -> None:
    assert not CallRecord.from_document({"also": also}).also


def test_an_act_is_stored_as_ever() -> None:
    row = begun_row(at=AT, by="hanako", via="page", act="pause", on="main/U1", why="slow")
    stored = {
        "at": AT,
        "by": "hanako",
        "via": "page",
        "act": "pause",
        "on": "main/U1",
        "why": "slow",
        "outcome": "begun",
    }
    assert is_stored_as(row, stored)
    assert ended("done", LATER) == {"outcome": "done", "endedAt": LATER}


def test_the_letter_of_an_event_is_stored_as_ever() -> None:
    document = {"_id": 1, "eventId": "E1", "channel": "main", "key": "U1", "event": {}}
    effect = of_event(document, GiveUp(Cause(HANDLER, {"error": "E"}), 3, AT, "T"))
    stored = {
        "id": "E1",
        "type": "deadletter",
        "channel": "main",
        "key": "U1",
        "document": document,
        "cause": HANDLER,
        "about": {"error": "E"},
        "traceback": "T",
        "attempts": 3,
        "firstAt": AT,
        "lastAt": effect["lastAt"],
    }
    assert is_stored_as(effect, stored)
    row = {"_id": "E1", **{n: v for n, v in stored.items() if n not in ("id", "type")}}
    assert is_stored_as(letters.row_of(effect), row)
