"""The pool's view: unfinished documents, each thread's work and waiting keys, on a pool held
still.
"""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from dispatcher.commit.progress import HeldKey
from dispatcher.commit.tracker import ProgressTracker
from dispatcher.conversations.mailbox import Job, JobResult, Mailbox, Wait
from dispatcher.pool.mailboxes import Mailboxes
from dispatcher.pool.threads import Threads
from dispatcher.pool.view import PoolView
from linedesk.store.control import Pause, Pauses, Scope
from linedesk.store.records.waits import Why
from tests.dispatcher.conftest import DeskOfPool, MakePool
from tests.dispatcher.fakes import Holder, document, numbered
from tests.waiting import eventually


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


def test_a_key_that_waits_for_its_next_try_says_why(pool_of: MakePool) -> None:
    runs: list[Job] = []

    def decide(job: Job) -> JobResult | Wait:
        runs.append(job)
        return Wait.because(Why.HANDLER_FAILED) if len(runs) == 1 else JobResult.DONE

    desk = pool_of(decide)
    documents = numbered(3)
    arrived = datetime.now(UTC) - timedelta(minutes=7)
    documents[0]["acceptTime"] = arrived
    desk.put(*documents)
    [row] = eventually(lambda: desk.pool.view.waiting())
    assert row["since"] == arrived, "it counts from the arrival, not from a try"
    assert (row["key"], row["eventId"], row["documents"]) == ("U0", "e0", 3)
    assert row["why"] == {"code": "handler_failed"}
    runs[0].resume()
    desk.wait_until_idle()
    assert waiting(desk) == []


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
