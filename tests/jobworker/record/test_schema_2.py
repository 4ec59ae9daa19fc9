"""Conversations as the release before wrote them: `schema_2.json`, read from its MongoDB while its
dispatcher was frozen in a stream of messages, with tries of unknown outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from bson import json_util
from pymongo.database import Database

from linedesk import Bot
from linedesk.store.documents import Document
from linesim import Sim
from tests.jobworker.worker_harness import Room

Rooms = Callable[..., Room]
AWARE = json_util.JSONOptions(tz_aware=True)
STORED = Path(__file__).with_name("schema_2.json").read_text(encoding="utf-8")


@pytest.fixture
def left(database: Database[Any], sim: Sim) -> list[Document]:
    """The conversations, as if that had happened two minutes ago, of users that linesim knows."""
    text = STORED
    for known in json_util.loads(STORED):
        text = text.replace(known["key"], sim.add_user("花子").user_id)
    rows: list[Document] = json_util.loads(text, json_options=AWARE)
    since = datetime.now(UTC) - max(row["at"] for row in rows) - timedelta(minutes=2)
    found = [_later(row, since) for row in rows]
    database.conversations.insert_many(found)
    return found


def _later(value: Any, by: timedelta) -> Any:
    if isinstance(value, dict):
        return {name: _later(one, by) for name, one in value.items()}
    if isinstance(value, list):
        return [_later(one, by) for one in value]
    return value + by if isinstance(value, datetime) else value


def said(sends: list[Document]) -> list[str]:
    return [message["text"] for send in sends for message in send["messages"]]


def test_effects_of_the_previous_release_are_carried_out_once_and_in_order(
    left: list[Document], room: Rooms, sim: Sim
) -> None:
    tried = [send["as"] for row in left for send in row["pending"] if send["triedAt"]]
    assert {"reply", "push"} <= set(tried)
    room(Bot(), epoch=2).until_quiet()
    for row in left:
        assert [one.text for one in sim.answers(row["key"])] == said(row["pending"])


def test_its_process_that_still_runs_writes_nothing_more(
    left: list[Document], room: Rooms, sim: Sim, database: Database[Any]
) -> None:
    desk = room(Bot(), epoch=2)
    desk.until_quiet()
    before = list(database.conversations.find())
    for row in left:
        first = row["pending"][0]["id"]
        of_epoch_1 = {"_id": row["_id"], "epoch": 1, "pending.id": first}
        tried = {"$set": {"pending.$.triedAt": datetime.now(UTC)}}
        assert database.conversations.update_one(of_epoch_1, tried).matched_count == 0
        gone = {"$pull": {"pending": {"id": first}}}
        database.conversations.update_one({"_id": row["_id"], "epoch": 1}, gone)
    assert list(database.conversations.find()) == before
