"""The pool's view: unfinished documents, each thread's work and waiting keys, on a pool held
still.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from dispatcher.commit.progress import HeldKey
from dispatcher.commit.tracker import ProgressTracker
from dispatcher.conversations.mailbox import Job, JobResult, Mailbox, Wait
from dispatcher.pool.mailboxes import Mailboxes
from dispatcher.pool.threads import Threads
from dispatcher.pool.view import PoolView
from linedesk.store.control import Pause, Pauses, Scope
from linedesk.store.documents import name_of
from linedesk.store.records.waits import Why
from tests.dispatcher.conftest import DeskOfPool
from tests.dispatcher.fakes import Holder, document, figures_of, numbered
from tests.waiting import eventually

MakePool = Callable[..., DeskOfPool]
BUSY = ("threads", "busy_threads", "abandoned_threads")
COUNTS = ("read_documents", "finished_documents", "in_hand_documents", "window_documents")


class Parking:
    """A `decide` that parks chosen names once, for a reason, until they are resumed."""

    def __init__(self, *names: str, why: Why = Why.DEFERRED) -> None:
        self.deferred: dict[str, Job] = {}
        self._names = set(names)
        self._wait = Wait.because(why)

    def __call__(self, job: Job) -> JobResult | Wait:
        name = name_of(job.document)
        if name in self._names:
            self._names.discard(name)
            self.deferred[name] = job
            return self._wait
        return JobResult.DONE


def waiting(desk: DeskOfPool) -> list[tuple[str, str]]:
    return [(row["eventId"], row["why"]["code"]) for row in desk.pool.view.waiting()]


def test_of_what_is_held_the_paused_part_is_told_apart_before_it_is_read() -> None:
    pauses = Pauses((Pause(Scope("main", "U0")),))
    mailboxes = Mailboxes(ProgressTracker())
    view = PoolView(mailboxes, Threads(1, lambda _: None))
    for number in range(5):
        mailboxes.put_held(HeldKey("main", f"U{number}", count=3, top=number))
    for obeyed, unpaused in ((pauses, 12), (Pauses((Pause(Scope()),)), 0), (Pauses(), 15)):
        mailboxes.obey(obeyed)
        standing = view.standing([])
        assert (standing.held, standing.unpaused) == (15, unpaused)


def test_documents_that_the_reader_has_seen_are_known_by_name(pool_of: MakePool) -> None:
    held = Holder("e0")
    desk = pool_of(held)
    known = numbered(3)
    desk.put(*known)
    stranger = document("later")
    ids = [one["_id"] for one in (*known, stranger)]
    found = desk.pool.view.standing(ids)
    assert found.unread == [False, False, False, True]
    assert (found.newest, found.oldest, found.documents) == (ids[2], ids[0], 3)
    held.let_go()
    desk.wait_until_idle()
    found = desk.pool.view.standing(ids)
    assert found.unread == [False, False, False, True]
    assert (found.newest, found.oldest, found.documents) == (ids[2], None, 0)


def test_a_busy_thread_reports_whether_it_runs_a_handler_a_job_or_a_step(pool_of: MakePool) -> None:
    entered, ended, end = threading.Event(), threading.Event(), threading.Event()
    both, go = threading.Semaphore(0), threading.Event()

    def decide(job: Job) -> JobResult | Wait:
        handling = job.begin_handler()
        entered.set()
        assert end.wait(15)
        handling.end()
        ended.set()
        assert go.wait(15)
        return JobResult.DONE

    def step() -> None:
        both.release()
        assert go.wait(15)

    desk = pool_of(decide)
    assert desk.pool.view.doing() == []
    assert figures_of(desk.pool, *BUSY) == (4, 0, 0)
    desk.put(document("long", user="U7"))
    assert entered.wait(15)
    desk.pool.step(step)
    assert both.acquire(timeout=15)
    first, second = desk.pool.view.doing()
    assert {name: first[name] for name in ("doing", "eventId", "channel", "key")} == {
        "doing": "handler",
        "eventId": "long",
        "channel": "main",
        "key": "U7",
    }
    assert first["name"].startswith("worker-")
    assert (first["try"], second["try"], second["arrivedAt"]) == (1, None, None)
    assert first["arrivedAt"] <= first["since"]
    assert (second["doing"], second["eventId"], second["key"]) == ("step", None, None)
    assert first["since"] <= second["since"] <= datetime.now(UTC)
    assert figures_of(desk.pool, *BUSY) == (4, 2, 0)
    end.set()
    assert ended.wait(15)
    assert desk.pool.view.doing()[0]["doing"] == "job", "its handler is over, its record is not"
    go.set()
    desk.wait_until_idle()
    eventually(lambda: desk.pool.view.doing() == [])


def test_a_key_that_waits_for_its_next_try_says_why(pool_of: MakePool) -> None:
    decide = Parking("e0", why=Why.HANDLER_FAILED)
    desk = pool_of(decide)
    documents = numbered(3)
    arrived = datetime.now(UTC) - timedelta(minutes=7)
    documents[0]["acceptTime"] = arrived
    desk.put(*documents)
    [row] = eventually(lambda: desk.pool.view.waiting())
    assert row.pop("since") == arrived, "it counts from the arrival, not from a try"
    assert row == {
        "channel": "main",
        "key": "U0",
        "eventId": "e0",
        "documents": 3,
        "held": 0,
        "why": {"code": "handler_failed"},
        "try": 0,
        "trySince": None,
    }
    assert desk.pool.view.in_hand()["waiting_keys"]["again"] == 1
    decide.deferred["e0"].resume()
    desk.wait_until_idle()
    assert waiting(desk) == []
    assert desk.pool.view.in_hand()["waiting_keys"]["again"] == 0


def test_a_document_during_the_count_behind_a_slow_handler_ends_nothing(
    pool_of: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the thread that writes the row ends the thread and the process."""
    held = Holder("e0")
    desk = pool_of(held)
    desk.put(*numbered(3))
    held.wait_until_held("e0")
    comes = threading.Thread(target=desk.put, args=(document("late", user="U0"),))
    in_window = Mailbox.in_window

    def while_more_comes(mailbox: Mailbox) -> Iterator[Job]:
        for job in in_window(mailbox):
            if comes.ident is None:
                comes.start()
                comes.join(0.3)
            yield job

    monkeypatch.setattr(Mailbox, "in_window", while_more_comes)
    assert eventually(lambda: waiting(desk)) == [("e0", "behind_slow_handler")]
    comes.join(15)
    held.let_go()
    desk.wait_until_idle()
    assert desk.pool.view.in_hand()["finished_documents"] == 4
