"""How much is stored and unfinished, by a real recvq and a reader that a test holds where it is."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from bson import ObjectId

from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import make_document
from linedesk.store.queue import usage
from linedesk.store.queue.usage import NEWEST, Depth, FeedPosition, RecvqUsage, Span
from tests.rows import Db

MINUTE = timedelta(minutes=1)


class Reader:
    """The state of the dispatcher's tracker, set by hand."""

    def __init__(self) -> None:
        self.read: list[Any] = []
        self.oldest: Any = None
        self.in_hand = 0
        self.held = 0
        self.paused = 0
        self.unpaused_at: datetime | None = None

    def __call__(self, ids: Sequence[Any]) -> FeedPosition:
        return FeedPosition(
            newest=self.read[-1] if self.read else None,
            unread=[id_ not in self.read for id_ in ids],
            oldest=self.oldest,
            documents=self.in_hand,
            held=self.held,
            unpaused=self.held - self.paused,
            unpaused_at=self.unpaused_at,
        )


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
def recvq(database: Db) -> RecvqUsage:
    return RecvqUsage(database)


Measure = Callable[[], Depth]


@pytest.fixture
def measure(recvq: RecvqUsage, reader: Reader) -> Measure:
    return partial(recvq.depth, reader)


Store = Callable[..., list[Any]]


@pytest.fixture
def store(database: Db) -> Store:
    return partial(insert, database)


def insert(database: Db, count: int, *, age: timedelta = MINUTE, **more: Any) -> list[Any]:
    """Store documents, the first of them `age` old, each further one a second younger."""
    first = datetime.now(UTC) - age
    rows = [
        make_document(
            {"webhookEventId": f"{ObjectId()}", "source": {"userId": "U1"}, **more},
            channel="main",
            accept_time=first + timedelta(seconds=n / 10),
        )
        for n in range(count)
    ]
    database.recvq.insert_many(rows)
    return [row["_id"] for row in rows]


def test_what_was_not_read_is_counted_one_by_one_whatever_the_order(
    measure: Measure, reader: Reader, store: Store
) -> None:
    ids = store(300)
    # A feed delivers the documents of several writers in a slightly different order than recvq's.
    reader.read = [*ids[:280], *ids[281:290], *ids[291:299]]
    found = measure()
    assert found["lag_documents"] == 3
    assert found["lag_seconds"] == pytest.approx(60 - 28, abs=9)
    # The last one read is not the last one stored.
    reader.read = [*ids[:-1], ids[-1], ids[-2]]
    found = measure()
    assert (found["lag_documents"], found["lag_seconds"]) == (0, 0), (
        "the last one read is not the last"
    )


def test_a_long_lag_is_exact_and_as_old_as_the_next_document_that_comes(
    measure: Measure, reader: Reader, store: Store
) -> None:
    reader.read = store(20)
    # The spool brings it later than it arrived, under the `_id` of its arrival.
    assert store(1, age=60 * MINUTE)
    store(NEWEST + 149, age=5 * MINUTE)
    found = measure()
    assert found["lag_documents"] == NEWEST + 150
    assert found["lag_seconds"] == pytest.approx(3600, abs=9)


def test_the_queue_is_all_that_is_unfinished_and_as_old_as_the_oldest_of_it(
    measure: Measure, reader: Reader, database: Db, store: Store
) -> None:
    ids = store(10)
    reader.read, reader.oldest, reader.in_hand = ids[:6], ids[2], 3
    found = measure()
    assert (found["lag_documents"], found["queue_documents"]) == (4, 7)
    assert found["oldest_unfinished_seconds"] == pytest.approx(60 - 0.2, abs=9)

    at = datetime.now(UTC) - 10 * MINUTE
    old = make_document({}, channel="main", accept_time=at)
    database.held.insert_one({"_id": ObjectId.from_datetime(at), "n": 1, "document": old})
    reader.held = 1
    found = measure()
    assert found["queue_documents"] == 8
    assert found["oldest_unfinished_seconds"] == pytest.approx(600, abs=9)
    assert found["behind_seconds"] == pytest.approx(60 - 0.2, abs=9)
    assert found["unpaused_documents"] == 8
    assert found["unpaused_oldest_seconds"] == pytest.approx(600, abs=9)


def test_a_pause_hides_nothing_else_that_is_held(
    measure: Measure, reader: Reader, database: Db
) -> None:
    at = datetime.now(UTC) - 50 * MINUTE
    old = make_document({}, channel="main", accept_time=at)
    database.held.insert_one({"_id": ObjectId.from_datetime(at), "n": 1, "document": old})
    reader.held = 4
    for paused, known, minutes in (
        (1, datetime.now(UTC) - 40 * MINUTE, 40),
        # One that is not read yet is perhaps the oldest of all.
        (1, None, 50),
        (4, None, 0),
    ):
        reader.paused, reader.unpaused_at = paused, known
        found = measure()
        assert (found["queue_documents"], found["unpaused_documents"]) == (4, 4 - paused)
        assert found["oldest_unfinished_seconds"] == pytest.approx(3_000, abs=9)
        assert found["unpaused_oldest_seconds"] == pytest.approx(60 * minutes, abs=9)


def test_recvq_lasts_as_long_as_the_rate_of_the_last_hour_leaves_room(
    database: Db, reader: Reader, store: Store
) -> None:
    now = [1_000.0]
    measure = partial(RecvqUsage(database, monotonic=lambda: now[0]).depth, reader)
    store(50)
    assert measure()["recvq_left_seconds"] is None, "it is too early to tell a rate"
    now[0] += 100
    store(200)
    found = measure()
    # All is unread: there is no saved progress. The rest of 16 MB lasts for this time, at two
    # documents a second.
    mean = database.command("collStats", "recvq")["size"] / 250
    left = (16 * MEGABYTE - 250 * mean) / (2 * mean)
    assert found["recvq_left_seconds"] == pytest.approx(left, rel=0.05)
    assert found["recvq_unread_share"] == pytest.approx(250 * mean / (16 * MEGABYTE), rel=0.05)


def test_the_oplog_lasts_so_much_less_as_reading_is_behind(
    database: Db, measure: Measure, reader: Reader, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def span(client: Any) -> Span:
        return Span(seconds=1_000.0, bytes=90 * MEGABYTE, most_bytes=90 * MEGABYTE)

    monkeypatch.setattr(usage, "oplog_span", span)
    assert measure()["oplog_left_seconds"] == pytest.approx(1_000)
    store(5)
    assert measure()["oplog_left_seconds"] == pytest.approx(940, abs=1)
    store(5, age=60 * MINUTE)
    assert measure()["oplog_left_seconds"] == 0, "it may be overwritten already"


def test_an_oplog_that_is_not_full_is_as_long_as_it_gets_at_its_rate(
    database: Db, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, size = [1_000.0], [MEGABYTE]

    def span(client: Any) -> Span:
        return Span(seconds=1_000.0, bytes=size[0], most_bytes=100 * MEGABYTE)

    monkeypatch.setattr(usage, "oplog_span", span)
    measure = partial(RecvqUsage(database, monotonic=lambda: now[0]).depth, reader)
    assert measure()["oplog_left_seconds"] is None, "it is too early to tell a rate"
    now[0], size[0] = 1_100.0, 2 * MEGABYTE
    assert measure()["oplog_left_seconds"] == pytest.approx(10_000)


def test_a_look_reads_no_more_of_a_long_queue_than_of_a_short_one(
    database: Db, measure: Measure, reader: Reader, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the server's own count. The gauge rarely adds up unread documents."""
    monkeypatch.setattr(RecvqUsage, "_unread", lambda self, reading, patient: 0)
    reader.read = store(1)
    store(3_000)
    database.command("profile", 2)
    try:
        assert measure()["lag_documents"] == 3_000
    finally:
        database.command("profile", 0)
    rows = list(database["system.profile"].find({"op": {"$in": ["query", "command"]}}))
    read = [row["docsExamined"] for row in rows if "docsExamined" in row]
    assert len(read) >= 3
    assert sum(read) <= NEWEST + 3, sorted(read, reverse=True)
    database.drop_collection("system.profile")
