"""The pool: order within a key, no key in another's way, and bounds; interleavings are forced."""

import threading
import time
from collections import Counter

from dispatcher.conversations.mailbox import Job, JobResult, Run, Wait
from dispatcher.pool.suspects import CrashSuspects
from linedesk.store.documents import name_of
from linedesk.store.records.waits import Why
from tests.dispatcher.conftest import MakePool
from tests.dispatcher.fakes import WAITS, Holder, RecordingWorker, document, numbered
from tests.dispatcher.leader_terms import Gates
from tests.waiting import eventually


def test_one_key_is_decided_in_order(pool_of: MakePool) -> None:
    worker = RecordingWorker()
    desk = pool_of(worker.decide, threads=8)
    desk.put(*numbered(80))
    desk.wait_until_idle()
    assert worker.decided == [f"e{n}" for n in range(80)]


def test_one_key_is_never_decided_twice_at_a_time(pool_of: MakePool) -> None:
    inside = Counter[str]()
    most = Counter[str]()

    def decide(job: Job) -> JobResult | Wait:
        key = job.document["key"]
        inside[key] += 1
        most[key] = max(most[key], inside[key])
        inside[key] -= 1
        return JobResult.DONE

    desk = pool_of(decide, threads=8)
    desk.put(*numbered(240, keys=3))
    desk.wait_until_idle()
    assert most == {"U0": 1, "U1": 1, "U2": 1}


def test_deferred_keys_hold_no_thread_and_block_no_other(pool_of: MakePool) -> None:
    gates = Gates(*(f"U{n}" for n in range(50)))
    worker = RecordingWorker(gates)
    desk = pool_of(worker.decide, threads=2)
    desk.put(*numbered(50, keys=50))
    eventually(lambda: len(gates.deferred) == 50)
    desk.put(*(document(f"other{n}", "other") for n in range(20)))
    eventually(lambda: len(worker.decided) == 20)
    gates.release()
    desk.wait_until_idle()
    assert len(worker.decided) == 70


def test_jobs_never_occupy_the_last_thread(pool_of: MakePool) -> None:
    held = Holder("e0", "e1")
    desk = pool_of(held, threads=2)
    desk.put(*numbered(2, keys=2))
    held.wait_until_held("e0")
    done = threading.Event()
    desk.pool.step(done.set)
    assert done.wait(15)
    held.let_go("e0")
    held.wait_until_held("e1")
    done.clear()
    desk.pool.step(done.set)
    assert done.wait(15)
    held.let_go()
    desk.wait_until_idle()


def test_nothing_is_begun_after_the_stop(pool_of: MakePool) -> None:
    held = Holder("e0")
    worker = RecordingWorker(held)
    desk = pool_of(worker.decide)
    desk.put(*numbered(3))
    held.wait_until_held("e0")
    desk.pool.stop()
    desk.pool.step(lambda: worker.epochs.append(1))
    held.let_go()
    assert desk.pool.threads.join(time.monotonic() + 15) == []
    assert worker.decided == ["e0"]
    assert worker.epochs == []
    assert len(desk.tracker) == 2


class Gatherer:
    """A `decide` that waits for the following documents until all are reported to be there."""

    def __init__(self, *, until: int) -> None:
        self._until = until
        self.looks: list[tuple[list[str], bool]] = []
        self.decided: list[list[str]] = []

    def __call__(self, job: Job) -> JobResult | Wait:
        following = job.following()
        names = [name_of(one) for one in following.documents]
        self.looks.append((names, following.is_reading))
        if following.room and (following.is_reading or len(names) < self._until):
            return WAITS
        job.take_along(min(len(names), following.room))
        job.begin_handler().end()
        self.decided.append([name_of(job.document), *names[: following.room]])
        return JobResult.DONE


def test_documents_of_an_earlier_process_wait_until_all_are_read(pool_of: MakePool) -> None:
    gatherer = Gatherer(until=0)
    desk = pool_of(gatherer, suspects=CrashSuspects(most=100))
    desk.put(document("e0"), document("e1"), again=True)
    eventually(lambda: desk.pool.view.in_hand()["waiting_keys"]["again"] == 1)
    desk.put(document("other", "U2"), again=True)
    eventually(lambda: desk.pool.view.in_hand()["waiting_keys"]["again"] == 2)
    assert gatherer.decided == []
    desk.pool.move("all is read")
    desk.wait_until_idle()
    assert sorted(gatherer.decided) == [["e0", "e1"], ["other"]]


def test_a_suspect_is_decided_alone(pool_of: MakePool) -> None:
    suspects = CrashSuspects(sought=True, most=100)
    gatherer = Gatherer(until=3)
    desk = pool_of(gatherer, suspects=suspects)
    desk.put(*(document(f"e{n}") for n in range(4)), again=True)
    for n in range(4):
        eventually(lambda n=n: len(gatherer.decided) > n)  # type: ignore[misc]
        desk.save()
    assert gatherer.decided == [["e0"], ["e1"], ["e2"], ["e3"]]


def test_the_time_of_an_earlier_wait_does_not_shorten_the_pause_before_the_next_try(
    pool_of: MakePool,
) -> None:
    """The job is resumed early, and the earlier time comes while its handler runs."""
    waits = [Wait.because(Why.GATHERING, 5.0), Wait.because(Why.HANDLER_FAILED, 60.0)]
    begun, go = threading.Semaphore(0), threading.Semaphore(0)
    jobs: list[Job] = []

    def decide(job: Job) -> JobResult | Wait:
        jobs.append(job)
        begun.release()
        assert go.acquire(timeout=15)
        return waits.pop(0) if waits else JobResult.DONE

    desk = pool_of(decide)
    desk.put(document("e0"))
    go.release()
    eventually(lambda: len(desk.laters) == 1)
    jobs[0].resume()
    assert begun.acquire(timeout=15)
    assert begun.acquire(timeout=15)
    desk.laters[0][1]()
    go.release()
    eventually(lambda: [seconds for seconds, _ in desk.laters] == [5.0, 60.0])
    desk.laters[0][1]()
    assert eventually(desk.pool.view.waiting)[0]["why"]["code"] == "handler_failed"
    assert len(jobs) == 2
    desk.laters[1][1]()
    go.release()
    desk.wait_until_idle()
    assert len(jobs) == 3


def test_a_job_that_was_released_meanwhile_takes_no_wait_of_its_abandoned_run(
    pool_of: MakePool,
) -> None:
    held = Holder("e0")
    desk = pool_of(held)
    desk.put(document("e0"))
    held.wait_until_held("e0")
    [thread] = [one for one in desk.pool.threads.useful if one.work is not None]
    assert isinstance(thread.work, Run)
    desk.pool.wait(thread.work.job, Wait.because(Why.HANDLER_FAILED, 60.0))
    assert desk.laters == []
    held.let_go()
    desk.wait_until_idle()
