"""Reads of one collection, on mongomock: fast, and faithful enough for these.

Features of a replica set, a transaction, a capped collection or a write concern are tested on the
real mongod.
"""

from datetime import UTC, datetime
from typing import Any

import mongomock
import pytest

from jobworker.metrics import WorkerMetrics
from jobworker.record.dead_letters import KeptLetters
from linedesk.operate.conversation import known_channels
from linedesk.operate.find import with_id
from linedesk.store.records.letters import REPLAYED_AT


@pytest.fixture
def database() -> Any:
    return mongomock.MongoClient(tz_aware=True).line_bot


def test_kept_letters_are_counted_and_those_not_replayed(database: Any) -> None:
    replayed = {"_id": "03E", REPLAYED_AT: datetime.now(UTC)}
    database.deadletters.insert_many([{"_id": "01E"}, {"_id": "02E"}, replayed])
    figures = WorkerMetrics()
    KeptLetters(database.deadletters, figures).look()
    value = figures.registry.get_sample_value
    assert (value("linedesk_dead_letters_kept"), value("linedesk_dead_letters_open")) == (3, 2)


def test_a_conversation_is_found_by_its_key_in_any_channel(database: Any) -> None:
    ids = ["main/U1", "main/U2", "shop/U1", "shop/U3"]
    database.conversations.insert_many([{"_id": id_} for id_ in ids])
    assert list(known_channels(database.conversations)) == ["main", "shop"]
    for word, id_ in (("U1", "main/U1"), ("shop/U1", "shop/U1"), ("U3", None)):
        row = with_id(database.conversations, word, channel="main")
        assert (row and row["_id"]) == id_
