"""A whole dispatcher on the real server: starts, endings, restarts, and outages of the server."""

import signal
import threading
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from dispatcher.commit.progress import Progress, Start
from dispatcher.conversations.mailbox import Job, JobResult, Wait
from dispatcher.process import ExitReason
from linedesk.store.collections import DISPATCHER
from linedesk.store.documents import LEASES, PROGRESS, Document, name_of
from linedesk.store.errors import AccessRefused, SetupError, StoreUnavailable
from tests.dispatcher.conftest import FEEDS, Dispatch, Store, Told
from tests.dispatcher.fakes import WAITS, Holder, RecordingWorker, document, numbered
from tests.dispatcher.leader_terms import took_over
from tests.rows import Db
from tests.waiting import eventually


def progress(database: Db) -> dict[str, Any]:
    """The saved progress; before there is one, all of it is None."""
    return defaultdict(lambda: None, database[PROGRESS].find_one() or {})


def lease_of(database: Db) -> dict[str, Any]:
    return database[LEASES].find_one({"_id": DISPATCHER}) or {}


def parking(*names: str) -> Callable[[Job], JobResult]:
    """Parks these permanently."""
    return lambda job: WAITS if name_of(job.document) in names else JobResult.DONE


def test_the_number_of_documents_in_hand_is_bounded(
    database: Db, dispatch: Dispatch, store: Store
) -> None:
    held = Holder("e0")
    worker = RecordingWorker(held)
    running = dispatch(database, worker, documents=8)
    store(database, *numbered(50, keys=50))
    held.wait_until_held("e0")
    eventually(lambda: len(worker.decided) == 7)
    store(database, document("more", "other"))
    # A step of the feed later it still has taken none of them.
    assert running.dispatcher.pool.wait_for_room(0.2) is False
    assert len(worker.decided) == 7
    held.let_go()
    eventually(lambda: len(worker.decided) == 51)
    running.end()


def test_the_bytes_of_documents_in_hand_are_bounded(
    database: Db, dispatch: Dispatch, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatcher.pool.mailboxes.MOST_BYTES", 20_000)
    first, second = Holder("e0"), Holder("e1")
    worker = RecordingWorker(lambda job: first(job) and second(job))
    running = dispatch(database, worker)
    store(database, *({**one, "padding": "x" * 15_000} for one in numbered(2, keys=2)))
    first.wait_until_held("e0")
    second.wait_until_held("e1")
    store(database, document("more", "other"))
    assert running.dispatcher.pool.wait_for_room(0.2) is False
    assert worker.decided == []
    first.let_go()
    eventually(lambda: sorted(worker.decided) == ["e0", "more"])
    second.let_go()
    # A single document always has room.
    store(database, {**document("huge"), "padding": "x" * 50_000}, document("last"))
    eventually(lambda: worker.decided[-2:] == ["huge", "last"])
    running.end()


def test_a_signal_lets_what_runs_end_and_saves_it(
    database: Db, dispatch: Dispatch, store: Store
) -> None:
    held = Holder("e0")
    worker = RecordingWorker(held)
    running = dispatch(database, worker)
    given = [document("e0", "U1"), document("behind", "U1")]
    store(database, *given)
    held.wait_until_held("e0")
    running.inbox.put(signal.SIGTERM)
    assert worker.stopped.wait(15), "the worker is told before the drain"
    held.let_go()
    assert running.end(None) is ExitReason.STOPPED
    assert worker.decided == ["e0"]
    assert progress(database)["after"] == given[0]["_id"]
    assert lease_of(database)["owner"] is None


def test_a_job_that_does_not_end_is_named_and_handled_again(
    database: Db, dispatch: Dispatch, store: Store, told: Told
) -> None:
    held = Holder("stuck")
    running = dispatch(database, RecordingWorker(held), drain_seconds=0.1)
    given = [document("fine", "U1"), document("stuck", "U2"), document("also fine", "U3")]
    store(database, *given)
    held.wait_until_held("stuck")
    eventually(lambda: progress(database)["finished"] == [given[2]["_id"]])
    assert running.end() is ExitReason.STUCK
    assert any("event_id=stuck" in line for line in told("did not end within the drain"))
    # A thread that still runs may be calling LINE, so no standby may begin beside it.
    assert lease_of(database)["owner"] is not None
    held.let_go()
    successor = RecordingWorker()
    running = dispatch(database, successor)
    eventually(lambda: successor.decided)
    assert running.end() is ExitReason.STOPPED
    assert successor.decided == ["stuck"]


def test_a_dispatcher_that_mongodb_refuses_ends_and_blames_no_event(
    database: Db, dispatch: Dispatch, store: Store, told: Told
) -> None:
    def act(job: Job) -> JobResult | Wait:
        raise AccessRefused(13)

    for _ in range(4):
        store(database, document("harmless", "U1"))
        assert dispatch(database, RecordingWorker(act)).end(None) is ExitReason.REFUSED
        row = progress(database)
        assert (row["starts"], row["trying"]) == (0, None)
    assert told("mongodb refuses the dispatcher thread=worker-")
    assert not told("thread died")


def test_one_that_is_refused_before_it_begins_gives_the_lease_back(
    database: Db, dispatch: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits before it ends: another one with a better password need not."""

    def take_over(progress: Progress) -> Start:
        raise AccessRefused(13)

    monkeypatch.setattr(Progress, "take_over", take_over)
    with pytest.raises(AccessRefused):
        dispatch(database, RecordingWorker()).end(None)
    assert lease_of(database)["owner"] is None


def test_what_the_work_left_is_written_before_the_lease_goes(
    database: Db, dispatch: Dispatch, told: Told
) -> None:
    owners: list[Any] = []

    class Worker(RecordingWorker):
        def finish(self) -> None:
            owners.append(lease_of(database)["owner"])

    running = dispatch(database, Worker())
    eventually(lambda: told("ready"))
    assert running.end() is ExitReason.STOPPED
    assert len(owners) == 1
    assert owners[0] is not None


def test_events_that_ran_when_the_lease_was_taken_are_no_suspects(
    database: Db, dispatch: Dispatch, store: Store, told: Told
) -> None:
    store(database, document("slow"))
    ends = threading.Event()

    def act(job: Job) -> JobResult | Wait:
        assert ends.wait(30)
        return WAITS

    for n in range(1, 5):
        ends.clear()
        running = dispatch(database, RecordingWorker(act), renew_seconds=0.05)
        eventually(lambda n=n: (database[PROGRESS].find_one() or {}).get("starts") == n)  # type: ignore[misc]
        database[LEASES].update_one({"_id": "epochs"}, {"$inc": {"epoch": 1}})
        epoch = (database[LEASES].find_one({"_id": "epochs"}) or {})["epoch"]
        took_over(database, epoch=epoch)
        taken = {"$set": {"owner": None, "epoch": epoch, "until": datetime.now(UTC)}}
        database[LEASES].update_one({"_id": "dispatcher"}, taken)
        eventually(lambda n=n: len(told("replaced by another dispatcher")) == n)  # type: ignore[misc]
        ends.set()
        assert running.end(None) is ExitReason.REPLACED
    assert not told("the process keeps dying")


def test_a_lease_lost_while_it_takes_over_is_a_replacement(
    database: Db, dispatch: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outboxes cannot be loaded just then, so it is trying again and again."""
    worker = RecordingWorker()

    def unavailable(epoch: int) -> None:
        taken = {"$set": {"owner": "elsewhere/2/2", "epoch": epoch + 1}}
        database[LEASES].update_one({"_id": "dispatcher"}, taken)
        raise StoreUnavailable("away")

    monkeypatch.setattr(worker, "take_over", unavailable)
    running = dispatch(database, worker, renew_seconds=0.05)
    assert running.end(None) is ExitReason.REPLACED


def test_a_database_that_was_never_set_up_is_named(database: Db, dispatch: Dispatch) -> None:
    database.drop_collection(LEASES)
    running = dispatch(database, RecordingWorker())
    with pytest.raises(SetupError, match="linedesk init"):
        running.end(None)


@pytest.mark.parametrize("feed", FEEDS)
def test_a_restart_continues_exactly_after_what_was_finished(
    database: Db, dispatch: Dispatch, store: Store, feed: str
) -> None:
    """Stopped during a stream, with some unfinished documents and many finished beyond them."""
    everything: list[str] = []
    unfinished = {"e5", "e60", "e61", "e150"}

    def store_each(documents: list[Document]) -> None:
        for one in documents:
            store(database, one)

    given = [document(f"e{n}", f"U{n % 9}") for n in range(200)]
    first = RecordingWorker(parking(*unfinished))
    running = dispatch(database, first, feed=feed)
    store_each(given[:100])
    eventually(lambda: len(first.decided) > 20)
    storing = threading.Thread(target=store_each, args=(given[100:],))
    storing.start()
    assert running.end() is ExitReason.STOPPED
    everything += first.decided
    storing.join(30)
    second = RecordingWorker()
    running = dispatch(database, second, feed=feed)
    eventually(lambda: len(first.decided) + len(second.decided) >= 200)
    store(database, document("last", "U0"))
    eventually(lambda: "last" in second.decided)
    running.end()
    everything += second.decided
    assert len(everything) == len(set(everything)) == 201
    for key in range(9):
        told = first.by_key[f"U{key}"] + second.by_key[f"U{key}"]
        expected = [f"e{n}" for n in range(200) if n % 9 == key]
        assert told == expected + ["last"] * (key == 0)
    assert second.epochs > first.epochs
