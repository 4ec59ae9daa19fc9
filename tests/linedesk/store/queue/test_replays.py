"""Each requested replay of a dead letter reaches recvq once, with any crash."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database

from linedesk.operate import dead_letters as replays
from linedesk.operate.dead_letters import Replays, effect_again, event_again, replay_name
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import DEADLETTERS, RECVQ, Document
from linedesk.store.errors import RecvqClosed, StoreUnavailable
from tests.linedesk.store.conftest import MakeDocument

NOW = datetime.now(UTC)


@pytest.fixture
def letter(database: Database[Any], document: MakeDocument) -> Document:
    """A letter in the database, as read."""
    lost = document("01E", replyToken="long-past", message={"type": "text", "text": "もう一度"})
    lost["acceptTime"] = NOW - timedelta(days=3)
    row = {"_id": "01E", "channel": "main", "key": "U1", "document": lost, "cause": "handler: X"}
    database[DEADLETTERS].insert_one(row)
    return read(database)


def read(database: Database[Any]) -> Document:
    found: Document | None = database[DEADLETTERS].find_one()
    assert found is not None
    return found


def again(letter: Document) -> Document:
    return event_again(letter, name=replay_name(letter), now=NOW)


def replays_of(database: Database[Any]) -> Replays:
    return Replays(database)


def names(database: Database[Any]) -> list[str]:
    return [row["eventId"] for row in database[RECVQ].find()]


def test_an_event_is_a_document_of_today_without_its_reply_token(letter: Document) -> None:
    made = again(letter)
    lost = letter["document"]
    assert made["_id"] != lost["_id"]
    assert (made["eventId"], made["acceptTime"]) == ("replay:01E:1", NOW)
    assert (made["channel"], made["key"]) == (lost["channel"], lost["key"])
    assert made["event"] == {k: v for k, v in lost["event"].items() if k != "replyToken"}
    assert "replyToken" in lost["event"]


def test_a_document_of_an_effect_names_the_letter_and_no_more(letter: Document) -> None:
    made = effect_again(letter, name="replay:01E/0:1", now=NOW)
    assert made.keys() == {"_id", "eventId", "channel", "key", "acceptTime", "event"}
    assert made["event"] == {"type": "replay"}


def test_each_replay_has_its_own_number_and_the_letter_says_when(
    database: Database[Any], letter: Document
) -> None:
    assert replays_of(database).put(letter, again(letter))
    once = read(database)
    assert (once["replays"], "replaying" in once) == (1, False)
    assert once["replayedAt"] >= NOW - timedelta(milliseconds=1)

    assert replays_of(database).put(once, again(once))

    assert names(database) == ["replay:01E:1", "replay:01E:2"]


def test_of_two_operators_with_the_same_letter_one_replays_it(
    database: Database[Any], letter: Document
) -> None:
    together, done = threading.Barrier(2), []

    def one() -> None:
        together.wait(5)
        done.append(replays_of(database).put(letter, again(letter)))

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert sorted(done) == [False, True]
    assert names(database) == ["replay:01E:1"]


def test_after_a_crash_before_the_insert_the_next_replay_takes_the_same_number(
    database: Database[Any], letter: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any, **__: Any) -> frozenset[int]:
        raise StoreUnavailable("planted")

    with monkeypatch.context() as patched:
        patched.setattr(replays, "insert_documents", die)
        with pytest.raises(StoreUnavailable):
            replays_of(database).put(letter, again(letter))
    begun = read(database)
    assert (begun["replaying"], begun.get("replayedAt"), names(database)) == (1, None, [])

    assert replays_of(database).put(begun, again(begun))

    assert names(database) == ["replay:01E:1"]
    assert (read(database)["replays"], "replaying" in read(database)) == (1, False)


def test_after_a_crash_after_the_insert_the_next_replay_adds_nothing(
    database: Database[Any], letter: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(self: Replays, letter: Document, changes: Document) -> None:
        raise StoreUnavailable("planted")

    with monkeypatch.context() as patched:
        patched.setattr(Replays, "_mark", die)
        with pytest.raises(StoreUnavailable):
            replays_of(database).put(letter, again(letter))
    begun = read(database)
    assert names(database) == ["replay:01E:1"]

    assert replays_of(database).put(begun, again(begun))

    assert names(database) == ["replay:01E:1"]
    assert "replayedAt" in read(database)


def test_a_process_frozen_before_the_insert_adds_nothing(
    database: Database[Any], letter: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process completes the replay before the first one continues."""
    insert = replays.insert_documents

    def frozen(*given: Any, **named: Any) -> frozenset[int]:
        monkeypatch.setattr(replays, "insert_documents", insert)
        begun = read(database)
        assert replays_of(database).put(begun, again(begun))
        return insert(*given, **named)

    monkeypatch.setattr(replays, "insert_documents", frozen)
    assert replays_of(database).put(letter, again(letter))

    assert names(database) == ["replay:01E:1"]


def test_a_letter_dropped_meanwhile_is_not_replayed(
    database: Database[Any], letter: Document
) -> None:
    database[DEADLETTERS].delete_many({})
    assert not replays_of(database).put(letter, again(letter))
    assert names(database) == []
    assert database[DEADLETTERS].count_documents({}) == 0


def test_a_recvq_full_of_unread_documents_takes_no_replay(
    database: Database[Any], letter: Document, document: MakeDocument
) -> None:
    size = int(database[RECVQ].options()["size"])
    for number in range(size // MEGABYTE):
        database[RECVQ].insert_one(document(f"big-{number}", filler="x" * (MEGABYTE - 500)))
    before = read(database)

    with pytest.raises(RecvqClosed):
        replays_of(database).put(letter, again(letter))

    assert read(database) == before
    assert "replay:01E:1" not in names(database)


def test_a_missing_recvq_is_not_made_by_a_replay(database: Database[Any], letter: Document) -> None:
    database.drop_collection(RECVQ)
    with pytest.raises(RecvqClosed, match="linedesk init"):
        replays_of(database).put(letter, again(letter))
    assert RECVQ not in database.list_collection_names()
