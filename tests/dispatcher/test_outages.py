"""Servers that fail, restart, elect another, fall silent or end a cursor, under a whole dispatcher.

On each of these roads every insert that was confirmed is decided, once and in order, and no failure
causes a hot loop.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from pymongo.errors import WriteError

from dispatcher.commit.committer import Change, Committer
from dispatcher.commit.progress import HeldStore, Progress
from dispatcher.commit.tracker import ProgressTracker
from dispatcher.feed.rescan import Rescan
from dispatcher.pool.mailboxes import Mailboxes
from dispatcher.pool.saver import Saver
from linedesk.setup.collections import create_collections
from linedesk.store.client import connect
from linedesk.store.collections import MEGABYTE
from linedesk.store.control import NO_PAUSES, Control
from linedesk.store.documents import HELD, RECVQ, Document
from linedesk.store.errors import StoreUnavailable
from tests.dispatcher.conftest import FEEDS, Dispatch, Store, Told
from tests.dispatcher.fakes import RecordingWorker, document
from tests.dispatcher.lost_history import has_position, some, wait_until_handled_once, writing
from tests.linedesk.store.lagging import LaggingSet
from tests.rows import Db
from tests.waiting import eventually

LONG_FEEDS = ("changestream", pytest.param("oplog", marks=pytest.mark.long))


@pytest.fixture(autouse=True)
def _soon_saved(short_limits: dict[str, Any]) -> None:
    short_limits["quiet_seconds"] = 0.05


# A feed that waits for an answer no longer than a second.
@pytest.fixture
def wide(database: Db) -> Db:
    """With a recvq that takes the largest documents."""
    database.drop_collection(RECVQ)
    create_collections(database, capped_bytes=64 * MEGABYTE)
    return database


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


@pytest.mark.parametrize("feed", LONG_FEEDS)
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


def scans(told: Told) -> list[str]:
    """The log lines of scans that ended, except the first start's."""
    return [line for line in told("recvq scanned, streaming from") if "first start" not in line]


def oversized() -> Document:
    """A document whose change event is above 16 MB; its `_id` is three times in the event."""
    id_ = "x" * 6000
    text = "y" * (16 * MEGABYTE - len(id_) - 1000)
    return {**document("big"), "_id": id_, "event": {"webhookEventId": "big", "text": text}}


def fits(write: Callable[[], object]) -> bool:
    """Whether mongod's cache, small here, took it; a busy one may refuse it for a while."""
    try:
        write()
    except (StoreUnavailable, WriteError):
        return False
    return True


@pytest.mark.parametrize("feed", FEEDS)
def test_an_event_above_16_mb_is_passed_by_one_scan(
    wide: Db, dispatch: Dispatch, store: Store, told: Told, feed: str
) -> None:
    worker = RecordingWorker()
    running = dispatch(wide, worker, feed=feed)
    with writing(wide) as writers:
        some(writers)
        eventually(lambda: has_position(wide))
        eventually(lambda: fits(lambda: store(wide, oversized())))
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
    wide: Db, dispatch: Dispatch, store: Store, told: Told, feed: str
) -> None:
    store(wide, document("e0"))
    worker = RecordingWorker()
    running = dispatch(wide, worker, feed=feed)
    eventually(lambda: worker.decided == ["e0"])
    huge = {**oversized(), "eventId": "huge"}
    neighbour, other = wide["neighbour"], {"text": "z" * (16 * MEGABYTE - 8000)}
    eventually(lambda: fits(lambda: neighbour.insert_one(huge)))
    eventually(lambda: fits(lambda: neighbour.replace_one({"_id": huge["_id"]}, other)))
    store(wide, document("e1"))
    eventually(lambda: worker.decided == ["e0", "e1"])
    assert told("feed lost its position") == []
    running.end()
