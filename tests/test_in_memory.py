"""Single writes to one collection, on mongomock: fast, and faithful enough for these.

Features of a replica set, a capped collection or a write concern are tested on the real mongod.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import mongomock
import pytest

from jobworker.record import dead_letters
from jobworker.record.dead_letters import DeadLetters
from linedesk.contract import GiveUp
from linedesk.store.documents import make_document


@pytest.fixture
def collection() -> Any:
    return mongomock.MongoClient(tz_aware=True).line_bot.deadletters


def letter_of(event_id: str, *, cause: str = "handler: ValueError") -> dict[str, Any]:
    event = {"webhookEventId": event_id, "source": {"type": "user", "userId": "U1"}}
    document = make_document(event, channel="main", accept_time=datetime.now(UTC))
    return dead_letters.of_event(document, GiveUp(cause, 3, datetime.now(UTC), "Traceback"))


def no(document: dict[str, Any]) -> bool:
    return False


def test_a_dead_letter_is_found_by_the_event_it_is_of(collection: Any) -> None:
    DeadLetters(collection, is_unsent=no).write(letter_of("01E"))

    row = collection.find_one({"_id": "01E"})
    assert row["document"]["eventId"] == "01E"
    assert row["cause"] == "handler: ValueError"
    assert row.keys() == {
        *("_id", "channel", "key", "document"),
        *("cause", "traceback", "attempts", "firstAt", "lastAt"),
    }


def test_a_dead_letter_written_twice_is_one(collection: Any) -> None:
    letters = DeadLetters(collection, is_unsent=no)
    letters.write(letter_of("01E"))
    letters.write(letter_of("01E", cause="a late writer"))
    letters.write(letter_of("02E"))

    assert collection.count_documents({}) == 2
    assert collection.find_one({"_id": "01E"})["cause"] == "handler: ValueError"
