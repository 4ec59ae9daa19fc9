"""Dead letters grow too old: announced a week ahead, and then removed by MongoDB itself."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobworker.record.dead_letters import NOTICE, Ageing
from linedesk.operate.dead_letters import Replays, event_again, replay_name
from linedesk.store.documents import AUDIT, DEADLETTERS
from tests.rows import Db

DAYS = 90


def a_letter(id_: str, *, days: float, **more: Any) -> dict[str, Any]:
    at = datetime.now(UTC) - timedelta(days=days)
    place = {"channel": "main", "key": "U1"}
    document = {"_id": id_, **place, "acceptTime": at, "event": {"type": "message"}}
    return {"_id": id_, **place, "document": document, "lastAt": at, **more}


@pytest.fixture(autouse=True)
def _no_audit_left(database: Db) -> None:
    database[AUDIT].delete_many({})


@pytest.fixture
def letters(database: Db) -> Db:
    replayed = {"replays": 1, "replayedAt": datetime.now(UTC)}
    database[DEADLETTERS].insert_many(
        [
            a_letter("ancient", days=4000),
            a_letter("old", days=83.1),
            a_letter("young", days=82.9),
            a_letter("replayed", days=99, **replayed),
            a_letter("begun", days=99, replays=1, replaying=1),
        ]
    )
    return database


def expiring(database: Db) -> dict[str, datetime]:
    rows = database[DEADLETTERS].find({"expiresAt": {"$exists": True}})
    return {row["_id"]: row["expiresAt"] for row in rows}


def test_letters_that_grow_too_old_are_announced_a_week_ahead(
    letters: Db, caplog: pytest.LogCaptureFixture
) -> None:
    Ageing(letters, days=DAYS).look()
    found = expiring(letters)
    assert set(found) == {"ancient", "old"}
    soon = datetime.now(UTC) + NOTICE
    assert all(soon - timedelta(minutes=5) < at <= soon for at in found.values())
    row = letters[AUDIT].find_one()
    assert row is not None
    assert (row["act"], row["by"], row["on"]) == ("expire", "linedesk", ["ancient", "old"])
    assert "older than 90 days" in row["why"]
    assert "dead letters expire in a week letters=2 days=90" in caplog.text
    # A successor announces nothing twice.
    Ageing(letters, days=DAYS).look()
    assert letters[AUDIT].count_documents({}) == 1
    assert expiring(letters) == found


def test_a_longer_age_and_a_replay_keep_a_letter(letters: Db) -> None:
    Ageing(letters, days=DAYS).look()
    Ageing(letters, days=DAYS + 1).look()
    assert set(expiring(letters)) == {"ancient"}
    letter = letters[DEADLETTERS].find_one({"_id": "ancient"})
    again = event_again(letter, name=replay_name(letter), now=datetime.now(UTC))
    assert Replays(letters).put(letter, again)
    assert expiring(letters) == {}
