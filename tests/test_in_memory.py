"""Reads of one collection, on mongomock: fast, and faithful enough for these.

Features of a replica set, a transaction, a capped collection or a write concern are tested on the
real mongod.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import mongomock
import pytest

from dispatcher.conversations.mailbox import Condemned
from jobworker.effects import of_event
from jobworker.metrics import WorkerMetrics
from jobworker.record.dead_letters import KeptLetters
from linedesk.operate.conversation import known_channels
from linedesk.operate.dead_letters import Choice, all_of, explained, found, whole
from linedesk.operate.find import with_id
from linedesk.operate.text import NotDone
from linedesk.store.documents import make_document
from linedesk.store.records.letters import REPLAYED_AT, Cause, row_of

NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
def database() -> Any:
    return mongomock.MongoClient(tz_aware=True).line_bot


@pytest.fixture
def letters(database: Any) -> Any:
    """Three letters, the newest first; the last one was replayed."""
    rows = [
        a_letter("01E", hours=1),
        a_letter("02E", hours=2, cause="LINE refused it with 400: a (strange) answer"),
        {**a_letter("03E", hours=3), REPLAYED_AT: NOW},
    ]
    database.deadletters.insert_many(rows)
    return database.deadletters


def a_letter(event_id: str, *, hours: float, cause: str = "handler: ValueError") -> dict[str, Any]:
    event = {"webhookEventId": event_id, "source": {"type": "user", "userId": "U1"}}
    document = make_document(event, channel="main", accept_time=NOW)
    at = NOW - timedelta(hours=hours)
    return {**row_of(of_event(document, Condemned(Cause(cause), 3, at, "Traceback"))), "lastAt": at}


def names(rows: list[dict[str, Any]]) -> list[str]:
    return [row["_id"] for row in rows]


def test_a_dead_letter_is_found_by_the_event_it_is_of(letters: Any) -> None:
    row = whole(letters, "01E")
    assert row is not None
    assert row["document"]["eventId"] == "01E"
    assert explained(row) == "handler: ValueError"
    assert row.keys() == {
        *("_id", "channel", "key", "document"),
        *("cause", "traceback", "attempts", "firstAt", "lastAt"),
    }
    assert whole(letters, "04E") is None


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        (Choice(), ["02E", "01E"]),
        (Choice(everything=True), ["03E", "02E", "01E"]),
        (Choice(limit=1), ["02E"]),
        (Choice(ids=["03E", "01E"]), ["03E", "01E"]),
        (Choice(cause="a (strange)"), ["02E"]),
        (Choice(since=NOW - timedelta(hours=1.5)), ["01E"]),
        (Choice(until=NOW - timedelta(hours=1.5), everything=True), ["03E", "02E"]),
    ],
)
def test_letters_are_listed_as_chosen_and_without_their_contents(
    letters: Any, choice: Choice, wanted: list[str]
) -> None:
    rows = found(letters, choice)
    assert names(rows) == wanted
    if not choice.limit:
        assert names(found(letters, choice, newest_first=True)) == wanted[::-1]
    assert "Traceback" not in str(rows)


def test_an_act_on_a_letter_that_is_gone_is_refused(letters: Any) -> None:
    choice = Choice(ids=["01E", "04E"])
    with pytest.raises(NotDone, match="04E"):
        all_of(found(letters, choice), choice)


def test_kept_letters_are_counted_and_those_not_replayed(letters: Any) -> None:
    figures = WorkerMetrics()
    KeptLetters(letters, figures).look()
    value = figures.registry.get_sample_value
    assert (value("linedesk_dead_letters_kept"), value("linedesk_dead_letters_open")) == (3, 2)


def test_a_conversation_is_found_by_its_key_in_any_channel(database: Any) -> None:
    ids = ["main/U1", "main/U2", "shop/U1", "shop/U3"]
    database.conversations.insert_many([{"_id": id_} for id_ in ids])
    assert list(known_channels(database.conversations)) == ["main", "shop"]
    for word, id_ in (("U1", "main/U1"), ("shop/U1", "shop/U1"), ("U3", None)):
        row = with_id(database.conversations, word, channel="main")
        assert (row and row["_id"]) == id_
