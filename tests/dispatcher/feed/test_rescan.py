"""Lost history loses nothing that recvq still holds (G9), on the real server."""

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from bson import ObjectId
from bson.timestamp import Timestamp
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from dispatcher.commit.tracker import RING_SLOTS
from dispatcher.conversations.mailbox import JobResult
from dispatcher.feed.feed import PositionLost
from dispatcher.feed.rescan import LONG_PASS_DOCUMENTS, Rescan
from linedesk.launch.dispatcher import make_feed
from linedesk.setup.collections import create_collections
from linedesk.setup.private_mongod import EmbeddedMongod
from linedesk.store.client import connect
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import PROGRESS, RECVQ, SCHEMA, Document, name_of
from linedesk.store.errors import StoreUnavailable
from linedesk.store.limits import SAFE_ORDER_SLACK
from tests.dispatcher.conftest import FEEDS, Dispatch, Store, Told
from tests.dispatcher.fakes import WAITS, Holder, RecordingWorker, document, numbered
from tests.dispatcher.lost_history import roll_over
from tests.linedesk.store.lagging import LaggingSet
from tests.rows import Db
from tests.waiting import eventually

LOCAL = ReadConcern("local")


def never() -> bool:
    return False


class Taken:
    """The documents that a scan handed out; `meanwhile` is called once, during the scan."""

    def __init__(self, meanwhile: Callable[[], object] | None = None, at: int = 10) -> None:
        self.documents: list[Document] = []
        self._meanwhile = meanwhile
        self._at = at

    def __call__(self, one: Document) -> bool:
        self.documents.append(one)
        if self._meanwhile is not None and len(self.documents) == self._at:
            self._meanwhile()
        return True

    @property
    def names(self) -> list[str]:
        return [name_of(one) for one in self.documents]


@pytest.fixture
def wide_oplog(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a server just started reaches back a second, so that any pass would be long."""
    monkeypatch.setattr(Rescan, "_oplog_window_seconds", lambda self: 3600.0)


def test_a_scan_from_near_the_beginning_begins_with_the_first_document(
    database: Db, store: Store
) -> None:
    given, taken = numbered(700), Taken()
    store(database, *given)
    Rescan(database[RECVQ]).scan(given[10]["_id"], taken, never)
    assert taken.names == [f"e{n}" for n in range(700)]


def test_a_scan_begins_some_way_behind_the_last_finished_document(
    database: Db, store: Store
) -> None:
    """Where record ids no longer begin with 1, and the number of documents changes meanwhile."""
    given = numbered(9000)
    for first in range(0, 9000, 1000):
        store(database, *given[first : first + 1000])
    held = [name_of(one) for one in database[RECVQ].find().sort("$natural", 1)]
    assert len(held) < 9000
    last = next(one for one in given if name_of(one) == held[1000])
    taken = Taken()
    Rescan(database[RECVQ]).scan(last["_id"], taken, never)
    assert taken.names == held[1000 - SAFE_ORDER_SLACK :]


@pytest.mark.usefixtures("wide_oplog")
def test_a_long_pass_is_followed_by_another_that_repeats_nothing(
    database: Db, store: Store, told: Told
) -> None:
    given = numbered(LONG_PASS_DOCUMENTS + 200)
    for first in range(0, len(given), 1000):
        store(database, *given[first : first + 1000])
    late = numbered(60, prefix="late")
    # Stored once the pass has read all that was there when it began to look.
    taken = Taken(lambda: store(database, *late), at=len(given))
    one = Rescan(database[RECVQ]).scan(None, taken, never)
    assert one is not None
    assert len(told("scanning again for newer ones")) == 1
    assert sorted(taken.names) == sorted(name_of(row) for row in given + late)
    assert one.read <= SAFE_ORDER_SLACK + 1 + len(late)
    # The documents that the stream will bring again are known.
    assert all(row["_id"] in one.seen for row in late)


def test_a_scan_ends_on_request(database: Db, store: Store) -> None:
    store(database, *numbered(300))
    taken = Taken()
    one = Rescan(database[RECVQ]).scan(None, taken, lambda: len(taken.documents) == 7)
    assert one is None
    assert len(taken.documents) == 7


def test_a_scan_that_is_overtaken_begins_again(database: Db, store: Store) -> None:
    numbers = itertools.count()

    def go_round() -> None:
        for _ in range(9):
            store(database, *(document(f"more {next(numbers)}") for _ in range(1000)))

    store(database, *numbered(300))
    with pytest.raises(StoreUnavailable):
        Rescan(database[RECVQ]).scan(None, Taken(go_round), never)


def test_a_scan_waits_until_all_that_was_stored_before_it_is_visible(lagging: LaggingSet) -> None:
    """Without the wait, a stored document was observed to be missing from both scan and stream."""
    database = lagging.client["history"]
    create_collections(database, capped_bytes=MEGABYTE)
    unsafe = database[RECVQ].with_options(
        write_concern=WriteConcern(w=1), read_concern=ReadConcern("majority")
    )
    taken = Taken()
    times: list[Timestamp] = []

    def scan() -> None:
        one = Rescan(database[RECVQ]).scan(None, taken, never)
        assert one is not None
        times.append(one.operation_time)

    with lagging.held_back():
        unsafe.insert_one(document("late"))
        assert unsafe.find_one() is None, "a plain majority read does not see it"
        scanning = threading.Thread(target=scan)
        scanning.start()
    scanning.join(20)
    assert taken.names == ["late"]
    assert times


@pytest.mark.parametrize("name", FEEDS)
def test_a_document_below_the_commit_point_is_in_the_scan_or_in_the_stream(
    lagging: LaggingSet, name: str
) -> None:
    """Some are stored before T and some after it, none of them on a majority at that moment."""
    database = lagging.client[f"below_{name}"]
    create_collections(database, capped_bytes=MEGABYTE)
    unsafe = database[RECVQ].with_options(write_concern=WriteConcern(w=1))
    taken, streamed = Taken(), []
    chosen = threading.Event()
    history = Rescan(database[RECVQ])
    choose = history._time

    def choose_and_tell(session: Any) -> Timestamp:
        chosen_time = choose(session)
        chosen.set()
        return chosen_time

    history._time = choose_and_tell  # type: ignore[method-assign]

    def scan_and_stream() -> None:
        one = history.scan(None, taken, never)
        assert one is not None
        with closing(make_feed(name, database.client, database.name)) as feed:
            feed.open_at(one.operation_time)
            while "last" not in [*taken.names, *streamed]:
                if (reading := feed.read()) and reading.document["_id"] not in one.seen:
                    streamed.append(name_of(reading.document))

    with lagging.held_back():
        for one in numbered(5, prefix="before"):
            unsafe.insert_one(one)
        reading = threading.Thread(target=scan_and_stream)
        reading.start()
        assert chosen.wait(15)
        for one in numbered(5, prefix="after"):
            unsafe.insert_one(one)
    unsafe.insert_one(document("last"))
    reading.join(30)
    assert not reading.is_alive()
    expected = [f"{when}{n}" for when in ("before", "after") for n in range(5)]
    assert [*taken.names, *streamed] == [*expected, "last"]


@pytest.mark.parametrize("name", FEEDS)
def test_documents_stored_during_the_scan_are_in_the_stream(database: Db, name: str) -> None:
    """The scan has read everything by its last document."""
    recvq, streamed = database[RECVQ], list[str]()
    recvq.insert_many(numbered(5))

    def take(one: Document) -> bool:
        if name_of(one) == "e4":
            # A stream begins with documents stored at its time: only the second may be that.
            recvq.insert_one(document("late"))
            recvq.insert_one(document("later"))
        return True

    found = Rescan(recvq).scan(None, take, never)
    assert found is not None
    recvq.insert_one(document("last"))
    with closing(make_feed(name, database.client, database.name)) as feed:
        feed.open_at(found.operation_time)
        while "last" not in streamed:
            if (reading := feed.read()) and reading.document["_id"] not in found.seen:
                streamed.append(name_of(reading.document))
    assert streamed == ["late", "later", "last"]


@pytest.fixture
def inversion(database: Db) -> tuple[list[Any], int]:
    """The stream order of documents by several writers, and the place of one of them that lies
    before its predecessor in natural order."""
    database.drop_collection(RECVQ)
    create_collections(database, capped_bytes=64 * MEGABYTE)
    fast = database[RECVQ].with_options(write_concern=WriteConcern(w=1), read_concern=LOCAL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with ThreadPoolExecutor(8) as writers:
            for some in writers.map(lambda _: numbered(120, prefix=f"{ObjectId()}-"), range(8)):
                writers.submit(lambda some=some: [fast.insert_one(one) for one in some])
        natural = {row["_id"]: n for n, row in enumerate(fast.find({}, {"_id": 1}))}
        stream = [row["o"]["_id"] for row in inserts_in_oplog(database)]
        for place in range(1, len(stream)):
            if place > 1000 and natural[stream[place]] < natural[stream[place - 1]]:
                return stream, place
    raise AssertionError("the writers met in order all the time")


def inserts_in_oplog(database: Db) -> list[Document]:
    oplog = database.client.local.get_collection("oplog.rs", read_concern=LOCAL)
    found = oplog.find({"op": "i", "ns": f"{database.name}.{RECVQ}"}, {"o._id": 1})
    return list(found.sort("$natural", 1))


@pytest.mark.parametrize("feed", FEEDS)
def test_a_scan_that_starts_at_an_inversion_finds_what_lies_before_its_start(
    database: Db, dispatch: Dispatch, inversion: tuple[list[Any], int], feed: str
) -> None:
    """All up to `after` in the order of the stream is finished; the next one lies before it."""
    stream, place = inversion
    ring: list[Any] = [None] * RING_SLOTS
    for number, id_ in enumerate(stream[:place]):
        ring[number % RING_SLOTS] = id_
    left = {"feed": feed, "token": None, "after": stream[place - 1], "finished": []}
    counts = {"passed": place, "epoch": 0, "starts": 0, "trying": None}
    database[PROGRESS].insert_one(
        {"_id": "dispatcher", "schema": SCHEMA, "ring": ring, **left, **counts}
    )
    names = {row["_id"]: row["eventId"] for row in database[RECVQ].find({}, {"eventId": 1})}
    worker = RecordingWorker()
    running = dispatch(database, worker, feed=feed)
    expected = sorted(names[id_] for id_ in stream[place:])
    eventually(lambda: len(worker.decided) >= len(expected), seconds=30)
    running.end()
    assert sorted(worker.decided) == expected


@pytest.mark.parametrize("feed", FEEDS)
def test_an_oplog_that_rolled_over_loses_nothing_and_repeats_nothing(
    tiny: EmbeddedMongod,
    dispatch: Dispatch,
    store: Store,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
    feed: str,
) -> None:
    # A position is saved soon after the first scan.
    with connect(tiny.uri, app_name="tests") as client:
        database = client.line_bot
        create_collections(database, capped_bytes=8 * MEGABYTE)
        first = RecordingWorker(
            lambda job: WAITS if "wait" in name_of(job.document) else JobResult.DONE
        )
        running = dispatch(database, first, uri=tiny.uri, feed=feed, quiet_seconds=0.05)
        store(database, *numbered(30, keys=3))
        eventually(lambda: (database[PROGRESS].find_one() or {}).get("token"))
        store(database, document("wait", "U9"), document("wait behind", "U9"))
        store(database, *numbered(30, keys=3, prefix="f"))
        eventually(lambda: len(first.decided) == 60)
        running.end()
        store(database, *numbered(30, keys=3, prefix="g"))
        roll_over(database)
        store(database, *numbered(30, keys=3, prefix="h"))
        second = RecordingWorker()
        running = dispatch(database, second, uri=tiny.uri, feed=feed)
        eventually(lambda: len(second.decided) >= 62)
        store(database, document("last", "U9"))
        eventually(lambda: "last" in second.decided)
        running.end()
    assert len(told(f"feed lost its position, scanning recvq feed={feed}")) == 1
    assert told("may have been overwritten") == []
    assert second.by_key == {
        **{f"U{k}": [f"{p}{n}" for p in "gh" for n in range(30) if n % 3 == k] for k in range(3)},
        "U9": ["wait", "wait behind", "last"],
    }


@pytest.mark.parametrize("feed", FEEDS)
def test_writers_that_insert_while_it_scans_lose_nothing(
    database: Db, dispatch: Dispatch, store: Store, feed: str
) -> None:
    """Natural order and stream order differ then."""
    store(database, *numbered(1500, keys=5, prefix="old"))

    def write(writer: int) -> None:
        for n in range(0, 120, 3):
            some = [document(f"w{writer}-{m}", f"W{writer}") for m in range(n, n + 3)]
            store(database, *some)

    writers = [threading.Thread(target=write, args=(n,)) for n in range(6)]
    for thread in writers:
        thread.start()
    worker = RecordingWorker()
    running = dispatch(database, worker, feed=feed)
    for thread in writers:
        thread.join(30)
    eventually(lambda: len(worker.decided) >= 1500 + 720)
    running.end()
    assert len(worker.decided) == 1500 + 720
    for writer in range(6):
        assert worker.by_key[f"W{writer}"] == [f"w{writer}-{n}" for n in range(120)]


def test_an_after_that_was_overwritten_is_logged_and_all_is_scanned(
    database: Db, dispatch: Dispatch, store: Store, told: Told
) -> None:
    first = RecordingWorker()
    running = dispatch(database, first)
    store(database, *numbered(20))
    eventually(lambda: len(first.decided) == 20)
    running.end()
    found = database[PROGRESS].find_one()
    assert found is not None
    database[RECVQ].delete_many({"_id": {"$in": [found["after"], found["ring"][3]]}})
    database[PROGRESS].update_one({}, {"$set": {"token": {"_data": "82"}}})
    store(database, *numbered(10, prefix="new"))
    second = RecordingWorker()
    running = dispatch(database, second)
    eventually(lambda: len(second.decided) >= 10)
    running.end()
    assert second.decided == [f"new{n}" for n in range(10)], "the ring knows what was finished"
    assert len(told("were overwritten before they were handled")) == 1


@pytest.mark.parametrize(("before", "now"), [FEEDS, FEEDS[::-1]])
def test_another_feed_than_before_loses_and_repeats_nothing(
    database: Db, dispatch: Dispatch, store: Store, told: Told, before: str, now: str
) -> None:
    first = RecordingWorker(lambda job: WAITS if name_of(job.document) == "e7" else JobResult.DONE)
    running = dispatch(database, first, feed=before)
    store(database, *numbered(20, keys=20))
    eventually(lambda: len(first.decided) == 19)
    running.end()
    store(database, *numbered(20, keys=20, prefix="f"))
    second = RecordingWorker()
    running = dispatch(database, second, feed=now)
    eventually(lambda: len(second.decided) >= 21)
    running.end()
    assert sorted(second.decided) == sorted(["e7", *(f"f{n}" for n in range(20))])
    assert len(told(f"feed type changed, scanning recvq before={before}")) == 1
    found = database[PROGRESS].find_one()
    assert found is not None
    assert found["feed"] == now


def test_documents_finished_while_a_scan_seeks_its_start_are_not_decided_again(
    database: Db, dispatch: Dispatch, store: Store, monkeypatch: pytest.MonkeyPatch, told: Told
) -> None:
    """More documents than the ring holds finish behind a slow one, which ends at that moment."""
    held = Holder("slow")
    worker = RecordingWorker(held)
    running = dispatch(database, worker)
    given = [*numbered(600, prefix="before"), document("slow", "US"), *numbered(2000)]
    for first in range(0, len(given), 500):
        store(database, *given[first : first + 500])
    held.wait_until_held("slow")
    eventually(lambda: len(worker.decided) == len(given) - 1)
    find_start = Rescan._anchor

    def find_start_slowly(self: Rescan, *arguments: Any) -> Any:
        reason = running.dispatcher.reader.reason
        reason.renewed_at -= 1000.0
        found = find_start(self, *arguments)
        assert reason.fresh() is not None, "each document counted is a sign of life"
        held.let_go("slow")
        eventually(lambda: database[PROGRESS].find_one()["passed"] >= len(given))
        return found

    monkeypatch.setattr(Rescan, "_anchor", find_start_slowly)
    read = running.feed.read
    lost = iter([PositionLost("MongoDB error 286")])

    def read_once_lost() -> Any:
        for error in lost:
            raise error
        return read()

    monkeypatch.setattr(running.feed, "read", read_once_lost)
    store(database, document("last", "UL"))

    # Once at the very first start, and now again.
    eventually(lambda: len(told("streaming from")) == 2 and "last" in worker.decided)
    assert sorted(worker.decided) == sorted([*(name_of(row) for row in given), "last"])


@pytest.mark.parametrize("feed", FEEDS)
def test_documents_stored_before_the_very_first_start_are_handled_once(
    database: Db, dispatch: Dispatch, store: Store, feed: str
) -> None:
    given = numbered(100, keys=7)
    store(database, *given[:90])
    for one in given[90:]:
        store(database, one)
    worker = RecordingWorker()
    running = dispatch(database, worker, feed=feed)
    eventually(lambda: len(worker.decided) >= 100)
    store(database, document("new", "U0"))
    eventually(lambda: "new" in worker.decided)
    running.end()
    expected = {f"U{k}": [f"e{n}" for n in range(100) if n % 7 == k] for k in range(7)}
    expected["U0"].append("new")
    assert worker.by_key == expected
    assert worker.again["e0"] is True
    assert worker.again["new"] is False
