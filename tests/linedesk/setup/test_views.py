"""The views: their rows, that they hide users' messages, and that they use indexes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId, json_util
from pymongo.database import Database

from linedesk.setup.collections import create_collections
from linedesk.setup.views import VIEWS, ensure_views
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import Document, make_heartbeat
from linedesk.store.records.effects import TRIED_AT, place_of

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SECRET = "秘密の言葉"
USER = {"channel": "main", "key": "U1"}


def event(number: int, **more: Any) -> Document:
    message = {"type": "text", "id": f"m{number}", "text": SECRET}
    event = {"type": "message", "mode": "active", "replyToken": SECRET, "message": message}
    name = {"_id": ObjectId(), "eventId": f"e{number}"}
    return {**name, **USER, "acceptTime": NOW, "event": event, **more}


def send(number: int) -> Document:
    messages = [{"type": "text", "text": SECRET}]
    told = {"id": f"e{number}/0", "type": "send", "eventId": f"e{number}", "way": "reply"}
    return {**told, "at": NOW, "messages": messages, "token": SECRET, "retryKey": SECRET}


@pytest.fixture
def filled(database: Database[Any]) -> Database[Any]:
    """One of everything that waits, with the parts that must not be visible."""
    ensure_views(database)
    database["recvq"].insert_many([make_heartbeat(NOW), event(1), event(2)])
    conversation = {"_id": "main/U1", **USER, "at": NOW, "data": {"said": SECRET}}
    call = {"call": {"at": NOW, "as": "reply", "token": SECRET, "members": [place_of(3, 1)]}}
    timer = {"id": "t", "type": "timer", "timer": "main/U1/tea", "runAt": NOW, "data": SECRET}
    database["conversations"].insert_many(
        [
            {**conversation, "outbox": {place_of(3, 1): send(1), place_of(3, 2): timer}, **call},
            {**conversation, "_id": "main/U2", "key": "U2", "outbox": {}}
            | {"answers": {"e7": {"state": "waiting", "at": NOW, "send": send(7)}}},
        ]
    )
    also = [{"eventId": "e8", "key": "U1"}, {"eventId": "e9", "key": "U2"}]
    database["calls"].insert_many(
        [
            {"at": NOW, "eventId": "e1", "key": "U1", "class": "chat", "paid": 2, "also": also},
            {"at": NOW, "eventId": "e2", "key": "U1", "also": "typed by hand"},
        ]
    )
    database["held"].insert_many(
        [
            {"_id": document["_id"], **USER, "n": n, "document": document, "why": "slow"}
            | {"since": NOW + timedelta(seconds=n)}
            for n, document in enumerate([event(3), event(4)], start=7)
        ]
    )
    row = {**USER, "name": "tea", "n": 1, "every": None, "data": SECRET, "setBy": "e1"}
    waits = {"_id": "main/U1/tea", **row, "runAt": NOW}
    database["schedule"].insert_many([waits, {"_id": "main/U1/rang", **row, "runAt": None}])
    cause = {"cause": "handler: KeyError", "traceback": SECRET, "attempts": 3}
    database["deadletters"].insert_many(
        [
            {"_id": "e5", **USER, "document": event(5), **cause, "lastAt": NOW},
            {"_id": "e6/0", **USER, "effect": send(6), **cause, "lastAt": NOW},
        ]
    )
    return database


def test_they_show_what_waits_and_nothing_that_people_wrote(filled: Database[Any]) -> None:
    shown = {name: list(filled[name].find()) for name in VIEWS}
    assert SECRET not in json_util.dumps(shown, ensure_ascii=False)
    assert [row["eventId"] for row in shown["v_events"]] == ["e1", "e2"]
    assert shown["v_events"][0]["event"]["message"] == {"type": "text", "id": "m1"}
    places = [(row["_id"], row["place"]) for row in shown["v_outbox"]]
    assert places == [("e1/0", place_of(3, 1)), ("t", place_of(3, 2))]
    assert shown["v_outbox"][0]["messages"] == 1
    calls = [(row["eventId"], row["sends"], row["conversations"]) for row in shown["v_calls"]]
    assert calls == [("e1", 3, 2), ("e2", 1, 1)]
    assert (shown["v_calls"][0]["class"], shown["v_calls"][0]["paid"]) == ("chat", 2)
    entry = {"_id": "e7", "channel": "main", "key": "U2", "state": "waiting", "at": NOW}
    assert shown["v_answers"] == [entry]
    assert [(row["eventId"], row["n"]) for row in shown["v_held"]] == [("e3", 7), ("e4", 8)]
    [waiting] = shown["v_waiting"]
    assert (waiting["key"], waiting["documents"], waiting["eventId"]) == ("U1", 2, "e3")
    assert waiting["since"] == NOW + timedelta(seconds=7)
    assert [row["_id"] for row in shown["v_timers"]] == ["main/U1/tea"]
    letters = [(row["eventId"], row["type"], row.get("way")) for row in shown["v_deadletters"]]
    assert letters == [("e5", "message", None), ("e6", "send", "reply")]


def outbox_of(database: Database[Any], **conversation: Any) -> list[Any]:
    """Of each effect of a conversation: its id, its place, and when and how it was tried."""
    database["conversations"].replace_one(
        {"_id": "main/U1"}, {**USER, "at": NOW, **conversation}, upsert=True
    )
    names = ("_id", "place", TRIED_AT, "as")
    return [tuple(row.get(name) for name in names) for row in database["v_outbox"].find()]


def test_a_send_counts_as_tried_while_its_call_is_under_way(filled: Database[Any]) -> None:
    first, second = place_of(3, 1), place_of(3, 2)
    outbox = {first: send(1), second: send(2)}
    untried = [("e1/0", first, None, None), ("e2/0", second, None, None)]
    assert outbox_of(filled, outbox=outbox) == untried
    alone = {"at": NOW, "as": "push", "members": [first]}
    assert outbox_of(filled, outbox=outbox, call=alone)[0] == ("e1/0", first, NOW, "push")
    claim = {"at": NOW, "batch": "B", "members": [first]}
    assert outbox_of(filled, outbox=outbox, call=claim) == untried
    filled["batches"].insert_one({"_id": "B", "state": "open"})
    assert outbox_of(filled, outbox=outbox, call=claim) == untried
    filled["batches"].update_one({}, {"$set": {"state": "ready"}})
    tried = [("e1/0", first, NOW, "multicast"), untried[1]]
    assert outbox_of(filled, outbox=outbox, call=claim) == tried


def test_a_row_typed_by_hand_hides_no_other(filled: Database[Any]) -> None:
    for number, odd in enumerate([{"p": 5}, {"p": send(1), "q": [send(2)]}, "none"]):
        row = {"_id": f"z{number}", "at": NOW, "outbox": odd, "call": {"members": 5, "batch": 5}}
        filled["conversations"].insert_one(row)
    filled["held"].insert_one({"_id": {"no": "id"}, "document": 3, "channel": 5, "key": ["a"]})
    filled["schedule"].insert_one({"_id": 7, "runAt": "tomorrow"})
    filled["deadletters"].insert_one({"_id": 8, "document": "none"})
    filled["recvq"].insert_one({"event": 5})
    found = {name: len(list(filled[name].find())) for name in VIEWS}
    assert found["v_outbox"] == 5
    assert found["v_events"] == 3
    assert found["v_held"] == 3
    assert found["v_waiting"] == 2
    assert found["v_timers"] == 1
    assert found["v_deadletters"] == 3


@pytest.mark.parametrize(
    ("view", "condition"),
    [
        ("v_events", {"eventId": "e1"}),
        ("v_events", {"event.message.id": "m1"}),
        ("v_outbox", {}),
        ("v_answers", {}),
        ("v_held", {"channel": "main", "key": "U1"}),
        ("v_timers", {}),
        ("v_waiting", {"channel": "main", "key": "U1"}),
    ],
)
def test_lists_are_read_by_index(filled: Database[Any], view: str, condition: Document) -> None:
    command = {"explain": {"find": view, "filter": condition}, "verbosity": "queryPlanner"}
    plan = str(filled.command(command))
    assert "IXSCAN" in plan
    assert "COLLSCAN" not in plan


def test_the_newest_event_comes_first_without_reading_the_others(filled: Database[Any]) -> None:
    newest = filled["v_events"].find().sort([("$natural", -1)]).limit(1)
    assert [row["eventId"] for row in newest] == ["e2"]


def test_one_of_another_version_becomes_this_one_and_a_collection_is_left(
    database: Database[Any],
) -> None:
    database["v_held"].insert_one({"mine": True})
    assert set(ensure_views(database)) == VIEWS.keys() - {"v_held"}
    database.command("collMod", "v_timers", viewOn="schedule", pipeline=[])
    database["v_events"].drop()
    assert ensure_views(database) == ["v_events", "v_timers"]
    assert ensure_views(database) == []
    assert database["v_held"].find_one({}, {"_id": 0}) == {"mine": True}


def test_they_outlive_a_recvq_that_was_dropped_and_come_back_with_the_database(
    filled: Database[Any],
) -> None:
    filled["recvq"].drop()
    create_collections(filled, capped_bytes=MEGABYTE)
    filled["recvq"].insert_one(event(9))
    assert [row["eventId"] for row in filled["v_events"].find()] == ["e9"]
    filled["v_events"].drop()
    assert ensure_views(filled) == ["v_events"]
