"""Every road to lost history, under a whole dispatcher and with writers that insert throughout.

On each of them every insert that was confirmed is decided, once and in order. The log reports it
with numbers, and no failure causes a hot loop.
"""

import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dispatcher.feed.rescan import Rescan
from dispatcher.lease import Lease
from dispatcher.pool.pool import Pool
from dispatcher.process import ExitReason
from linedesk.setup.collections import create_collections
from linedesk.store.collections import MEGABYTE, check_recvq
from linedesk.store.documents import LEASES, PROGRESS, RECVQ
from linedesk.store.errors import Replaced, StoreUnavailable
from tests.dispatcher.conftest import FEEDS, Dispatch, Store, Told
from tests.dispatcher.fakes import Holder, RecordingWorker, document, numbered
from tests.dispatcher.lost_history import has_position, some, wait_until_handled_once, writing
from tests.rows import Db
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def _soon_saved(short_limits: dict[str, Any]) -> None:
    """A quiet feed's position is saved soon, so that there is one to lose."""
    short_limits["quiet_seconds"] = 0.05


def drop(database: Db) -> None:
    database.drop_collection(RECVQ)


def rename(database: Db) -> None:
    database[RECVQ].rename("elsewhere")


def convert(database: Db) -> None:
    database.command("convertToCapped", RECVQ, size=2 * MEGABYTE)


def drop_database(database: Db) -> None:
    database.client.drop_database(database.name)


@pytest.mark.parametrize(
    ("take_away", "how"),
    [
        (drop, "recvq was dropped"),
        (rename, "recvq was renamed to"),
        (convert, "recvq was replaced"),
        (drop_database, "recvq was dropped"),
    ],
)
@pytest.mark.parametrize(
    ("feed", "careful"),
    [("changestream", True), ("oplog", False)],
    ids=["changestream, careful writers", "oplog, careless writers"],
)
def test_a_recvq_that_is_taken_away_ends_it_and_after_init_nothing_is_lost(
    database: Db,
    dispatch: Dispatch,
    told: Told,
    feed: str,
    take_away: Callable[[Db], None],
    how: str,
    careful: bool,
) -> None:
    create_collections(database, capped_bytes=MEGABYTE)
    worker = RecordingWorker()
    running = dispatch(database, worker, feed=feed)
    with writing(database, careful=careful) as writers:
        some(writers)
        eventually(lambda: has_position(database))
        take_away(database)
        assert running.end(None) is ExitReason.WRONG_RECVQ
        assert len(told(f'how="{how}')) == 1
        assert len(told("its documents are finished first")) == 1
        assert "run `linedesk init`" in told("recvq cannot be read, stopping")[0]
        if not careful:
            some(writers)
        # While they insert, as `linedesk init` may run beside front desks.
        create_collections(database, capped_bytes=MEGABYTE)
        running = dispatch(database, worker, feed=feed)
        some(writers)
    wait_until_handled_once(worker, writers)
    assert worker.epochs == [1, 2]
    check_recvq(database)
    running.end()


@pytest.mark.parametrize("feed", FEEDS)
@pytest.mark.parametrize("end", ["finished", "stopped"])
def test_unfinished_documents_at_a_drop_are_handled_before_it_ends(
    database: Db,
    dispatch: Dispatch,
    store: Store,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
    feed: str,
    end: str,
) -> None:
    """Until they are finished the old token stays: after a stop the oplog brings them again."""
    create_collections(database, capped_bytes=MEGABYTE)
    in_hand: list[int] = []
    looks: list[Pool] = []
    standing, forget = Pool.standing, Pool.forget_token

    def note_and_look(self: Pool) -> tuple[int, Any]:
        looks.append(self)
        return standing(self)

    def count_and_forget(self: Pool) -> None:
        in_hand.append(standing(self)[0])
        forget(self)

    monkeypatch.setattr(Pool, "standing", note_and_look)
    monkeypatch.setattr(Pool, "forget_token", count_and_forget)
    held = Holder("e3")
    worker = RecordingWorker(held)
    running = dispatch(database, worker, feed=feed)
    store(database, *numbered(3, keys=3))
    eventually(lambda: len(worker.decided) == 3)
    eventually(lambda: has_position(database))
    # e3 is with a thread, e4 and e5 wait behind it.
    store(database, *(document(f"e{n}", "U") for n in (3, 4, 5)))
    held.wait_until_held("e3")
    database.drop_collection(RECVQ)
    eventually(lambda: told('how="recvq was dropped"'))
    # As many looks as it takes at whether they are finished.
    before = len(looks)
    eventually(lambda: len(looks) > before + 5)
    assert has_position(database)
    if end == "stopped":
        running.inbox.put(signal.SIGTERM)
        held.let_go()
        assert running.end(None) is ExitReason.STOPPED
        running = dispatch(database, worker, feed=feed)
    held.let_go()
    assert running.end(None) is ExitReason.WRONG_RECVQ
    assert worker.decided == [*worker.decided[:3], "e3", "e4", "e5"]
    assert not has_position(database)
    assert RECVQ not in database.list_collection_names()
    create_collections(database, capped_bytes=MEGABYTE)
    running = dispatch(database, worker, feed=feed)
    store(database, document("new"))
    eventually(lambda: "new" in worker.decided)
    running.end()
    assert worker.decided == [*worker.decided[:3], "e3", "e4", "e5", "new"]
    assert set(in_hand) == {0}


@pytest.mark.parametrize("feed", FEEDS)
def test_a_recvq_dropped_during_a_downtime_is_read_to_its_end(
    database: Db, dispatch: Dispatch, store: Store, feed: str
) -> None:
    create_collections(database, capped_bytes=MEGABYTE)
    worker = RecordingWorker()
    running = dispatch(database, worker, feed=feed)
    store(database, document("e0"))
    eventually(lambda: has_position(database) and worker.decided == ["e0"])
    running.end()
    store(database, document("unread"))
    database.drop_collection(RECVQ)
    # A careless insert makes it again, uncapped.
    store(database, document("after the drop"), document("twice"))
    assert dispatch(database, worker, feed=feed).end(None) is ExitReason.WRONG_RECVQ
    assert worker.decided == ["e0", "unread"]
    create_collections(database, capped_bytes=MEGABYTE)
    running = dispatch(database, worker, feed=feed)
    store(database, document("last"))
    eventually(lambda: "last" in worker.decided)
    running.end()
    assert worker.decided == ["e0", "unread", "after the drop", "twice", "last"]


@pytest.mark.parametrize("feed", FEEDS)
def test_a_recvq_that_is_wrong_without_a_word_of_the_feed_ends_it(
    database: Db, dispatch: Dispatch, store: Store, monkeypatch: pytest.MonkeyPatch, feed: str
) -> None:
    """It came back uncapped between the check and the scan, so that no feed shows the drop."""
    create_collections(database, capped_bytes=MEGABYTE)
    scan = Rescan.scan
    dropped: list[bool] = []

    def drop_and_scan(self: Rescan, *arguments: Any, **options: Any) -> Any:
        if not dropped:
            dropped.append(True)
            database.drop_collection(RECVQ)
            store(database, document("uncapped"))
        return scan(self, *arguments, **options)

    monkeypatch.setattr(Rescan, "scan", drop_and_scan)
    worker = RecordingWorker()
    assert dispatch(database, worker, feed=feed).end(None) is ExitReason.WRONG_RECVQ
    create_collections(database, capped_bytes=MEGABYTE)
    running = dispatch(database, worker, feed=feed)
    store(database, document("new"))
    eventually(lambda: "new" in worker.decided)
    running.end()
    assert worker.decided == ["uncapped", "new"]


def test_only_a_fresh_lease_puts_its_row_back(
    database: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen dispatcher that comes back after a drop must not make itself the holder."""
    lease = Lease(database, owner="elsewhere/1/0")
    assert lease.try_acquire()
    drop_database(database)
    lease.renew()
    row = database[LEASES].find_one({"_id": "dispatcher"})
    assert row is not None
    assert (row["owner"], row["epoch"]) == ("elsewhere/1/0", 1)
    drop_database(database)
    monkeypatch.setattr(lease, "is_fresh", lambda: False)
    with pytest.raises(StoreUnavailable, match="linedesk init"):
        lease.renew()
    assert database[LEASES].count_documents({}) == 0
    create_collections(database, capped_bytes=MEGABYTE)
    with pytest.raises(Replaced):
        lease.renew()


@pytest.mark.parametrize("gone", [["dispatcher"], ["epochs"], ["dispatcher", "epochs"]])
def test_a_standby_waits_while_the_rows_of_the_lease_are_gone(
    database: Db, gone: list[str]
) -> None:
    """A supervisor does not restart a process that ends with a mistake in its set-up."""
    held = {"owner": "elsewhere/1/0", "epoch": 7, "until": datetime.now(UTC) + timedelta(hours=1)}
    database[LEASES].update_one({"_id": "dispatcher"}, {"$set": held})
    database[LEASES].update_one({"_id": "epochs"}, {"$set": {"epoch": 7}})
    standby = Lease(database, owner="elsewhere/2/0")
    assert not standby.try_acquire()
    past = {"$set": {"until": datetime.now(UTC) - timedelta(hours=1)}}
    database[LEASES].update_one({"_id": "dispatcher"}, past)
    database[LEASES].delete_many({"_id": {"$in": gone}})
    with pytest.raises(StoreUnavailable, match="linedesk init"):
        standby.try_acquire()
    create_collections(database, capped_bytes=MEGABYTE)
    assert standby.try_acquire()


def test_a_document_that_nothing_can_be_made_of_is_passed_over(
    database: Db, dispatch: Dispatch, store: Store, told: Told
) -> None:
    """As typed by hand in a shell: its `_id` or its key cannot be used for a look-up."""
    worker = RecordingWorker()
    running = dispatch(database, worker)
    odd = [{**document("odd"), "_id": {"a": 1}}, {**document("odd too"), "key": ["U1"]}]
    store(database, document("e0"), *odd, document("e1"))
    eventually(lambda: worker.decided == ["e0", "e1"])
    assert len(told("not a front desk document, skipped")) == 2
    running.end()
    store(database, document("e2"))
    database[PROGRESS].update_one({}, {"$set": {"token": None}})
    running = dispatch(database, worker)
    eventually(lambda: worker.decided == ["e0", "e1", "e2"])
    running.end()
