"""The views: their rows, that they hide users' messages, and that they use indexes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from bson import ObjectId, json_util
from pymongo.database import Database

from linedesk.setup.collections import create_collections
from linedesk.setup.views import VIEWS, ensure_views
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import Document, make_heartbeat

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SECRET = "秘密の言葉"
USER = {"channel": "main", "key": "U1"}


def event(number: int, **more: Any) -> Document:
    message = {"type": "text", "id": f"m{number}", "text": SECRET}
    event = {"type": "message", "mode": "active", "replyToken": SECRET, "message": message}
    name = {"_id": ObjectId(), "eventId": f"e{number}"}
    return {**name, **USER, "acceptTime": NOW, "event": event, **more}


@pytest.fixture
def filled(database: Database[Any]) -> Database[Any]:
    """Events, and calls in one row and by themselves."""
    ensure_views(database)
    database["recvq"].insert_many([make_heartbeat(NOW), event(1), event(2)])
    also = [{"eventId": "e8", "key": "U1"}, {"eventId": "e9", "key": "U2"}]
    database["calls"].insert_many(
        [
            {"at": NOW, "eventId": "e1", "key": "U1", "class": "chat", "paid": 2, "also": also},
            {"at": NOW, "eventId": "e2", "key": "U1", "also": "typed by hand"},
        ]
    )
    return database


def test_they_show_calls_and_events_and_nothing_that_people_wrote(filled: Database[Any]) -> None:
    filled["recvq"].insert_one({"event": 5})
    shown = {name: list(filled[name].find()) for name in VIEWS}
    assert SECRET not in json_util.dumps(shown, ensure_ascii=False)
    assert [row.get("eventId") for row in shown["v_events"]] == ["e1", "e2", None]
    assert shown["v_events"][0]["event"]["message"] == {"type": "text", "id": "m1"}
    calls = [(row["eventId"], row["sends"], row["conversations"]) for row in shown["v_calls"]]
    assert calls == [("e1", 3, 2), ("e2", 1, 1)]
    assert (shown["v_calls"][0]["class"], shown["v_calls"][0]["paid"]) == ("chat", 2)


@pytest.mark.parametrize("condition", [{"eventId": "e1"}, {"event.message.id": "m1"}])
def test_events_are_found_by_index(filled: Database[Any], condition: Document) -> None:
    command = {"explain": {"find": "v_events", "filter": condition}, "verbosity": "queryPlanner"}
    plan = str(filled.command(command))
    assert "IXSCAN" in plan
    assert "COLLSCAN" not in plan


def test_the_newest_event_comes_first_without_reading_the_others(filled: Database[Any]) -> None:
    newest = filled["v_events"].find().sort([("$natural", -1)]).limit(1)
    assert [row["eventId"] for row in newest] == ["e2"]


def test_one_of_another_version_becomes_this_one_and_a_collection_is_left(
    database: Database[Any],
) -> None:
    database["v_jobs"].insert_one({"mine": True})
    assert set(ensure_views(database)) == VIEWS.keys() - {"v_jobs"}
    database.command("collMod", "v_calls", viewOn="calls", pipeline=[])
    database["v_events"].drop()
    assert ensure_views(database) == ["v_events", "v_calls"]
    assert ensure_views(database) == []
    assert database["v_jobs"].find_one({}, {"_id": 0}) == {"mine": True}


def test_they_outlive_a_recvq_that_was_dropped_and_come_back_with_the_database(
    filled: Database[Any],
) -> None:
    filled["recvq"].drop()
    create_collections(filled, capped_bytes=MEGABYTE)
    filled["recvq"].insert_one(event(9))
    assert [row["eventId"] for row in filled["v_events"].find()] == ["e9"]
    filled["v_events"].drop()
    assert ensure_views(filled) == ["v_events"]
