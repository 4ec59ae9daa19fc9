"""One conformance suite for both feeds; then the oplog's own tests."""

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson.timestamp import Timestamp
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from dispatcher.feed.change_stream import ChangeStreamFeed
from dispatcher.feed.feed import Feed, FeedItem, PositionLost, RecvqGone
from dispatcher.feed.oplog import OplogFeed, inserts
from dispatcher.feed.rescan import Rescan
from linedesk.setup.collections import create_collections
from linedesk.store.client import connect
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import RECVQ, Document, name_of
from linedesk.store.errors import StoreUnavailable
from linedesk.store.insert import insert_documents
from tests.dispatcher.conftest import FEEDS
from tests.dispatcher.fakes import document, numbered
from tests.dispatcher.faults import failing
from tests.linedesk.store.lagging import LaggingSet
from tests.rows import Db

_FIRST_COPY = WriteConcern(w=1)
_LOCAL = ReadConcern("local")


@dataclass
class Place:
    """recvq of a real database, read by one of the real feeds."""

    database: Db
    name: str

    def feed(self) -> Feed:
        if self.name == "oplog":
            client, name = self.database.client, self.database.name
            return OplogFeed(client, name)
        return ChangeStreamFeed(self.database[RECVQ])

    def now(self) -> Timestamp:
        return Rescan(self.database[RECVQ]).now()

    def insert(self, *documents: Document) -> None:
        insert_documents(self.database[RECVQ], documents, timeout_seconds=20)

    def drop(self) -> None:
        self.database.drop_collection(RECVQ)


@pytest.fixture(params=FEEDS)
def place(request: pytest.FixtureRequest, database: Db) -> Place:
    return Place(database, request.param)


@pytest.fixture
def feed(place: Place) -> Iterator[Feed]:
    """A feed that is open at a moment before anything was inserted."""
    feed = place.feed()
    feed.open_at(place.now())
    yield feed
    feed.close()


def read(feed: Feed, count: int) -> list[FeedItem]:
    """The next readings; fails if they do not come."""
    found: list[FeedItem] = []
    deadline = time.monotonic() + 15
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {names(found)} came"
        reading = feed.read()
        if reading is not None:
            found.append(reading)
    return found


def names(readings: list[FeedItem]) -> list[str]:
    return [name_of(reading.document) for reading in readings]


def quiet(feed: Feed) -> bool:
    return all(feed.read() is None for _ in range(3))


def test_documents_come_whole_and_in_order(place: Place, feed: Feed) -> None:
    given = numbered(30, keys=3)
    for one in given:
        place.insert(one)
    found = read(feed, 30)
    assert names(found) == [f"e{n}" for n in range(30)]
    assert [reading.document["_id"] for reading in found] == [one["_id"] for one in given]
    assert set(found[0].document) == {"_id", "eventId", "channel", "key", "acceptTime", "event"}
    assert found[0].document["acceptTime"].tzinfo is not None
    assert quiet(feed)


def test_a_token_brings_exactly_the_rest(place: Place, feed: Feed) -> None:
    place.insert(*numbered(4))
    place.insert(*(document(f"f{n}") for n in range(3)))
    found = read(feed, 7)
    place.insert(document("new"))
    for position, reading in enumerate(found):
        assert reading.token is not None
        with closing(place.feed()) as other:
            other.open(reading.token)
            assert names(read(other, 7 - position)) == [*names(found)[position + 1 :], "new"]


def test_a_token_from_before_the_drop_brings_the_rest_and_then_the_drop(
    place: Place, feed: Feed
) -> None:
    """A dispatcher that dies before its documents are finished reads them again."""
    place.insert(*numbered(3))
    token = read(feed, 2)[-1].token
    place.drop()
    with pytest.raises(RecvqGone):
        read(feed, 2)
    with closing(place.feed()) as other:
        other.open(token)
        assert names(read(other, 1)) == ["e2"]
        with pytest.raises(RecvqGone):
            read(other, 1)


UNUSABLE_TOKENS: list[Any] = [
    {"_data": "not hexadecimal"},
    {"_data": "82"},
    {"_data": "826400000000000000000000"},
    {"_data": 5},
    {"wrong": 1},
    {},
    "text",
    17.5,
    Timestamp(1, 1),
    [],
]


def test_an_unusable_token_is_lost_history(place: Place) -> None:
    for token in UNUSABLE_TOKENS:
        with closing(place.feed()) as feed, pytest.raises(PositionLost):
            feed.open(token)


@pytest.mark.parametrize("name", FEEDS)
def test_a_position_too_far_back_to_be_walked_from_is_lost_history(
    database: Db, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other try would come further; one that ends sooner is tried again."""
    for module in ("oplog", "change_stream"):
        monkeypatch.setattr(f"dispatcher.feed.{module}.OPEN_SECONDS", 0.2)
    place = Place(database, name)
    place.insert(document("e0"))
    opening, at = ["aggregate", "find"], place.now()
    with closing(place.feed()) as feed:
        slowly = failing(database.client, opening, blockConnection=True, blockTimeMS=300)
        with slowly, pytest.raises(PositionLost):
            feed.open_at(at)
        ended = failing(database.client, opening, errorCode=50)
        with ended, pytest.raises(StoreUnavailable):
            feed.open_at(at)


@pytest.mark.parametrize("name", FEEDS)
def test_only_inserts_into_recvq_are_shown(database: Db, name: str) -> None:
    """No document that is evicted, updated or deleted there, and none of other collections."""
    place = Place(database, name)
    database.drop_collection(RECVQ)
    database.create_collection(RECVQ, capped=True, size=4096)
    neighbour = database.client[f"{database.name}_recvq"]
    with closing(place.feed()) as feed:
        feed.open_at(place.now())
        for one in numbered(60):
            place.insert(one)
        assert database[RECVQ].count_documents({}) < 60, "some were evicted"
        database[RECVQ].update_one({"eventId": "e59"}, {"$set": {"channel": "xxxx"}})
        database[RECVQ].delete_one({"eventId": "e58"})
        database["recvq2"].insert_one({"eventId": "next door"})
        neighbour[RECVQ].insert_one({"eventId": "another house"})
        place.insert(document("last"))
        assert names(read(feed, 61)) == [*(f"e{n}" for n in range(60)), "last"]
    database.client.drop_database(neighbour.name)


@pytest.mark.parametrize("name", FEEDS)
@pytest.mark.parametrize("code", [237, 43])
def test_a_cursor_that_the_server_ends_is_opened_again(
    database: Db, mongo_uri: str, name: str, code: int
) -> None:
    place = Place(database, name)
    with (
        connect(mongo_uri, app_name="feed") as client,
        closing(Place(client[database.name], name).feed()) as feed,
    ):
        feed.open_at(place.now())
        feed.read()
        token = feed.token
        place.insert(document("e0"))
        ended = failing(database.client, ["getMore"], errorCode=code, appName="feed")
        found: list[FeedItem] = []
        with ended, suppress(StoreUnavailable):
            found += [reading for _ in range(3) if (reading := feed.read())]
        feed.open(token)
        assert names(found or read(feed, 1)) == ["e0"]


def test_a_document_not_on_a_majority_is_not_handed_out(lagging: LaggingSet) -> None:
    database = lagging.client["feeds"]
    create_collections(database, capped_bytes=MEGABYTE)
    feeds = [Place(database, name).feed() for name in FEEDS]
    for feed in feeds:
        feed.open_at(Rescan(database[RECVQ]).now())
    with lagging.held_back():
        unsafe = database[RECVQ].with_options(write_concern=_FIRST_COPY)
        unsafe.insert_one(document("e0"))
        assert unsafe.with_options(read_concern=_LOCAL).count_documents({}) == 1
        assert all(quiet(feed) for feed in feeds)
    for feed in feeds:
        assert names(read(feed, 1)) == ["e0"]
        feed.close()


def insert_entry(id_: int, namespace: str = "line_bot.recvq") -> Document:
    return {
        "op": "i",
        "ns": namespace,
        "ui": bson.Binary(b"u" * 16, 4),
        "o": {"_id": id_, "eventId": f"e{id_}"},
        "o2": {"_id": id_},
    }


def transaction(*operations: Document, namespace: str = "admin.$cmd") -> Document:
    """An entry as MongoDB 6.0 writes it for a transaction."""
    return {
        "lsid": {"id": bson.Binary(b"s" * 16, 4), "uid": b"h" * 32},
        "txnNumber": bson.Int64(1),
        "op": "c",
        "ns": namespace,
        "o": {"applyOps": list(operations)},
        "ts": Timestamp(1700000000, 1),
        "t": bson.Int64(1),
        "v": bson.Int64(2),
        "wall": datetime(2026, 4, 1, tzinfo=UTC),
        "prevOpTime": {"ts": Timestamp(0, 0), "t": bson.Int64(-1)},
    }


UPDATE = {
    "op": "u",
    "ns": "line_bot.recvq",
    "o": {"$v": 2, "diff": {"u": {"channel": "x"}}},
    "o2": {"_id": 1},
}
DELETE = {"op": "d", "ns": "line_bot.recvq", "o": {"_id": 1}}


@pytest.mark.parametrize(
    ("entry", "ids"),
    [
        (insert_entry(1), [1]),
        (insert_entry(1, "other.recvq"), []),
        (transaction(insert_entry(1), insert_entry(2), insert_entry(3)), [1, 2, 3]),
        (transaction(insert_entry(1), UPDATE, DELETE, insert_entry(2)), [1, 2]),
        (transaction(insert_entry(1, "line_bot.held"), insert_entry(2)), [2]),
        (transaction(insert_entry(1, "other.recvq"), insert_entry(2, "line_bot.held")), []),
        (transaction(transaction(insert_entry(1)), insert_entry(2)), [1, 2]),
        (transaction(insert_entry(1), namespace="line_bot.$cmd"), [1]),
        ({"op": "c", "ns": "other.$cmd", "o": {"drop": "recvq"}}, []),
        ({"op": "c", "ns": "other.$cmd", "o": {"dropDatabase": 1}}, []),
        ({"op": "c", "ns": "line_bot.$cmd", "o": {"renameCollection": "a.b", "to": "a.c"}}, []),
    ],
)
def test_the_inserts_of_an_oplog_entry(entry: Document, ids: list[int]) -> None:
    assert [one["_id"] for one in inserts(entry, "line_bot.recvq")] == ids


@pytest.mark.parametrize(
    "command",
    [
        {"drop": "recvq"},
        {"dropDatabase": 1},
        {"renameCollection": "line_bot.recvq", "to": "line_bot.old"},
        {"renameCollection": "line_bot.tmp", "to": "line_bot.recvq", "dropTarget": True},
    ],
)
def test_an_oplog_entry_that_takes_the_collection_away_is_lost_history(command: Document) -> None:
    entry = {"op": "c", "ns": "line_bot.$cmd", "o": command}
    with pytest.raises(PositionLost):
        list(inserts(entry, "line_bot.recvq"))
    with pytest.raises(PositionLost):
        list(inserts(transaction(entry), "line_bot.recvq"))


def test_a_position_moves_past_a_transaction_only_with_its_last_document(database: Db) -> None:
    """Otherwise the rest of it would be lost with a crash."""
    database.drop_collection(RECVQ)
    database.create_collection(RECVQ)
    feed = OplogFeed(database.client, database.name)
    feed.open_at(Rescan(database[RECVQ]).now())
    with database.client.start_session() as session, session.start_transaction():
        for one in numbered(3):
            database["held"].insert_one({"of": one["_id"]}, session=session)
            database[RECVQ].insert_one(one, session=session)
    first, second, third = read(feed, 3)
    assert names([first, second, third]) == ["e0", "e1", "e2"]
    assert (first.token, second.token) == (None, None)
    assert first.time == third.time
    place = Place(database, "oplog")
    place.insert(document("next"))
    with closing(place.feed()) as other:
        other.open(third.token)
        assert names(read(other, 1)) == ["next"]
    feed.close()
