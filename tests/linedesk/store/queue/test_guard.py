"""The guard on the real capped collection: its results, and that nothing unread is overwritten."""

import itertools
import logging
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import bson
import pytest
from bson import ObjectId
from bson.errors import InvalidBSON
from pymongo.collection import Collection
from pymongo.errors import ConfigurationError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from linedesk.setup.collections import create_collections
from linedesk.store.collections import DISPATCHER, MEGABYTE
from linedesk.store.documents import Document
from linedesk.store.errors import UNAUTHORIZED, AccessRefused, RecvqClosed, StoreUnavailable
from linedesk.store.limits import ORDER_SLACK
from linedesk.store.queue import usage
from linedesk.store.queue.guard import Guard
from tests.rows import Db
from tests.waiting import eventually

SMALL, LARGE = 300, 60_000
CAPPED = 4 * MEGABYTE


@pytest.fixture
def recvq(database: Db) -> Db:
    """The database with a recvq so small that a test fills it in no time."""
    database.drop_collection("recvq")
    create_collections(database, capped_bytes=CAPPED)
    return database


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[tuple[str, str]]]:
    """The guard's log: level and the text before the numbers."""
    caplog.set_level(logging.INFO, "linedesk.store.queue.guard")

    def read() -> list[tuple[str, str]]:
        return [
            (r.levelname, r.getMessage().partition(" share=")[0].partition(" reason=")[0])
            for r in caplog.records
            if r.name == "linedesk.store.queue.guard"
        ]

    return read


def of_size(size: int) -> Document:
    """A document of exactly that many bytes of BSON."""
    document: Document = {"_id": ObjectId(), "pad": ""}
    document["pad"] = "x" * (size - len(bson.encode(document)))
    return document


def quick(database: Db) -> Collection[Any]:
    """recvq without waiting for the journal: reads include writes not on a majority yet."""
    return database["recvq"].with_options(
        write_concern=WriteConcern(w=1, j=False), read_concern=ReadConcern("local")
    )


def fill(database: Db, sizes: Iterable[int]) -> list[Any]:
    """Insert without asking the guard; returns the ids."""
    documents = [of_size(size) for size in sizes]
    quick(database).insert_many(documents)
    return [document["_id"] for document in documents]


def sizes_of(total: int, *, each: int) -> list[int]:
    return [each] * (total // each)


def finish(database: Db, after: Any) -> None:
    database["progress"].replace_one(
        {"_id": DISPATCHER}, {"_id": DISPATCHER, "after": after, "epoch": 1}, upsert=True
    )


def looked(database: Db) -> Guard:
    """A guard that has checked once."""
    guard = Guard(database)
    guard.look()
    return guard


@contextmanager
def at_work(guard: Guard) -> Iterator[None]:
    """With its thread, which never outlives the test's client, whatever fails."""
    guard.start()
    try:
        yield
    finally:
        guard.stop()
        guard.join()


def share(database: Db) -> float:
    found = looked(database).share
    assert found is not None
    return found


def test_an_almost_empty_recvq_is_open_even_if_all_of_it_is_unread(recvq: Db) -> None:
    fill(recvq, [SMALL])
    assert looked(recvq).closed is None
    assert share(recvq) < 0.001


@pytest.mark.parametrize(("read", "unread"), [(SMALL, LARGE), (LARGE, SMALL)])
def test_the_share_is_measured_in_bytes_in_any_order_of_sizes(
    recvq: Db, read: int, unread: int
) -> None:
    ids = fill(recvq, sizes_of(CAPPED, each=read))
    finish(recvq, ids[-1])
    fill(recvq, sizes_of(CAPPED * 6 // 10, each=unread))
    slack = 41 * read / CAPPED
    assert 0.58 < share(recvq) < 0.61 + slack


def test_large_documents_between_small_ones_are_not_overlooked(recvq: Db) -> None:
    """A mean of the newest documents, or of those after the last finished one, would give 3 %."""
    ids = fill(recvq, sizes_of(CAPPED // 4, each=SMALL))
    finish(recvq, ids[-1])
    fill(recvq, [SMALL] * 100 + sizes_of(CAPPED * 7 // 10, each=LARGE) + [SMALL] * 100)
    assert share(recvq) > 0.7


def test_thousands_behind_are_added_up_and_continued_from_there(
    recvq: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "FEW", 500)
    monkeypatch.setattr(usage, "REST", 1e9)
    ids = fill(recvq, sizes_of(CAPPED // 2, each=1_000))
    finish(recvq, ids[0])
    guard = looked(recvq)
    assert guard.share == pytest.approx(0.5, abs=0.03)
    for share_then in (0.6, 0.7):
        fill(recvq, sizes_of(CAPPED // 10, each=700))
        guard.look()
        assert share_then - 0.01 < (guard.share or 0) < share_then + 0.04
    finish(recvq, fill(recvq, [SMALL])[0])
    guard.look()
    assert (guard.share or 0) < 0.02


def test_a_missing_recvq_is_closed_until_it_is_there_again(
    recvq: Db, told: Callable[[], list[tuple[str, str]]]
) -> None:
    guard = looked(recvq)
    recvq.drop_collection("recvq")
    guard.look()
    assert "does not exist" in (guard.closed or "")
    assert guard.share is None
    with pytest.raises(RecvqClosed), guard.inserting(SMALL):
        raise AssertionError("it would be made uncapped")
    guard.look()
    create_collections(recvq, capped_bytes=CAPPED)
    guard.look()
    assert guard.closed is None
    assert told() == [("ERROR", "recvq closed"), ("INFO", "recvq open")]


def test_it_warns_closes_and_opens_with_one_line_each(
    recvq: Db, told: Callable[[], list[tuple[str, str]]]
) -> None:
    ids = fill(recvq, sizes_of(CAPPED, each=2_000))
    finish(recvq, ids[-1])
    guard = looked(recvq)
    newest_first = [d["_id"] for d in quick(recvq).find({}, {"_id": 1}).sort("$natural", -1)]

    def unread(percent: int) -> None:
        """Make this share of recvq unread: finish the documents before it, except ORDER_SLACK."""
        places = len(newest_first) * percent // 100 - 2 * ORDER_SLACK
        finish(recvq, newest_first[places])
        guard.look()
        guard.look()

    for percent, closed in ((82, False), (78, False), (82, False), (74, False), (82, False)):
        unread(percent)
        assert (guard.closed is not None) is closed
    for percent, closed in ((97, True), (92, True), (88, False), (92, False)):
        unread(percent)
        assert (guard.closed is not None) is closed
    warned, full = ("WARNING", "recvq is filling"), ("ERROR", "recvq closed, it is full")
    assert told() == [warned, warned, full, ("INFO", "recvq open")]


@pytest.mark.parametrize(
    "error", [AccessRefused(UNAUTHORIZED), ConfigurationError("too old"), InvalidBSON("year 10000")]
)
def test_its_thread_survives_any_error_of_a_check_and_logs_it_once(
    recvq: Db,
    told: Callable[[], list[tuple[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    looks, ended, look = threading.Semaphore(0), threading.Event(), Guard.look

    def failing(self: Guard) -> None:
        looks.release()
        if not ended.is_set():
            raise error
        look(self)

    monkeypatch.setattr(Guard, "look", failing)
    guard = Guard(recvq, every_seconds=0.01)
    with at_work(guard):
        assert all(looks.acquire(timeout=5) for _ in range(3))
        ended.set()
        assert eventually(lambda: guard.closed is None)
    [(level, words)] = told()
    assert level == "ERROR"
    assert words.startswith("recvq cannot be checked")


def hostile(seed: int) -> Iterator[list[Document]]:
    """Inserts in runs of sizes for which means, or the sizes at either end, are misleading."""
    chance = random.Random(seed)
    while True:
        size = chance.choice([SMALL, 900, 5_000, 20_000, LARGE])
        for _ in range(chance.randint(1, 8)):
            yield [of_size(size) for _ in range(chance.randint(1, LARGE // size))]


def insert_until_closed(guard: Guard, database: Db, inserts: Iterator[list[Document]]) -> list[Any]:
    """One writer that respects the guard; returns the ids of its inserts."""
    inserted: list[Any] = []
    for documents in itertools.islice(inserts, 10_000):
        try:
            with guard.inserting(sum(len(bson.encode(document)) for document in documents)):
                quick(database).insert_many(documents)
        except RecvqClosed:
            return inserted
        except StoreUnavailable:
            # Its own check took too long on a busy machine: nothing was inserted.
            continue
        inserted += [document["_id"] for document in documents]
    raise AssertionError("it was never closed")


def check_nothing_was_overwritten(database: Db, inserted: list[Any]) -> None:
    left = {document["_id"] for document in quick(database).find({}, {"_id": 1})}
    assert [one for one in inserted if one not in left] == []
    total = {"$group": {"_id": None, "bytes": {"$sum": {"$bsonSize": "$$ROOT"}}}}
    match = {"$match": {"_id": {"$in": inserted}}}
    [row] = quick(database).aggregate([match, total])
    assert row["bytes"] > 0.8 * CAPPED


def test_several_threads_that_obey_one_guard_overwrite_nothing_unread(
    recvq: Db, nothing_left: None
) -> None:
    finish(recvq, fill(recvq, sizes_of(CAPPED + CAPPED // 2, each=SMALL))[-1])
    guard = Guard(recvq)
    with at_work(guard), ThreadPoolExecutor(4) as threads:
        work = [
            threads.submit(insert_until_closed, guard, recvq, hostile(10 + number))
            for number in range(4)
        ]
        inserted = [one for done in work for one in done.result(60)]
    check_nothing_was_overwritten(recvq, inserted)


def test_several_processes_with_a_guard_each_overwrite_nothing_unread(
    recvq: Db, nothing_left: None
) -> None:
    """As many guards as processes; none starts its thread, so that only inserting looks."""
    finish(recvq, fill(recvq, sizes_of(CAPPED + CAPPED // 2, each=900))[-1])
    with ThreadPoolExecutor(3) as threads:
        work = [
            threads.submit(insert_until_closed, Guard(recvq), recvq, hostile(30 + number))
            for number in range(3)
        ]
        inserted = [one for done in work for one in done.result(60)]
    check_nothing_was_overwritten(recvq, inserted)


def test_an_insert_under_way_counts_before_it_is_there(recvq: Db) -> None:
    finish(recvq, fill(recvq, [SMALL])[0])
    guard = looked(recvq)
    half = CAPPED // 2
    with guard.inserting(half):
        guard.look()
        with pytest.raises(RecvqClosed, match="recvq is full"), guard.inserting(half):
            raise AssertionError("there is no room for both")
    guard.look()
    with guard.inserting(half):
        pass
