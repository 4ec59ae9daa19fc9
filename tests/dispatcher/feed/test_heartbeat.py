"""A quiet feed proves that it delivers, and its position does not grow old meanwhile."""

from types import SimpleNamespace
from typing import Any

import pytest

from dispatcher.feed.reader import HEARTBEAT_AFTER_SECONDS, HEARTBEAT_BACK_SECONDS, Heartbeat
from linedesk.setup.collections import create_collections
from linedesk.setup.private_mongod import EmbeddedMongod
from linedesk.store.client import connect
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import PROGRESS, RECVQ, is_heartbeat, make_document
from tests.dispatcher.conftest import FEEDS, Dispatch, Store, Told, limit_feed
from tests.dispatcher.fakes import RecordingWorker, document
from tests.dispatcher.lost_history import roll_over
from tests.rows import Db
from tests.waiting import eventually

QUIET_SECONDS = HEARTBEAT_AFTER_SECONDS
BACK_SECONDS = HEARTBEAT_BACK_SECONDS
QUICK = {"heartbeat_after_seconds": 0.1}


class Hand:
    """A heartbeat on a clock moved by hand, and its guard."""

    def __init__(self, database: Db, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.closed: str | None = None
        self._recvq = database[RECVQ]
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr("dispatcher.feed.reader.time", clock)
        self.heartbeat = Heartbeat(database[RECVQ], self)  # type: ignore[arg-type]

    def look(self) -> None: ...

    def quiet_for(self, seconds: float) -> None:
        self.now += seconds
        self.heartbeat.quiet()

    @property
    def stored(self) -> int:
        return self._recvq.count_documents({"heartbeat": True})


@pytest.fixture
def hand(database: Db, monkeypatch: pytest.MonkeyPatch) -> Hand:
    create_collections(database, capped_bytes=MEGABYTE)
    return Hand(database, monkeypatch)


def test_one_is_stored_after_a_quiet_spell_and_not_before(hand: Hand) -> None:
    hand.quiet_for(QUIET_SECONDS - 1)
    assert hand.stored == 0
    hand.quiet_for(2)
    assert hand.stored == 1
    hand.quiet_for(BACK_SECONDS - 1)
    assert hand.stored == 1, "one is under way"
    hand.heartbeat.heard()
    hand.closed = "full"
    hand.quiet_for(QUIET_SECONDS + 1)
    assert hand.stored == 1


def test_one_that_cannot_be_stored_is_no_stall_but_tried_again(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_feed(monkeypatch, heartbeat_insert_seconds=0.1)
    with connect("mongodb://127.0.0.1:1/", app_name="t", server_selection_seconds=0.1) as client:
        hand = Hand(client.nowhere, monkeypatch)
        hand.quiet_for(QUIET_SECONDS + 1)
        hand.quiet_for(BACK_SECONDS - 1)
        hand.quiet_for(2)
    assert len(told("heartbeat not stored, trying again")) == 2


def test_no_event_of_lines_is_taken_for_one() -> None:
    event = {"heartbeat": True, "type": "message", "source": {"userId": "U"}}
    stored = make_document(event, channel="main", accept_time=None)  # type: ignore[arg-type]
    assert not is_heartbeat(stored)


@pytest.fixture
def quick(short_limits: dict[str, Any]) -> None:
    short_limits["quiet_seconds"] = 0.05


def beats(database: Db) -> int:
    return database[RECVQ].count_documents({"heartbeat": True})


@pytest.mark.parametrize("feed", FEEDS)
def test_no_bot_sees_one_neither_from_the_feed_nor_from_a_scan(
    database: Db, dispatch: Dispatch, store: Store, quick: None, feed: str
) -> None:
    create_collections(database, capped_bytes=MEGABYTE)
    worker = RecordingWorker()
    running = dispatch(database, worker, feed=feed, reading=QUICK)
    store(database, document("e0"))
    eventually(lambda: beats(database) >= 3)
    # It is finished at once: progress is at the newest of them.
    newest = database[RECVQ].find_one({"heartbeat": True}, sort=[("$natural", -1)])
    assert newest is not None
    eventually(lambda: passed(database) >= 3)
    running.end()
    database[PROGRESS].update_one({}, {"$set": {"token": None, "after": None}})
    database[PROGRESS].update_one({}, {"$set": {"ring": [None] * 1000, "finished": []}})
    again = RecordingWorker()
    running = dispatch(database, again, feed=feed, reading=QUICK)
    store(database, document("e1"))
    eventually(lambda: "e1" in again.decided)
    running.end()
    assert worker.decided == ["e0"]
    assert again.decided == ["e0", "e1"]


def passed(database: Db) -> int:
    return int((database[PROGRESS].find_one() or {"passed": 0})["passed"])


def test_a_feed_that_does_not_bring_one_is_opened_again(
    database: Db,
    dispatch: Dispatch,
    store: Store,
    told: Told,
    quick: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_collections(database, capped_bytes=MEGABYTE)
    worker = RecordingWorker()
    reading = {"heartbeat_after_seconds": 0.1, "heartbeat_back_seconds": 0.2}
    running = dispatch(database, worker, reading=reading)
    eventually(lambda: told("recvq scanned, streaming from"))
    feed = running.feed
    read, open_ = feed.read, feed.open
    mute = [True]

    def open_again(token: Any) -> None:
        mute[0] = False
        open_(token)

    # A stream that is open and brings nothing.
    monkeypatch.setattr(feed, "open", open_again)
    monkeypatch.setattr(feed, "read", lambda: None if mute[0] else read())
    store(database, document("e0"))
    eventually(lambda: told("the feed does not deliver: a heartbeat is missing"))
    eventually(lambda: worker.decided == ["e0"])
    assert len(told("the feed does not deliver")) == 1
    running.end()


def test_a_reader_reports_its_last_delivery_and_why_it_is_held_back(
    database: Db, dispatch: Dispatch, store: Store, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_collections(database, capped_bytes=MEGABYTE)
    worker = RecordingWorker()
    running = dispatch(database, worker, reading=QUICK)
    store(database, document("e0"))
    eventually(lambda: worker.decided == ["e0"])
    reader = running.dispatcher.reader
    before = reader.delivered_at
    eventually(lambda: reader.delivered_at > before)
    assert reader.reason.text is None
    worker.room = False
    eventually(lambda: reader.reason.text == "too many effects wait to be carried out")
    monkeypatch.setattr("dispatcher.watchdog.FEED_SECONDS", -1.0)
    assert running.dispatcher.watchdog.stalled() is None
    worker.room = True
    eventually(lambda: reader.reason.text is None)
    running.end()


@pytest.mark.parametrize("feed", FEEDS)
def test_a_quiet_recvq_needs_no_scan_though_the_oplog_rolled_over_many_times(
    tiny: EmbeddedMongod,
    dispatch: Dispatch,
    store: Store,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
    feed: str,
) -> None:
    """By the post-batch token of a change stream; by its heartbeats alone on an oplog."""
    reading = QUICK if feed == "oplog" else {}
    with connect(tiny.uri, app_name="tests") as client:
        database = client.line_bot
        create_collections(database, capped_bytes=MEGABYTE)
        worker = RecordingWorker()
        running = dispatch(
            database, worker, uri=tiny.uri, feed=feed, reading=reading, quiet_seconds=0.05
        )
        store(database, document("e0"))
        eventually(lambda: worker.decided == ["e0"])
        # The first new position may be that of a heartbeat amid the filler, which mongod removes
        # from the oplog in the background.
        for _ in range(2):
            roll_over(database, positions=3)
        running.end()
        store(database, document("e1"))
        running = dispatch(database, worker, uri=tiny.uri, feed=feed, reading=reading)
        eventually(lambda: worker.decided == ["e0", "e1"])
        running.end()
    assert told("feed lost its position") == []
    # That of the very first start.
    assert len(told("recvq scanned, streaming from")) == 1
