"""The pool for status and metrics: unfinished documents, each thread's work, waiting keys and
reasons.

Counts are taken under the pool's lock; only those whose cost does not grow with the documents.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Any

from dispatcher.conversations.mailbox import KeyState, Load, Mailbox, ReadyLine, Run
from dispatcher.pool.queues import KeyQueues
from dispatcher.pool.threads import Thread, Threads
from linedesk.store.documents import Document
from linedesk.store.queue.usage import FeedPosition, accepted_at
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.waits import Why, reason

MOST_THREADS = 50
MOST_WAITING = 20
# The currently deferred keys are searched among this many that were deferred first.
LOOKED_AT = 10 * MOST_WAITING
# A key whose thread works on one job for less time does not count as waiting.
SLOW_SECONDS = 1.0
# Documents that are only in `held` have waited longer than those in memory.
BEFORE_ALL = datetime.min.replace(tzinfo=UTC)


class PoolView:
    """Reads one pool from any thread; `lock` is the pool's."""

    def __init__(
        self,
        queues: KeyQueues,
        threads: Threads,
        *,
        lock: threading.Lock,
    ) -> None:
        self._lock = lock
        self._threads = threads
        # Under _lock.
        self._queues = queues

    def in_hand(self) -> dict[str, Any]:
        """The current values of `dispatcher.metrics.IN_HAND`, but for the feed's."""
        queues, threads = self._queues, self._threads
        with self._lock:
            unsaved = queues.count(KeyState.UNSAVED)
            holding = sum(queue.moving for queue in queues.in_state(KeyState.UNSAVED))
            counts = {
                "read_documents": queues.taken,
                "finished_documents": queues.decided_documents,
                "in_hand_documents": queues.tracker.unfinished,
                "window_documents": len(queues.tracker),
                "held_documents": queues.held_documents,
                "held_keys": queues.held_keys,
                "waiting_keys": {
                    "paused": queues.count(KeyState.PAUSED),
                    "again": queues.count(KeyState.DEFERRED),
                    "save": unsaved - holding,
                    "held": holding,
                },
            }
            pauses = queues.pauses
        paused = pauses.ages(datetime.now(UTC))
        return {
            **counts,
            "pauses": {kind: len(ages) for kind, ages in paused.items()},
            "oldest_pause_seconds": {kind: max(ages, default=0.0) for kind, ages in paused.items()},
            "threads": len(threads.useful),
            "busy_threads": threads.busy(),
            "abandoned_threads": threads.ever_abandoned,
        }

    def standing(self, ids: Sequence[Any]) -> FeedPosition:
        """Return which of these documents are not read yet, and the other parts of the backlog."""
        with self._lock:
            tracker = self._queues.tracker
            oldest = tracker.oldest
            unpaused, unpaused_at = self._unpaused()
            return FeedPosition(
                newest=tracker.newest,
                unread=[not tracker.has_read(id_) for id_ in ids],
                oldest=None if oldest is None else oldest.id,
                documents=tracker.unfinished,
                held=self._queues.held_documents,
                unpaused=unpaused,
                unpaused_at=unpaused_at,
            )

    def _unpaused(self) -> tuple[int, datetime | None]:
        """The position's `unpaused` parts, without reading the paused keys, which may be many."""
        queues = self._queues
        if not queues.pauses:
            return queues.held_documents, None
        states = [queues.in_state(state) for state in KeyState if state is not KeyState.PAUSED]
        found = [one for one in chain(*states) if one.held and not queues.is_paused(one)]
        heads = [one.head for one in found]
        known = [accepted_at(head.document) for head in heads if head is not None]
        oldest = min(known, default=None) if len(known) == len(heads) else None
        return sum(queue.held for queue in found), oldest

    # For the row in `status`.

    def suspects(self) -> str | None:
        """Return how the search for an event that kills the process stands, as a text."""
        with self._lock:
            suspects = self._queues.suspects
            count, running = suspects.count
            if not suspects.sought or count == 0:
                return None
            if suspects.is_proving:
                return f"{count} crash suspects, one runs alone"
            return f"{count} crash suspects, {running} of them run"

    def paused(self) -> list[Document]:
        with self._lock:
            return self._queues.pauses.as_rows()

    def doing(self) -> list[Document]:
        """The work of the busy threads, the longest first."""
        found = [(since, one) for one in self._threads.useful if (since := one.since) is not None]
        found.sort(key=lambda one: one[0])
        return [_doing(thread, since) for since, thread in found[:MOST_THREADS]]

    def waiting(self) -> list[Document]:
        """The keys whose first event arrived longest ago and that wait although threads are free.

        `since` is that arrival, None if the event is not in memory. `try` is the number of calls of
        its handler, and `trySince` is the begin of the present call.
        """
        with self._lock:
            tried = list(islice(self._queues.tried, LOOKED_AT))
            found = [_row(queue, queue.why) for queue in tried if queue.state is KeyState.DEFERRED]
            found += [_row(queue, reason(Why.PAUSED)) for queue in self._first(KeyState.PAUSED)]
            found += [_row(queue, _blocked(queue)) for queue in self._first(KeyState.UNSAVED)]
            if self._queues.first_ready is None:
                found += self._lined_up(Why.NO_SLOW_PLACE, ReadyLine.SLOW)
            found += self._lined_up(Why.CRASH_SUSPECT, ReadyLine.SUSPECT)
            found += [row for thread in self._threads.useful if (row := self._behind(thread))]
        found.sort(key=lambda row: row["since"] or BEFORE_ALL)
        return found[:MOST_WAITING]

    def _first(self, state: KeyState) -> list[Mailbox]:
        return list(islice(self._queues.in_state(state), MOST_WAITING))

    def _lined_up(self, why: Why, line: ReadyLine) -> list[Document]:
        return [
            _row(queue, reason(why)) for queue in islice(self._queues.ready(line), MOST_WAITING)
        ]

    def _behind(self, thread: Thread) -> Document | None:
        """Return the documents that wait behind the one on this thread, if it is slow."""
        work, since = thread.work, thread.since
        if work is None or since is None or time.monotonic() - since < SLOW_SECONDS:
            return None
        if work.queue.in_hand < 2 and not work.queue.held:
            return None
        return {**_row(work.queue, reason(Why.BEHIND_SLOW_HANDLER)), "trySince": _moment(since)}


def _moment(monotonic: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=time.monotonic() - monotonic)


def _doing(thread: Thread, since: float) -> Document:
    work = thread.work
    row: Document = {"name": thread.name, "doing": "step", EVENT_ID: None}
    row |= {"channel": None, "key": None, "since": _moment(since), "try": None, "arrivedAt": None}
    if work is not None:
        handling = work.job.handling if isinstance(work, Run) else None
        row["doing"] = "job" if handling is None or handling.is_over else "handler"
        # The next document in `held` has no name before it is read.
        row |= _whose(work.queue, None if isinstance(work, Load) else work.name)
    if isinstance(work, Run):
        row |= {"try": work.job.tries, "arrivedAt": accepted_at(work.job.document)}
    return row


def _whose(queue: Mailbox, name: str | None) -> Document:
    channel, key = queue.key
    return {EVENT_ID: name, "channel": channel, "key": key}


def _blocked(queue: Mailbox) -> Document:
    return reason(Why.MOVING_TO_HELD if queue.moving else Why.NOT_SAVED)


def _row(queue: Mailbox, why: Document) -> Document:
    head = queue.head
    return {
        **_whose(queue, head.name if head is not None else None),
        # The first ones in `held` may be in memory as well.
        "documents": queue.held + sum(1 for _ in queue.in_window()),
        "held": queue.held,
        "why": why,
        # Without the first run, which begins again in each process.
        "since": accepted_at(head.document) if head is not None else None,
        "try": head.tries if head is not None else None,
        "trySince": None,
    }
