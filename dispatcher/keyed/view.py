"""The pool as its figures show it: what is in hand, what each thread does, which keys wait and why.

Counts are taken under the pool's lock, and only what takes no longer with more documents.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from dispatcher.keyed.queues import (
    WHY_DEFERRED,
    WHY_SLOW,
    KeyQueue,
    KeyQueues,
    KeyState,
    Load,
    QueuedJob,
    Run,
)
from dispatcher.keyed.threads import Thread, Threads
from dispatcher.metrics import InHand
from linedesk.store.documents import Document
from linedesk.store.queue.backlog import FeedPosition
from linedesk.store.queue.retention import accepted_at
from linedesk.store.records.events import EVENT_ID

MOST_THREADS = 50
MOST_WAITING = 20
# Among so many that were parked first those are looked for that are parked now.
LOOKED_AT = 10 * MOST_WAITING
WHY_SLOW_ONES = "waiting until another slow handler ends"
# A key whose thread is at one job for less does not wait.
SLOW_SECONDS = 1.0
# What is in `held` and not in hand waits longer than what is.
BEFORE_ALL = datetime.min.replace(tzinfo=UTC)


class PoolView:
    """Looks at one pool from any thread; `lock` is the pool's.

    A key waits behind a slow handler that has run for `slow_seconds`.
    """

    def __init__(
        self,
        queues: KeyQueues,
        threads: Threads,
        *,
        lock: threading.Lock,
        slow_seconds: float = SLOW_SECONDS,
    ) -> None:
        self._lock = lock
        self._threads = threads
        self._slow_seconds = slow_seconds
        # Under _lock.
        self._queues = queues

    def in_hand(self) -> InHand:
        """The figures of this moment."""
        queues = self._queues
        with self._lock:
            unsaved = queues.count(KeyState.UNSAVED)
            holding = sum(queue.moving for queue in queues.in_state(KeyState.UNSAVED))
            return InHand(
                documents=queues.tracker.unfinished,
                window=len(queues.tracker),
                held=(queues.held_keys, queues.held_documents),
                taken=queues.taken,
                decided=queues.decided_documents,
                paused=queues.count(KeyState.PAUSED),
                deferred=queues.count(KeyState.DEFERRED),
                saving=unsaved - holding,
                holding=holding,
            )

    def standing(self, ids: Sequence[Any]) -> FeedPosition:
        """Which of these documents were not read yet, and what else the depth is made of."""
        with self._lock:
            tracker = self._queues.tracker
            oldest = tracker.oldest
            return FeedPosition(
                newest=tracker.newest,
                unread=[not tracker.has_read(id_) for id_ in ids],
                oldest=None if oldest is None else oldest.id,
                documents=tracker.unfinished,
                held=self._queues.held_documents,
            )

    def busy(self) -> tuple[int, int, int]:
        """How many threads there are, how many are at something, how many were ever abandoned."""
        useful = self._threads.useful
        busy = sum(thread.since is not None for thread in useful)
        return len(useful), busy, self._threads.ever_abandoned

    # For a row that a person reads.

    def paused(self) -> list[Document]:
        """What an operator has paused, as it is obeyed at this moment."""
        with self._lock:
            return self._queues.pauses.as_rows()

    def doing(self) -> list[Document]:
        """What the busy threads are at, the longest first."""
        found = [(since, one) for one in self._threads.useful if (since := one.since) is not None]
        found.sort(key=lambda one: one[0])
        return [_doing(thread, since) for since, thread in found[:MOST_THREADS]]

    def waiting(self) -> list[Document]:
        """The keys whose first event arrived longest ago, although a thread would be free.

        `since` is that arrival, None where the event is not in hand; `try` is how often its handler
        was called, and `trySince` when the call under way began.
        """
        with self._lock:
            tried = list(islice(self._queues.tried, LOOKED_AT))
            found = [
                _row(queue, queue.because or WHY_DEFERRED)
                for queue in tried
                if queue.state is KeyState.DEFERRED
            ]
            found += [_row(queue, "paused") for queue in self._first(KeyState.PAUSED)]
            found += [_row(queue, _blocked(queue)) for queue in self._first(KeyState.UNSAVED)]
            if self._queues.first_ready is None:
                slow = islice(self._queues.waiting_for_slow, MOST_WAITING)
                found += [_row(queue, WHY_SLOW_ONES) for queue in slow]
            found += [row for thread in self._threads.useful if (row := self._behind(thread))]
        found.sort(key=lambda row: row["since"] or BEFORE_ALL)
        return found[:MOST_WAITING]

    def _first(self, state: KeyState) -> list[KeyQueue]:
        return list(islice(self._queues.in_state(state), MOST_WAITING))

    def _behind(self, thread: Thread) -> Document | None:
        """Of a key whose thread has been at it for long, what waits behind its first document."""
        work, since = thread.work, thread.since
        if work is None or since is None or time.monotonic() - since < self._slow_seconds:
            return None
        if work.queue.in_hand < 2 and not work.queue.held:
            return None
        return {**_row(work.queue, WHY_SLOW), "trySince": _moment(since)}


def _moment(monotonic: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=time.monotonic() - monotonic)


def _doing(thread: Thread, since: float) -> Document:
    work = thread.work
    row: Document = {"name": thread.name, "doing": "step", EVENT_ID: None}
    row |= {"channel": None, "key": None, "since": _moment(since), "try": None, "arrivedAt": None}
    if work is not None:
        handling = work.job.handling if isinstance(work, Run) else None
        row["doing"] = "job" if handling is None or handling.is_over else "handler"
        # What is next in `held` has no name before it is read.
        row |= _whose(work.queue, None if isinstance(work, Load) else work.name)
    if isinstance(work, Run):
        row |= {"try": work.job.tries, "arrivedAt": _arrived_at(work.job)}
    return row


def _whose(queue: KeyQueue, name: str | None) -> Document:
    channel, key = queue.key
    return {EVENT_ID: name, "channel": channel, "key": key}


def _blocked(queue: KeyQueue) -> str:
    return "its documents are on their way into held" if queue.moving else "waiting for a save"


def _row(queue: KeyQueue, why: str) -> Document:
    head = queue.head
    return {
        **_whose(queue, head.name if head is not None else None),
        # Of those in `held` the first ones may be in hand as well.
        "documents": queue.held + sum(1 for _ in queue.in_window()),
        "held": queue.held,
        "why": why,
        # Not of its first run, which begins anew with each process.
        "since": _arrived_at(head) if head is not None else None,
        "try": head.tries if head is not None else None,
        "trySince": None,
    }


def _arrived_at(job: QueuedJob) -> datetime:
    """When its event arrived; where only its `_id` is kept that tells the second."""
    return accepted_at({"_id": job.slot.id} if job.document is None else job.document)
