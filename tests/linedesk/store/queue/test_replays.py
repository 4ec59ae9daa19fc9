"""Each requested replay of a dead letter reaches recvq once, with any crash."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from linedesk.operate.dead_letters import Replays, event_again, replay_name
from linedesk.store.documents import DEADLETTERS, RECVQ, Document
from linedesk.store.errors import StoreUnavailable
from tests.linedesk.store.conftest import MakeDocument
from tests.rows import Db

NOW = datetime.now(UTC)


@pytest.fixture
def letter(database: Db, document: MakeDocument) -> Document:
    """A letter in the database, as read."""
    lost = document("01E", replyToken="long-past", message={"type": "text", "text": "もう一度"})
    lost["acceptTime"] = NOW - timedelta(days=3)
    row = {"_id": "01E", "channel": "main", "key": "U1", "document": lost, "cause": "handler: X"}
    database[DEADLETTERS].insert_one(row)
    return read(database)


def read(database: Db) -> Document:
    found: Document | None = database[DEADLETTERS].find_one()
    assert found is not None
    return found


def again(letter: Document) -> Document:
    return event_again(letter, name=replay_name(letter), now=NOW)


def replays_of(database: Db) -> Replays:
    return Replays(database)


def names(database: Db) -> list[str]:
    return [row["eventId"] for row in database[RECVQ].find()]


def test_an_event_is_a_document_of_today_without_its_reply_token(letter: Document) -> None:
    made = again(letter)
    lost = letter["document"]
    assert made["_id"] != lost["_id"]
    assert (made["eventId"], made["acceptTime"]) == ("replay:01E:1", NOW)
    assert (made["channel"], made["key"]) == (lost["channel"], lost["key"])
    assert made["event"] == {k: v for k, v in lost["event"].items() if k != "replyToken"}
    assert "replyToken" in lost["event"]


def test_of_two_operators_with_the_same_letter_one_replays_it(
    database: Db, letter: Document
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


def test_after_a_crash_after_the_insert_the_next_replay_adds_nothing(
    database: Db, letter: Document, monkeypatch: pytest.MonkeyPatch
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
