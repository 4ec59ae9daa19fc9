"""A whole dispatcher on the real server: starts, endings, restarts, and outages of the server."""

from __future__ import annotations

import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from pymongo.database import Database

from dispatcher.commit.progress import Progress, Start
from dispatcher.conversations.mailbox import Job, JobResult, Wait
from dispatcher.lease import Lease
from dispatcher.pool.suspects import SOUGHT_FROM_START
from dispatcher.process import ExitReason
from linedesk.setup.collections import create_collections
from linedesk.setup.private_mongod import EmbeddedMongod
from linedesk.store.client import connect
from linedesk.store.collections import DISPATCHER, MEGABYTE
from linedesk.store.documents import LEASES, PROGRESS, SCHEMA, Document, name_of
from linedesk.store.errors import AccessRefused, SetupError, StoreUnavailable
from tests.dispatcher.conftest import Dispatch
from tests.dispatcher.fakes import WAITS, Holder, RecordingWorker, document, numbered
from tests.dispatcher.faults import failing
from tests.dispatcher.leader_terms import took_over
from tests.waiting import eventually

Store = Callable[..., None]
SavedUpTo = Callable[[Database[Document], Any], None]
Told = Callable[[str], list[str]]

FEEDS = ("changestream", "oplog")


@pytest.fixture
def faulty_database(faulty: EmbeddedMongod) -> Iterator[Database[Document]]:
    with connect(faulty.uri, app_name="tests") as client:
        client.drop_database("dispatcher_test")
        create_collections(client.dispatcher_test, capped_bytes=MEGABYTE)
        yield client.dispatcher_test


def progress(database: Database[Document]) -> dict[str, Any]:
    """The saved progress; before there is one, all of it is None."""
    return defaultdict(lambda: None, database[PROGRESS].find_one() or {})


def parking(*names: str) -> Callable[[Job], JobResult]:
    """Parks these permanently."""
    return lambda job: WAITS if name_of(job.document) in names else JobResult.DONE


def _has_decided(worker: RecordingWorker, count: int) -> bool:
    return len(worker.decided) >= count


# Handling.


@pytest.mark.parametrize("feed", FEEDS)
def test_each_key_is_handled_in_order_as_events_come(
    database: Database[Document],
    dispatch: Dispatch,
    store: Store,
    saved_up_to: SavedUpTo,
    feed: str,
) -> None:
    worker = RecordingWorker()
    running = dispatch(database, worker, feed=feed)
    given = numbered(400, keys=20)
    for first in range(0, 400, 10):
        store(database, *given[first : first + 10])
    saved_up_to(database, given[-1]["_id"])
    assert running.end() is ExitReason.STOPPED
    for key in range(20):
        assert worker.by_key[f"U{key}"] == [f"e{n}" for n in range(400) if n % 20 == key]
    assert len(worker.decided) == 400
    assert worker.epochs == [1]


def test_reading_pauses_while_the_worker_has_no_room(
    database: Database[Document], dispatch: Dispatch, store: Store
) -> None:
    worker = RecordingWorker()
    running = dispatch(database, worker)
    store(database, document("before"))
    eventually(lambda: worker.decided == ["before"])
    worker.room = False
    # By the second answer it has received the new one, and reads no more.
    for _ in range(2):
        worker.asked_for_room.clear()
        assert worker.asked_for_room.wait(15)
    store(database, *numbered(5))
    worker.asked_for_room.clear()
    assert worker.asked_for_room.wait(15)
    assert worker.decided == ["before"]
    worker.room = True
    eventually(lambda: len(worker.decided) == 6)
    running.end()


def test_the_number_of_documents_in_hand_is_bounded(
    database: Database[Document], dispatch: Dispatch, store: Store
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
    database: Database[Document], dispatch: Dispatch, store: Store, monkeypatch: pytest.MonkeyPatch
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


def test_a_quiet_feeds_position_is_saved(
    database: Database[Document],
    dispatch: Dispatch,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise it would grow old while the bot gets no messages."""
    running = dispatch(database, RecordingWorker(), quiet_seconds=0.05)
    store(database, document("e0"))
    before = eventually(lambda: progress(database)["token"])

    def moved() -> bool:
        database["calls"].insert_one({})
        return bool(progress(database)["token"] != before)

    eventually(moved)
    running.end()


# Endings.


def test_a_signal_lets_what_runs_end_and_saves_it(
    database: Database[Document], dispatch: Dispatch, store: Store
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
    row = database[LEASES].find_one({"_id": "dispatcher"})
    assert row is not None
    assert row["owner"] is None


def test_a_job_that_does_not_end_is_named_and_handled_again(
    database: Database[Document], dispatch: Dispatch, store: Store, told: Told
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
    assert database[LEASES].find_one({"_id": DISPATCHER})["owner"] is not None
    held.let_go()
    successor = RecordingWorker()
    running = dispatch(database, successor)
    eventually(lambda: successor.decided)
    assert running.end() is ExitReason.STOPPED
    assert successor.decided == ["stuck"]


def test_a_job_that_raises_ends_the_process_and_is_handled_again(
    database: Database[Document], dispatch: Dispatch, store: Store, told: Told
) -> None:
    def act(job: Job) -> JobResult | Wait:
        if name_of(job.document) == "bad":
            raise RuntimeError("a mistake in the worker")
        return JobResult.DONE

    running = dispatch(database, RecordingWorker(act))
    store(database, document("good", "U1"), document("bad", "U2"))
    assert running.end(None) is ExitReason.FAILED
    assert told("thread died thread=worker-")
    successor = RecordingWorker()
    running = dispatch(database, successor)
    eventually(lambda: "bad" in successor.decided)
    running.end()


def test_a_dispatcher_that_mongodb_refuses_ends_and_blames_no_event(
    database: Database[Document], dispatch: Dispatch, store: Store, told: Told
) -> None:
    def act(job: Job) -> JobResult | Wait:
        raise AccessRefused(13)

    for _ in range(4):
        store(database, document("harmless", "U1"))
        assert dispatch(database, RecordingWorker(act)).end(None) is ExitReason.REFUSED
        row = database[PROGRESS].find_one({"_id": "dispatcher"})
        assert row is not None
        assert (row["starts"], row["trying"]) == (0, None)
    assert told("mongodb refuses the dispatcher thread=worker-")
    assert not told("thread died")


def test_one_that_is_refused_before_it_begins_gives_the_lease_back(
    database: Database[Document], dispatch: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits before it ends: another one with a better password need not."""

    def take_over(progress: Progress) -> Start:
        raise AccessRefused(13)

    monkeypatch.setattr(Progress, "take_over", take_over)
    with pytest.raises(AccessRefused):
        dispatch(database, RecordingWorker()).end(None)
    row = database[LEASES].find_one({"_id": "dispatcher"})
    assert row is not None
    assert row["owner"] is None


def test_what_the_work_left_is_written_before_the_lease_goes(
    database: Database[Document], dispatch: Dispatch, told: Told
) -> None:
    owners: list[Any] = []

    class Worker(RecordingWorker):
        def finish(self) -> None:
            row = database[LEASES].find_one({"_id": "dispatcher"})
            assert row is not None
            owners.append(row["owner"])

    running = dispatch(database, Worker())
    eventually(lambda: told("ready"))
    assert running.end() is ExitReason.STOPPED
    assert len(owners) == 1
    assert owners[0] is not None


def test_a_dispatcher_whose_lease_was_taken_ends(
    database: Database[Document], dispatch: Dispatch, told: Told
) -> None:
    running = dispatch(database, RecordingWorker(), renew_seconds=0.05)
    eventually(lambda: told("ready"))
    taken = {"$set": {"owner": "elsewhere/2/2", "epoch": 2}}
    database[LEASES].update_one({"_id": "dispatcher"}, taken)
    assert running.end(None) is ExitReason.REPLACED
    row = database[LEASES].find_one({"_id": "dispatcher"})
    assert row is not None
    assert row["owner"] == "elsewhere/2/2", "the successor's lease is left alone"


def test_events_that_ran_when_the_lease_was_taken_are_no_suspects(
    database: Database[Document], dispatch: Dispatch, store: Store, told: Told
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


def test_a_dispatcher_whose_progress_was_taken_ends(
    database: Database[Document], dispatch: Dispatch, store: Store, told: Told
) -> None:
    running = dispatch(database, RecordingWorker())
    store(database, document("e0"))
    eventually(lambda: progress(database)["after"])
    database[PROGRESS].update_one({}, {"$set": {"epoch": 2}})
    store(database, document("e1"))
    assert running.end(None) is ExitReason.REPLACED
    assert told("replaced by another dispatcher")


def test_a_dispatcher_that_is_replaced_before_it_begins_leaves_nothing(
    database: Database[Document], dispatch: Dispatch, told: Told
) -> None:
    database[PROGRESS].insert_one({"_id": "dispatcher", "schema": SCHEMA, "epoch": 7})
    running = dispatch(database, RecordingWorker())
    assert running.end(None) is ExitReason.REPLACED
    assert told("replaced before it began")
    row = database[LEASES].find_one({"_id": "dispatcher"})
    assert row is not None
    assert row["owner"] is None, "its lease is free at once"


def test_a_lease_lost_while_it_takes_over_is_a_replacement(
    database: Database[Document], dispatch: Dispatch, monkeypatch: pytest.MonkeyPatch
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


def test_a_database_that_was_never_set_up_is_named(
    database: Database[Document], dispatch: Dispatch
) -> None:
    database.drop_collection(LEASES)
    running = dispatch(database, RecordingWorker())
    with pytest.raises(SetupError, match="linedesk init"):
        running.end(None)


# One after the other.


@pytest.mark.parametrize("feed", FEEDS)
def test_a_restart_continues_exactly_after_what_was_finished(
    database: Database[Document], dispatch: Dispatch, store: Store, feed: str
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


def test_many_restarts_lose_and_repeat_nothing(
    database: Database[Document], dispatch: Dispatch, store: Store
) -> None:
    done: list[str] = []
    writing = threading.Event()

    def write() -> None:
        for n in range(300):
            store(database, document(f"e{n}", f"U{n % 7}"))
        writing.set()

    writer = threading.Thread(target=write)
    writer.start()
    for turn in range(100):
        worker = RecordingWorker()
        running = dispatch(database, worker, feed=FEEDS[turn % 2])
        eventually(partial(_has_decided, worker, min(20, 300 - len(done))))
        running.end()
        done += worker.decided
        if writing.is_set() and len(done) >= 300:
            break
    writer.join(30)
    for key in range(7):
        of_key = [name for name in done if int(name[1:]) % 7 == key]
        assert of_key == [f"e{n}" for n in range(300) if n % 7 == key]


def test_a_standby_waits_and_takes_over(
    database: Database[Document], dispatch: Dispatch, store: Store, told: Told
) -> None:
    first, second = RecordingWorker(), RecordingWorker()
    one = dispatch(database, first)
    eventually(lambda: told("ready"))
    other = dispatch(database, second)
    eventually(lambda: told("standby: another dispatcher holds the lease"))
    store(database, *numbered(5))
    eventually(lambda: len(first.decided) == 5)
    assert one.end() is ExitReason.STOPPED
    store(database, *numbered(5, prefix="f"))
    eventually(lambda: len(second.decided) == 5)
    assert other.end() is ExitReason.STOPPED
    assert first.decided == [f"e{n}" for n in range(5)]
    assert second.decided == [f"f{n}" for n in range(5)]
    assert second.epochs > first.epochs
    assert len(told("standby:")) == 1


def test_a_standby_ends_by_a_signal_and_touches_nothing(
    database: Database[Document], dispatch: Dispatch, told: Told
) -> None:
    holder = Lease(database, owner="elsewhere/1/1")
    assert holder.try_acquire()
    before = database[LEASES].find_one({"_id": "dispatcher"})
    worker = RecordingWorker()
    standby = dispatch(database, worker)
    eventually(lambda: told("standby:"))
    assert standby.end() is ExitReason.STOPPED
    assert worker.epochs == []
    assert database[LEASES].find_one({"_id": "dispatcher"}) == before
    assert database[PROGRESS].find_one() is None


# Outages of the server.


@pytest.mark.parametrize("feed", FEEDS)
def test_a_server_that_restarts_under_it_costs_nothing(
    own_mongod: EmbeddedMongod, dispatch: Dispatch, store: Store, feed: str
) -> None:
    with connect(own_mongod.uri, app_name="tests") as client:
        database = client.line_bot
        create_collections(database, capped_bytes=MEGABYTE)
        worker = RecordingWorker()
        running = dispatch(database, worker, uri=own_mongod.uri, feed=feed)
        store(database, *numbered(20, keys=3))
        eventually(lambda: len(worker.decided) == 20)
        own_mongod.kill()
        own_mongod.start()
        eventually(lambda: client.admin.command("ping"))
        given = numbered(20, keys=3, prefix="f")
        store(database, *given)
        eventually(lambda: len(worker.decided) >= 40)
        eventually(lambda: progress(database)["after"] == given[-1]["_id"])
        assert running.end() is ExitReason.STOPPED
    for key in range(3):
        expected = [f"{p}{n}" for p in "ef" for n in range(20) if n % 3 == key]
        assert worker.by_key[f"U{key}"] == expected


def test_a_server_that_comes_late_is_waited_for(
    own_mongod: EmbeddedMongod, dispatch: Dispatch, store: Store, told: Told
) -> None:
    with connect(own_mongod.uri, app_name="tests") as client:
        database = client.line_bot
        create_collections(database, capped_bytes=MEGABYTE)
        own_mongod.kill()
        impatient = {"uri": own_mongod.uri, "server_selection_seconds": 0.3}
        gives_up = dispatch(database, RecordingWorker(), **impatient)
        worker = RecordingWorker()
        running = dispatch(database, worker, **impatient)
        eventually(lambda: told("not taken over, trying again"))
        assert gives_up.end() is ExitReason.STOPPED
        own_mongod.start()
        eventually(lambda: client.admin.command("ping"))
        store(database, document("e0"))
        eventually(lambda: worker.decided == ["e0"])
        assert running.end() is ExitReason.STOPPED


def test_a_save_that_fails_keeps_no_key_waiting(
    faulty: EmbeddedMongod,
    faulty_database: Database[Document],
    dispatch: Dispatch,
    store: Store,
    told: Told,
) -> None:
    """Without other work, the key that waits for it is the only one."""
    # So many starts have died that each decision is saved.
    took_over(faulty_database, epoch=0)[0].note_starts(SOUGHT_FROM_START - 1)
    store(faulty_database, *numbered(3))
    holds = Holder("e0")
    worker = RecordingWorker(holds)
    running = dispatch(faulty_database, worker, uri=faulty.uri)
    holds.wait_until_held("e0")
    client = faulty_database.client
    with failing(
        client, ["update"], times=3, errorCode=50, namespace=f"{faulty_database.name}.progress"
    ):
        holds.let_go()
        eventually(lambda: worker.decided == ["e0", "e1", "e2"], seconds=10)
    assert told("writes not confirmed, trying again")
    running.end()


@pytest.mark.parametrize("feed", FEEDS)
def test_a_feed_that_fails_for_a_while_continues_at_its_position(
    faulty: EmbeddedMongod,
    faulty_database: Database[Document],
    dispatch: Dispatch,
    store: Store,
    told: Told,
    feed: str,
) -> None:
    worker = RecordingWorker()
    running = dispatch(faulty_database, worker, uri=faulty.uri, feed=feed)
    store(faulty_database, *numbered(5))
    eventually(lambda: len(worker.decided) == 5)
    with failing(faulty_database.client, ["getMore"], errorCode=237, appName="feed"):
        store(faulty_database, *numbered(5, prefix="f"))
        eventually(lambda: told("feed unavailable, trying again"))
    store(faulty_database, *numbered(5, prefix="g"))
    eventually(lambda: len(worker.decided) >= 15)
    assert running.end() is ExitReason.STOPPED
    assert worker.decided == [f"{p}{n}" for p in "efg" for n in range(5)]


def test_a_feed_that_loses_its_history_while_reading_repeats_nothing(
    faulty: EmbeddedMongod,
    faulty_database: Database[Document],
    dispatch: Dispatch,
    store: Store,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Holder("e3")
    worker = RecordingWorker(held)
    running = dispatch(faulty_database, worker, uri=faulty.uri, quiet_seconds=0.05)
    store(faulty_database, *numbered(10, keys=10))
    eventually(lambda: len(worker.decided) == 9)
    with failing(faulty_database.client, ["getMore"], times=1, errorCode=286, appName="feed"):
        eventually(lambda: told("feed lost its position"))
    store(faulty_database, *numbered(10, keys=10, prefix="f"))
    # All but the held one and the one behind it.
    eventually(lambda: len(worker.decided) == 18)
    held.let_go()
    eventually(lambda: len(worker.decided) == 20)
    eventually(lambda: progress(faulty_database)["token"])
    running.end()
    assert sorted(worker.decided) == sorted(f"{p}{n}" for p in "ef" for n in range(10))
