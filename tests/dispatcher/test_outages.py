"""Servers that fail, restart, elect another, fall silent or end a cursor, under a whole dispatcher.

On each of these roads every insert that was confirmed is decided, once and in order, and no failure
causes a hot loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from bson.timestamp import Timestamp
from pymongo.database import Database

from dispatcher.commit.committer import Change, Committer
from dispatcher.commit.progress import HeldStore, Progress
from dispatcher.commit.tracker import ProgressTracker
from dispatcher.feed.rescan import Rescan
from dispatcher.pool.mailboxes import Mailboxes
from dispatcher.pool.saver import Saver
from linedesk.setup.collections import create_collections
from linedesk.setup.private_mongod import EmbeddedMongod
from linedesk.store.client import connect
from linedesk.store.collections import MEGABYTE
from linedesk.store.control import NO_PAUSES, Control
from linedesk.store.documents import HELD, RECVQ, Document
from linedesk.store.errors import StoreUnavailable
from tests.dispatcher.conftest import Dispatch
from tests.dispatcher.fakes import RecordingWorker, document
from tests.dispatcher.faults import failing
from tests.dispatcher.lost_history import has_position, some, wait_until_handled_once, writing
from tests.linedesk.store.lagging import LaggingSet
from tests.servers import frozen
from tests.waiting import eventually

Store = Callable[..., None]
Told = Callable[[str], list[str]]

FEEDS = ("changestream", "oplog")


@pytest.fixture(autouse=True)
def _soon_saved(short_limits: dict[str, Any]) -> None:
    short_limits["quiet_seconds"] = 0.05


# A feed that waits for an answer no longer than a second.
IMPATIENT: dict[str, Any] = {
    "feed_options": {"socket_seconds": 1.0},
    "reading": {"slow_read_seconds": 0.8},
}


@pytest.fixture
def faulty_database(faulty: EmbeddedMongod) -> Iterator[Database[Document]]:
    with connect(faulty.uri, app_name="tests") as client:
        client.drop_database("outages")
        create_collections(client.outages, capped_bytes=64 * MEGABYTE)
        yield client.outages


@pytest.mark.parametrize("feed", FEEDS)
def test_a_feed_that_fails_at_once_after_each_opening_is_not_tried_in_a_hot_loop(
    faulty_database: Database[Document],
    faulty: EmbeddedMongod,
    dispatch: Dispatch,
    store: Store,
    feed: str,
) -> None:
    pauses: list[int] = []

    def count(failures: int) -> float:
        pauses.append(failures)
        return 0.02

    worker, reading = RecordingWorker(), {"pause_seconds": count}
    running = dispatch(faulty_database, worker, uri=faulty.uri, feed=feed, reading=reading)
    store(faulty_database, document("e0"))
    eventually(lambda: worker.decided == ["e0"])
    eventually(lambda: has_position(faulty_database))
    # A code for which no driver resumes by itself; each opening succeeds.
    with failing(faulty_database.client, ["getMore"], errorCode=262, appName="feed"):
        eventually(lambda: len(pauses) >= 6)
        store(faulty_database, document("e1"))
    eventually(lambda: worker.decided == ["e0", "e1"])
    assert pauses[:6] == [1, 2, 3, 4, 5, 6], "each pause may be longer than the last"
    running.end()


@pytest.mark.parametrize("feed", FEEDS)
def test_a_server_that_is_stopped_for_a_while(
    own_mongod: EmbeddedMongod, dispatch: Dispatch, told: Told, feed: str
) -> None:
    with connect(own_mongod.uri, app_name="tests", socket_seconds=2.0) as client:
        database = client.line_bot
        create_collections(database, capped_bytes=MEGABYTE)
        worker = RecordingWorker()
        running = dispatch(database, worker, uri=own_mongod.uri, feed=feed, **IMPATIENT)
        with writing(database) as writers:
            some(writers)
            eventually(lambda: has_position(database))
            with frozen(own_mongod.pid):
                eventually(lambda: told("feed unavailable"))
            some(writers)
        wait_until_handled_once(worker, writers)
        running.end()
    assert told("feed lost its position") == []


@pytest.mark.parametrize("feed", FEEDS)
def test_a_server_that_is_killed_and_started_again(
    own_mongod: EmbeddedMongod, dispatch: Dispatch, told: Told, feed: str
) -> None:
    with connect(own_mongod.uri, app_name="tests") as client:
        database = client.line_bot
        create_collections(database, capped_bytes=MEGABYTE)
        worker = RecordingWorker()
        running = dispatch(database, worker, uri=own_mongod.uri, feed=feed)
        with writing(database) as writers:
            some(writers)
            eventually(lambda: has_position(database))
            own_mongod.kill()
            own_mongod.start()
            some(writers)
        wait_until_handled_once(worker, writers)
        running.end()
    assert told("feed lost its position") == []


def test_a_node_that_is_neither_primary_nor_secondary_is_an_outage_that_ends(
    lagging: LaggingSet,
) -> None:
    """The driver believes for the whole life of a connection made then that it has no sessions."""
    with ExitStack() as stack:
        with lagging.stepping_down() as uri:
            client = stack.enter_context(connect(uri, app_name="tests", directConnection=True))
            database = client["no_sessions"]
            committer = Committer(database)
            control, held = Control(database), HeldStore(committer)
            progress = Progress(committer, feed="memory", epoch=1)
            committer.lead(Saver(Mailboxes(ProgressTracker()), progress))

            def save() -> None:
                committer.commit(Change.insert(HELD, {"_id": 1, "n": 1}))

            reads = (control.read, partial(held.has, 1), Rescan(database[RECVQ]).now)
            for use in (*reads, save):
                with pytest.raises(StoreUnavailable, match="Sessions are not supported"):
                    use()
        assert control.read() == NO_PAUSES
        save()
        assert held.has(1)


@pytest.mark.parametrize("feed", FEEDS)
def test_a_primary_that_steps_down_and_one_that_is_killed(
    lagging: LaggingSet, dispatch: Dispatch, told: Told, feed: str
) -> None:
    database = lagging.client[f"election_{feed}"]
    create_collections(database, capped_bytes=MEGABYTE)
    worker = RecordingWorker()
    running = dispatch(database, worker, uri=lagging.uri, feed=feed)
    with writing(database) as writers:
        some(writers)
        eventually(lambda: has_position(database))
        with lagging.electing():
            lagging.step_down()
            some(writers)
            lagging.kill_primary()
            some(writers)
        some(writers)
    wait_until_handled_once(worker, writers)
    assert told("feed lost its position") == []
    assert len(told("feed unavailable")) <= 20
    running.end()


def roll_over(database: Database[Document], than: Timestamp) -> None:
    """Write elsewhere until the oplog no longer reaches back to a time."""
    oplog = database.client.local["oplog.rs"]

    def gone() -> bool:
        filler = database.client["filler"]["filler"]
        filler.insert_many([{"text": "x" * 20_000} for _ in range(20)])
        oldest = oplog.find({}, {"ts": 1}).sort("$natural", 1).limit(1).next()
        return bool(oldest["ts"] > than)

    eventually(gone, seconds=30)


@pytest.mark.parametrize("feed", FEEDS)
def test_an_oplog_that_rolls_over_while_there_is_no_room(
    tiny: EmbeddedMongod, dispatch: Dispatch, store: Store, told: Told, feed: str
) -> None:
    """The dispatcher runs and does not read, so that its open cursor falls behind."""
    with connect(tiny.uri, app_name="tests") as client:
        database = client.line_bot
        create_collections(database, capped_bytes=8 * MEGABYTE)
        worker = RecordingWorker()
        running = dispatch(database, worker, uri=tiny.uri, feed=feed)
        with writing(database) as writers:
            some(writers)
            eventually(lambda: has_position(database))
            worker.room = False
            for _ in range(2):
                worker.asked_for_room.clear()
                assert worker.asked_for_room.wait(15)
            some(writers)
            for _ in range(2):
                roll_over(database, Rescan(database[RECVQ]).now())
            worker.room = True
            some(writers)
        wait_until_handled_once(worker, writers)
        # The last of a scan may only look whether anything came meanwhile.
        eventually(lambda: scans(told))
        running.end()
    (line,) = scans(told)
    assert all(word in line for word in ("documents=", "new=", "seconds=", "after=", "cause="))


def scans(told: Told) -> list[str]:
    """The log lines of scans that ended, except the first start's."""
    return [line for line in told("recvq scanned, streaming from") if "first start" not in line]


def oversized() -> Document:
    """A document whose change event is above 16 MB; its `_id` is three times in the event."""
    id_ = "x" * 6000
    text = "y" * (16 * MEGABYTE - len(id_) - 1000)
    return {**document("big"), "_id": id_, "event": {"webhookEventId": "big", "text": text}}


@pytest.mark.parametrize("feed", FEEDS)
def test_an_event_above_16_mb_is_passed_by_one_scan(
    faulty_database: Database[Document],
    faulty: EmbeddedMongod,
    dispatch: Dispatch,
    store: Store,
    told: Told,
    feed: str,
) -> None:
    worker = RecordingWorker()
    running = dispatch(faulty_database, worker, uri=faulty.uri, feed=feed)
    with writing(faulty_database) as writers:
        some(writers)
        eventually(lambda: has_position(faulty_database))
        store(faulty_database, oversized())
        some(writers)
        eventually(lambda: "big" in worker.decided)
    wait_until_handled_once(worker, writers, "big")
    # The oplog's own entry is smaller than the change event.
    expected = [True] if feed == "changestream" else []
    eventually(lambda: len(scans(told)) == len(expected))
    running.end()
    assert ["10334" in line for line in scans(told)] == expected


@pytest.mark.parametrize("feed", FEEDS)
def test_huge_changes_next_to_recvq_do_not_reach_the_feed(
    faulty_database: Database[Document],
    faulty: EmbeddedMongod,
    dispatch: Dispatch,
    store: Store,
    told: Told,
    feed: str,
) -> None:
    store(faulty_database, document("e0"))
    worker = RecordingWorker()
    running = dispatch(faulty_database, worker, uri=faulty.uri, feed=feed)
    eventually(lambda: worker.decided == ["e0"])
    huge = {**oversized(), "eventId": "huge"}
    neighbour = faulty_database["neighbour"]
    neighbour.insert_one(huge)
    neighbour.replace_one({"_id": huge["_id"]}, {"text": "z" * (16 * MEGABYTE - 8000)})
    store(faulty_database, document("e1"))
    eventually(lambda: worker.decided == ["e0", "e1"])
    assert told("feed lost its position") == []
    running.end()
