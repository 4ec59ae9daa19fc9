"""Documents that wait long leave the window, keep their order, and come back: real groups."""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest

from dispatcher.commit.committer import Change, Committer
from dispatcher.commit.progress import HeldStore
from dispatcher.commit.tracker import ProgressSnapshot
from dispatcher.conversations.mailbox import Job, JobResult, Wait
from linedesk.store.control import NO_PAUSES, Pause, Pauses, Scope
from linedesk.store.documents import CONVERSATIONS, HELD, PROGRESS, RECVQ, Document, name_of
from linedesk.store.errors import Replaced, StoreUnavailable
from tests.dispatcher.conftest import Begin, Dispatch, Store
from tests.dispatcher.fakes import WAITS, Holder, RecordingWorker, document, figures_of, numbered
from tests.dispatcher.faults import failing
from tests.dispatcher.leader_terms import Gates, Process
from tests.rows import Db
from tests.waiting import eventually

SavedUpTo = Callable[[Db, Any], None]
SOON = 0.3
"""`held_after_seconds` where a test waits for it."""


@pytest.fixture(autouse=True)
def _quick_saves(short_limits: dict[str, Any]) -> None:
    short_limits["pace_seconds"] = 0.005


def held(database: Db, **condition: Any) -> list[Document]:
    return list(database[HELD].find(condition).sort("n", 1))


def progress(database: Db) -> Document:
    return database[PROGRESS].find_one() or {}


def test_a_long_waiting_document_is_held_and_progress_continues(
    database: Db, dispatch: Dispatch, store: Store, saved_up_to: SavedUpTo
) -> None:
    gates = Gates("U1")
    worker = RecordingWorker(gates)
    running = dispatch(database, worker, held_after_seconds=SOON)
    stuck = [document(f"s{n}", "U1") for n in range(5)]
    store(database, stuck[0], document("other", "U2"), *stuck[1:])
    eventually(lambda: len(held(database)) == 5)
    saved_up_to(database, stuck[-1]["_id"])
    assert progress(database)["finished"] == []
    rows = held(database)
    kept = {row["_id"]: row for row in database[RECVQ].find()}
    assert [row["document"] for row in rows] == [kept[one["_id"]] for one in stuck]
    assert [row["n"] for row in rows] == [0, 1, 2, 3, 4]
    assert {(row["channel"], row["key"], row["why"]["code"]) for row in rows} == {
        ("main", "U1", "deferred")
    }
    assert figures_of(running.dispatcher.pool, "held_keys", "held_documents") == (1, 5)
    assert worker.decided == ["other"]
    # Later documents queue up behind it.
    store(database, document("later", "U1"))
    eventually(lambda: running.dispatcher.pool.view.in_hand()["read_documents"] == 7)
    gates.release()
    eventually(lambda: len(worker.by_key["U1"]) == 6)
    assert worker.by_key["U1"] == [*(f"s{n}" for n in range(5)), "later"]
    eventually(lambda: held(database) == [])
    assert figures_of(running.dispatcher.pool, "held_keys", "held_documents") == (0, 0)
    running.end()


def test_a_successor_decides_what_is_held_first(
    database: Db, dispatch: Dispatch, store: Store
) -> None:
    running = dispatch(database, RecordingWorker(Gates("U1")), held_after_seconds=SOON)
    store(database, *(document(f"s{n}", "U1") for n in range(4)))
    eventually(lambda: len(held(database)) == 4)
    running.end()
    store(database, document("new", "U1"), document("other", "U2"))
    worker = RecordingWorker()
    running = dispatch(database, worker)
    eventually(lambda: len(worker.decided) == 6)
    assert worker.by_key["U1"] == ["s0", "s1", "s2", "s3", "new"]
    assert [worker.again[f"s{n}"] for n in range(4)] == [True] * 4
    eventually(lambda: held(database) == [])
    running.end()


def test_once_held_a_document_needs_recvq_no_more(
    database: Db, dispatch: Dispatch, store: Store
) -> None:
    gates = Gates("U1")
    worker = RecordingWorker(gates)
    running = dispatch(database, worker, held_after_seconds=SOON)
    store(database, *(document(f"s{n}", "U1") for n in range(150)))
    eventually(lambda: len(held(database)) == 150)
    # One megabyte is the size of the collection.
    padding = [{**document(f"p{n}", "U2"), "padding": "x" * 10_000} for n in range(150)]
    for first in range(0, 150, 30):
        store(database, *padding[first : first + 30])
    eventually(lambda: database[RECVQ].find_one({"key": "U1"}) is None)
    gates.release()
    eventually(lambda: len(worker.by_key["U1"]) == 150)
    assert worker.by_key["U1"] == [f"s{n}" for n in range(150)]
    running.end()


def test_one_stuck_key_neither_fills_the_window_nor_stops_anybody(
    database: Db, dispatch: Dispatch, store: Store
) -> None:
    """At a tenth of the numbers: 3,000 documents of a key and 200 others in a window of 1,000."""
    gates = Gates("stuck")
    worker = RecordingWorker(gates)
    running = dispatch(database, worker, documents=1_000, held_after_seconds=60.0)
    for n in range(20):
        store(database, *(document(f"s{n * 150 + m}", "stuck") for m in range(150)))
        store(database, *(document(f"o{n * 10 + m}", f"U{m}") for m in range(10)))
    # Its time of a minute is far from over.
    eventually(lambda: len(worker.decided) == 200)
    assert "stuck" not in worker.by_key
    assert 1_500 < database[HELD].count_documents({}) <= 3_000
    assert len(progress(database)["finished"]) < 1_000
    gates.release()
    eventually(lambda: len(worker.decided) == 3_200, seconds=30)
    assert worker.by_key["stuck"] == [f"s{n}" for n in range(3_000)]
    eventually(lambda: held(database) == [])
    running.end()


def test_one_stuck_key_with_huge_documents_neither_fills_the_window_nor_stops_anybody(
    database: Db, dispatch: Dispatch, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the key have 720 kB, in a window of 200 kB."""
    monkeypatch.setattr("dispatcher.pool.mailboxes.MOST_BYTES", 200_000)
    gates = Gates("stuck")
    worker = RecordingWorker(gates)
    running = dispatch(database, worker, held_after_seconds=60.0)
    for n in range(8):
        many = [document(f"s{n * 30 + m}", "stuck") for m in range(30)]
        store(database, *({**one, "padding": "x" * 3_000} for one in many))
        store(database, *(document(f"o{n * 10 + m}", f"U{m}") for m in range(10)))
    eventually(lambda: len(worker.decided) == 80)
    assert "stuck" not in worker.by_key
    assert 100 < database[HELD].count_documents({}) <= 240
    gates.release()
    eventually(lambda: len(worker.decided) == 320, seconds=30)
    assert worker.by_key["stuck"] == [f"s{n}" for n in range(240)]
    eventually(lambda: held(database) == [])
    running.end()


# Groups are committed by the test: one process at a time on the same database, killed at any point.


UNKNOWN = {"writeConcernError": {"code": 64, "errmsg": "waiting timed out"}}


@pytest.mark.parametrize("reached", [True, False], ids=["committed", "aborted"])
def test_a_transaction_of_unknown_outcome_is_settled_before_its_key_decides_on(
    database: Db, begin: Begin, reached: bool
) -> None:
    gates = Gates("U0")
    worker = RecordingWorker(gates)
    one = begin(database, worker.decide)
    one.put(*numbered(3))
    eventually(lambda: gates.deferred)
    fault = UNKNOWN if reached else {"closeConnection": True}
    # The driver itself asks twice.
    with failing(database.client, ["commitTransaction"], times=2, **fault):
        assert one.hold() is False
    # The first one may be decided, since it was in memory before; no other.
    gates.release()
    one.put(document("other", "U9"), first=3)
    eventually(lambda: "other" in worker.decided)
    assert worker.by_key["U0"] == []
    assert one.save()
    eventually(lambda: len(worker.by_key["U0"]) == 3)
    assert one.save()
    assert worker.by_key["U0"] == ["e0", "e1", "e2"]
    assert held(database) == []


def test_a_document_decided_while_it_is_being_held_leaves_nothing_behind(
    database: Db, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Holder("e0")
    worker = RecordingWorker(slow)
    one = begin(database, worker.decide)
    one.put(*numbered(3))
    slow.wait_until_held("e0")
    make = one.progress.changes

    def decided_meanwhile(snapshot: ProgressSnapshot | None) -> list[Change]:
        if snapshot is not None and snapshot.rows:
            slow.let_go()
            eventually(lambda: worker.decided == ["e0"])
        return make(snapshot)

    monkeypatch.setattr(one.progress, "changes", decided_meanwhile)
    assert one.hold()
    eventually(lambda: len(worker.decided) == 3)
    assert one.save()
    assert (worker.decided, held(database)) == (["e0", "e1", "e2"], [])
    assert figures_of(one.pool, "held_keys", "held_documents") == (0, 0)


@pytest.mark.parametrize("before", [True, False])
def test_documents_decided_together_while_they_are_being_held_leave_nothing_behind(
    database: Db, begin: Begin, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """It is decided before the transaction of the move, or after it."""
    slow, together = Holder("e0"), list[list[str]]()

    def decide(job: Job) -> JobResult | Wait:
        following = [name_of(one) for one in job.following().documents]
        count = job.take_along(2)
        slow(job)
        together.append([name_of(job.document), *following[:count]])
        return JobResult.DONE

    one = begin(database, decide)
    one.put(*numbered(6))
    slow.wait_until_held("e0")
    make = one.progress.changes

    def decided_meanwhile(snapshot: ProgressSnapshot | None) -> list[Change]:
        if snapshot is not None and snapshot.rows and before:
            slow.let_go()
            eventually(lambda: one.pool.view.in_hand()["finished_documents"] == 3)
        return make(snapshot)

    monkeypatch.setattr(one.progress, "changes", decided_meanwhile)
    assert one.hold()
    slow.let_go()
    eventually(lambda: one.save() and one.pool.view.in_hand()["finished_documents"] == 6)
    assert together[0] == ["e0", "e1", "e2"]
    assert [name for names in together for name in names] == [f"e{n}" for n in range(6)]
    eventually(lambda: one.save() and not held(database))
    assert figures_of(one.pool, "held_keys", "held_documents") == (0, 0)


def test_a_predecessor_can_neither_hold_nor_take_out(database: Db, begin: Begin) -> None:
    gates = Gates("U0", "U1")
    first = begin(database, RecordingWorker(gates).decide)
    first.put(document("a", "U0"))
    first.hold_until(1)
    # It decides `a`, and is frozen before it has said so; and another one waits.
    gates.release()
    eventually(lambda: figures_of(first.pool, "held_keys", "held_documents") == (0, 0))
    gates.closed.add("U1")
    first.put(document("b", "U1"), first=1)
    eventually(lambda: gates.deferred)
    begin(database, Gates("U0"), epoch=2)
    before = held(database), progress(database)
    with pytest.raises(Replaced):
        first.hold()
    assert (held(database), progress(database)) == before
    assert [name_of(row["document"]) for row in before[0]] == ["a"]


def test_a_transaction_that_a_killed_process_left_open_blocks_no_other(
    database: Db, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MongoDB would keep it for a minute."""
    gates = Gates("U0")
    first = begin(database, gates)
    first.put(document("a", "U0"))
    eventually(lambda: gates.deferred)
    is_open, wakes_up = threading.Event(), threading.Event()

    send = first.committer._send

    def stand_still(changes: Sequence[Change]) -> None:
        send(changes)
        is_open.set()
        assert wakes_up.wait(15)

    monkeypatch.setattr(first.committer, "_send", stand_still)
    with ThreadPoolExecutor(2) as threads:
        killed = threads.submit(first.hold)
        assert is_open.wait(15)
        successor = threads.submit(begin, database, Gates("U0"), epoch=2)
        in_time = wait([successor], 3).done
        wakes_up.set()
        # It is too late.
        assert killed.result(15) is False
    assert in_time
    assert (held(database), progress(database)["after"]) == ([], None)


def test_a_full_scan_hands_out_nothing_that_is_held(database: Db, begin: Begin) -> None:
    """With `after` gone, and the ring long past it, `held` itself is read."""
    first = begin(database, Gates("U0"))
    documents = numbered(5)
    first.put(*documents)
    first.hold_until(5)
    first.kill()
    database[PROGRESS].delete_one({})
    gates = Gates("U0")
    worker = RecordingWorker(gates)
    second = begin(database, worker.decide, epoch=2)
    met = [*documents, document("new", "U0")]
    second.pool.begin_scan()
    assert [second.pool.put(one, None, again=True) for one in met] == [False] * 5 + [True]
    second.pool.end_scan()
    gates.release()
    eventually(lambda: len(worker.decided) == 6)
    assert worker.decided == ["e0", "e1", "e2", "e3", "e4", "new"]
    # A document that left it a moment ago is not in it either.
    assert second.save()
    assert held(database) == []
    second.pool.begin_scan()
    assert [second.pool.put(one, None, again=True) for one in met] == [False] * 6
    second.pool.end_scan()


def test_a_number_is_never_given_twice(database: Db, begin: Begin) -> None:
    """Otherwise a document could come before an older one of its key."""
    first = begin(database, Gates("U0"))
    first.put(*numbered(3))
    first.hold_until(3)
    first.kill()
    database[PROGRESS].delete_one({})
    second = begin(database, Gates("U0"), epoch=2)
    second.put(document("later", "U0"))
    second.hold_until(4)
    assert [(row["n"], name_of(row["document"])) for row in held(database)] == [
        (0, "e0"),
        (1, "e1"),
        (2, "e2"),
        (3, "later"),
    ]


def test_a_line_waits_without_a_thread_while_its_documents_cannot_be_loaded(
    database: Db, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"_id": one["_id"], "document": one} for one in numbered(2)]
    common = {"channel": "main", "key": "U0"}
    database[HELD].insert_many([{**row, "n": n, **common} for n, row in enumerate(rows)])
    worker = RecordingWorker()
    with monkeypatch.context() as patch:

        def unavailable(*_: Any, **__: Any) -> Any:
            raise StoreUnavailable("away")

        patch.setattr(HeldStore, "slice", unavailable)
        one = begin(database, worker.decide, threads=2)
        eventually(lambda: one.laters)
        one.put(document("other", "U9"))
        eventually(lambda: worker.decided == ["other"])
    one.laters.pop()()
    eventually(lambda: worker.by_key["U0"] == ["e0", "e1"])


class Conversations:
    """The records of each key, of which only the last one's names are remembered."""

    def __init__(self, database: Db) -> None:
        self._rows = database[CONVERSATIONS]

    def record(self, committer: Committer, key: str, names: Sequence[str]) -> bool:
        """False if the first of them is recorded already. Raises StoreUnavailable if that is not
        known, and Replaced.
        """
        condition = {"_id": key, "applied": {"$nin": names}}
        update = {"$set": {"applied": names}, "$push": {"recorded": {"$each": names}}}
        if committer.commit(Change(CONVERSATIONS, condition, update, upsert=True)):
            return True
        assert self.has(key, names[0]), "decided in part, or out of order"
        return False

    def has(self, key: str, name: str) -> bool:
        return self._rows.find_one({"_id": key, "applied": name}) is not None

    def recorded(self, key: str) -> list[str]:
        return list((self._rows.find_one({"_id": key}) or {"recorded": []})["recorded"])


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]
)
def test_whenever_a_process_is_killed_each_key_is_decided_in_order_and_once(
    database: Db, begin: Begin, seed: int
) -> None:
    """Keys are set aside, paused and resumed at random, transactions fail, and each epoch ends by
    a kill.

    Of three documents one has no effects; it may be decided again, but in its place. Some are
    decided together.
    """
    chance = random.Random(seed)
    client = database.client
    keys, per_key = 6, 120
    documents = numbered(keys * per_key, keys=keys)
    conversations = Conversations(database)
    handled: dict[str, list[int]] = defaultdict(list)
    epoch = 0

    def decide_for(
        mine: int, committer: Committer, deferred: list[Job]
    ) -> Callable[[Job], JobResult | Wait]:
        dice = random.Random(seed * 1000 + mine)

        def decide(job: Job) -> JobResult | Wait:
            key, name = job.document["key"], name_of(job.document)
            if job.again and conversations.has(key, name):
                job.take_along(0)
                return JobResult.ALREADY_APPLIED
            following = job.following()
            count = job.take_along(dice.choice([0, 0, 2, 5]))
            names = [name, *(name_of(one) for one in following.documents[:count])]
            if dice.random() < 0.05:
                deferred.append(job)
                return WAITS
            numbers = [int(one[1:]) for one in names]
            handled[key] += [number for number in numbers if number % 3 == 0]
            if all(number % 3 == 0 for number in numbers):
                return JobResult.DONE
            try:
                if not conversations.record(committer, key, names):
                    # An earlier try was not answered.
                    job.take_along(0)
                    return JobResult.ALREADY_APPLIED
            except (StoreUnavailable, Replaced):
                deferred.append(job)
                return WAITS
            return JobResult.RECORDED

        return decide

    def is_done(one: Process) -> bool:
        return one.tracker.passed >= len(documents) and figures_of(
            one.pool, "held_keys", "held_documents"
        ) == (0, 0)

    pauses, scopes = NO_PAUSES, [Scope(), Scope("main"), *(Scope("main", f"U{n}") for n in (0, 1))]
    done = False
    while not done:
        epoch += 1
        deferred: list[Job] = []
        committer = Committer(database)
        worker = decide_for(epoch, committer, deferred)
        one = begin(database, worker, epoch=epoch, threads=3, pauses=pauses, committer=committer)
        fed = one.tracker.token or 0
        # Nothing before it is missing, and nothing was counted twice.
        assert one.tracker.passed == fed
        steps, deadline = chance.randrange(5, 40), time.monotonic() + 30
        while (steps := steps - 1) > 0 or (epoch == 8 and time.monotonic() < deadline):
            if fed < len(documents) and chance.random() < 0.6:
                count = chance.randrange(1, 60)
                one.put(*documents[fed : fed + count], first=fed, again=True)
                fed = min(fed + count, len(documents))
            if chance.random() < 0.5:
                for job in [deferred.pop() for _ in range(len(deferred))]:
                    job.resume()
            if epoch >= 8 or chance.random() < 0.3:
                chosen = chance.sample(scopes, 0 if epoch >= 8 else chance.choice([0, 1, 2]))
                pauses = Pauses(tuple(Pause(scope) for scope in chosen))
                one.pool.obey(pauses)
            fault = chance.random()
            if epoch >= 8 or fault > 0.15:
                one.hold()
            elif fault > 0.08:
                with failing(client, ["commitTransaction"], times=2, **UNKNOWN):
                    one.hold()
            else:
                with failing(client, ["commitTransaction"], times=2, closeConnection=True):
                    one.hold()
            if fed >= len(documents) and is_done(one):
                done = one.save()
                break
        assert epoch < 8 or done, "it does not come to its end"
        one.kill()
    assert held(database) == []
    for key in range(keys):
        mine = [n for n in range(keys * per_key) if n % keys == key]
        recorded = [int(name[1:]) for name in conversations.recorded(f"U{key}")]
        assert recorded == sorted(set(recorded))
        assert [n for n in recorded if n % 3] == [n for n in mine if n % 3]
        assert set(handled[f"U{key}"]) == {n for n in mine if n % 3 == 0}
