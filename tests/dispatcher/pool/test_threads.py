"""Handlers that do not return: abandoned, replaced, reported once, and their later results."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from dispatcher.conversations.mailbox import HandlerCall, Job, JobResult, Run, Wait
from dispatcher.pool.threads import Thread
from dispatcher.process import ExitReason
from linedesk.store.collections import DISPATCHER
from linedesk.store.documents import LEASES, name_of
from tests.dispatcher.conftest import Dispatch, MakePool, Store, Told
from tests.dispatcher.fakes import WAITS, Holder, RecordingWorker, document, figures_of, numbered
from tests.rows import Db
from tests.waiting import eventually

BUSY = ("threads", "busy_threads", "abandoned_threads")


def job_of(thread: Thread) -> Job:
    """The present work of an abandoned thread."""
    assert isinstance(thread.work, Run)
    return thread.work.job


class Handler:
    """A `decide` that runs as a handler; some names never return, so often, before `let_go`.

    Those named `long…` may run for an hour, `short…` for a moment.
    """

    def __init__(self, *names: str, times: int = 1) -> None:
        self._left = dict.fromkeys(names, times)
        self._gate = threading.Event()
        self.entered: list[str] = []
        self.ended: list[tuple[str, bool]] = []

    def __call__(self, job: Job) -> JobResult | Wait:
        name = name_of(job.document)
        limit = 3600.0 if name.startswith("long") else 0.01 if name.startswith("short") else None
        if limit == 3600.0 and not job.take_slow_place():
            return WAITS
        handling = job.begin_handler(limit)
        self.entered.append(name)
        if self._left.get(name, 0):
            self._left[name] -= 1
            self._gate.wait(30)
        self.ended.append((name, handling.end()))
        return JobResult.DONE

    def wait_until_entered(self, *names: str) -> None:
        eventually(lambda: set(names) <= set(self.entered))

    def let_go(self) -> None:
        self._gate.set()


def test_a_handling_returns_or_is_abandoned_and_never_both() -> None:
    returned, abandoned = HandlerCall(), HandlerCall()
    assert returned.end()
    assert not returned.abandon()
    assert abandoned.abandon()
    assert not abandoned.end()
    assert (returned.is_abandoned, abandoned.is_abandoned) == (False, True)


def test_of_many_simultaneous_ends_of_a_call_one_counts() -> None:
    for _ in range(50):
        handling, together, won = HandlerCall(), threading.Barrier(4), []

        def claim(how: Callable[[], bool], won: list[bool], together: threading.Barrier) -> None:
            together.wait(15)
            if how():
                won.append(True)

        threads = [
            threading.Thread(target=claim, args=(how, won, together))
            for how in (handling.end, handling.abandon) * 2
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(15)
        assert len(won) == 1


def test_a_fresh_thread_takes_the_place_of_an_abandoned_one(pool_of: MakePool) -> None:
    """Of four threads three may run jobs; three are abandoned, and three more jobs run at once."""
    handler = Handler("e0", "e1", "e2", "e3", "e4", "e5")
    desk = pool_of(handler, threads=4)
    desk.put(*numbered(6, keys=6))
    handler.wait_until_entered("e0", "e1", "e2")
    assert len(handler.entered) == 3
    lost = desk.pool.abandon_overdue(0.0)
    assert sorted(job_of(thread).name for thread in lost) == ["e0", "e1", "e2"]
    handler.wait_until_entered("e3", "e4", "e5")
    busy = [row["name"] for row in desk.pool.view.doing()]
    assert len({*(thread.name for thread in lost), *busy}) == 6
    assert figures_of(desk.pool, *BUSY) == (4, 3, 3)
    assert len(desk.pool.threads.abandoned()) == 3
    handler.let_go()
    eventually(lambda: not desk.pool.threads.abandoned())
    eventually(lambda: sorted(n for n, ok in handler.ended if ok) == ["e3", "e4", "e5"])
    for thread in lost:
        job_of(thread).resume()
    desk.wait_until_idle()


def test_the_result_of_an_abandoned_handler_is_discarded(pool_of: MakePool) -> None:
    handler = Handler("e0")
    desk = pool_of(handler)
    desk.put(document("e0"), document("e1"))
    handler.wait_until_entered("e0")
    (thread,) = desk.pool.abandon_overdue(0.0)
    handler.let_go()
    eventually(lambda: ("e0", False) in handler.ended)
    thread.join(15)
    assert len(desk.tracker) == 2
    assert handler.entered == ["e0"]
    job_of(thread).resume()
    desk.wait_until_idle()
    assert handler.ended == [("e0", False), ("e0", True), ("e1", True)]


def test_a_late_end_does_not_touch_the_run_that_follows(pool_of: MakePool) -> None:
    """The first run returns while the second is under way: the key stays with the second."""
    second, go_on = threading.Event(), threading.Event()
    first = threading.Event()
    runs: list[str] = []

    def decide(job: Job) -> JobResult | Wait:
        handling = job.begin_handler()
        runs.append(name_of(job.document))
        if len(runs) == 1:
            first.wait(30)
        elif len(runs) == 2:
            second.set()
            go_on.wait(30)
        handling.end()
        return JobResult.DONE

    desk = pool_of(decide, threads=4)
    desk.put(document("e0"), document("e1"))
    eventually(lambda: runs == ["e0"])
    (thread,) = desk.pool.abandon_overdue(0.0)
    job_of(thread).resume()
    assert second.wait(15)
    first.set()
    thread.join(15)
    assert len(desk.tracker) == 2, "nothing is decided by the late one"
    go_on.set()
    desk.wait_until_idle()
    assert runs == ["e0", "e0", "e1"]


def test_only_a_handler_is_abandoned(pool_of: MakePool) -> None:
    """Work that reads or writes MongoDB ends by itself."""
    held = Holder("e0")
    desk = pool_of(held)
    desk.put(document("e0"))
    held.wait_until_held("e0")
    assert desk.pool.abandon_overdue(0.0) == []
    assert desk.pool.threads.busy() == 1
    held.let_go()
    desk.wait_until_idle()
    eventually(lambda: desk.pool.threads.busy() == 0)


def test_a_handler_is_overdue_by_its_own_limit(pool_of: MakePool) -> None:
    handler = Handler("long", "short", "other")
    desk = pool_of(handler)
    desk.put(document("long", "U0"), document("short", "U1"), document("other", "U2"))
    handler.wait_until_entered("long", "short", "other")
    lost: list[Thread] = []

    def look() -> bool:
        lost.extend(desk.pool.abandon_overdue(60.0))
        return bool(lost)

    eventually(look)
    assert [job_of(thread).name for thread in lost] == ["short"]
    lost += desk.pool.abandon_overdue(0.0)
    assert [job_of(thread).name for thread in lost] == ["short", "other"]
    assert desk.pool.threads.hanging(0.0, 0.0) == []
    handler.let_go()
    for thread in lost:
        job_of(thread).resume()
    desk.wait_until_idle()


def test_slow_handlers_leave_half_of_the_threads_to_others(pool_of: MakePool) -> None:
    """Of eight threads four run slow ones; when one of those ends the next one begins."""
    names = [f"long{n}" for n in range(6)]
    handler = Handler(*names)
    desk = pool_of(handler, threads=8)
    desk.put(*(document(name, f"U{n}") for n, name in enumerate(names)))
    handler.wait_until_entered(*names[:4])
    for n in range(20):
        desk.put(document(f"e{n}", f"V{n}"))
    handler.wait_until_entered(*(f"e{n}" for n in range(20)))
    assert not {"long4", "long5"} & set(handler.entered)
    rows = [row for row in desk.pool.view.waiting() if "slow" in row["why"]["code"]]
    assert sorted(row["eventId"] for row in rows) == ["long4", "long5"]
    handler.let_go()
    desk.wait_until_idle()
    assert sorted(handler.ended) == sorted((name, True) for name in handler.entered)


@pytest.fixture(autouse=True)
def _quick_looks(short_limits: dict[str, Any]) -> None:
    short_limits["supervise_seconds"] = 0.02


def test_a_handler_that_does_not_return_is_named_once_and_runs_again(
    database: Db, dispatch: Dispatch, store: Store, told: Told
) -> None:
    handler = Handler("slow")
    worker = RecordingWorker(handler)
    running = dispatch(database, worker, handler_seconds=0.1)
    store(database, document("slow"), document("behind"), document("other", "U2"))
    eventually(lambda: "behind" in worker.decided)
    (line,) = told("handler did not return, abandoned")
    assert "event_id=slow thread=worker-" in line
    assert "seconds=0." in line
    ((name, stack),) = worker.given_up_on
    assert name == "slow"
    assert "self._gate.wait(30)" in stack
    handler.let_go()
    eventually(lambda: not running.dispatcher.pool.threads.abandoned())
    assert running.end() is ExitReason.STOPPED
    assert sorted(name for name in handler.entered if name == "slow") == ["slow", "slow"]


def test_a_stop_does_not_wait_for_abandoned_handlers(
    database: Db, dispatch: Dispatch, store: Store, told: Told
) -> None:
    """Yet one may be in a call of LINE that it had begun, so the lease runs out by itself."""
    handler = Handler("slow")
    running = dispatch(database, RecordingWorker(handler), handler_seconds=0.05)
    store(database, document("slow"))
    eventually(lambda: handler.entered == ["slow", "slow"])
    assert running.end() is ExitReason.STOPPED
    assert not told("did not end within the drain")
    row = database[LEASES].find_one({"_id": DISPATCHER})
    assert row is not None
    assert row["owner"] is not None
    handler.let_go()


def test_as_many_abandoned_threads_as_the_pool_has_end_the_process(
    database: Db, dispatch: Dispatch, store: Store, told: Told
) -> None:
    handler = Handler(*(f"e{n}" for n in range(4)), times=100)
    limits = {"handler_seconds": 0.05, "threads": 3, "drain_seconds": 0.1}
    running = dispatch(database, RecordingWorker(handler), **limits)
    store(database, *numbered(4, keys=4))
    assert running.end(None) is ExitReason.STUCK
    assert told("as many handlers hang as there are threads, stopping threads=")
    assert len(told("abandoned thread still runs thread=worker-")) >= 3
    handler.let_go()
