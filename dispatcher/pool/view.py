"""The pool for status and metrics: unfinished documents, each thread's work, waiting keys and
reasons.

Counts are taken under the pool's lock; only those whose cost does not grow with the documents.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Any

from dispatcher.conversations.mailbox import KeyState, Load, Mailbox, ReadyLine, Run
from dispatcher.pool.mailboxes import Mailboxes
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
    """Reads one pool from any thread."""

    def __init__(self, mailboxes: Mailboxes, threads: Threads) -> None:
        self._lock = mailboxes.lock
        self._threads = threads
        # Under _lock.
        self._mailboxes = mailboxes

    def in_hand(self) -> dict[str, Any]:
        """The current values of `dispatcher.metrics.IN_HAND`, but for the feed's."""
        mailboxes, threads = self._mailboxes, self._threads
        with self._lock:
            unsaved = len(mailboxes.states[KeyState.UNSAVED])
            holding = sum(mailbox.moving for mailbox in mailboxes.states[KeyState.UNSAVED])
            counts = {
                "read_documents": mailboxes.taken,
                "finished_documents": mailboxes.decided_documents,
                "in_hand_documents": mailboxes.tracker.unfinished,
                "window_documents": len(mailboxes.tracker),
                "held_documents": mailboxes.held_documents,
                "held_keys": mailboxes.held_keys,
                "waiting_keys": {
                    "paused": len(mailboxes.states[KeyState.PAUSED]),
                    "again": len(mailboxes.states[KeyState.DEFERRED]),
                    "save": unsaved - holding,
                    "held": holding,
                },
            }
            pauses = mailboxes.pauses
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
            tracker = self._mailboxes.tracker
            oldest = tracker.oldest
            unpaused, unpaused_at = self._unpaused()
            return FeedPosition(
                newest=tracker.newest,
                unread=[not tracker.has_read(id_) for id_ in ids],
                oldest=None if oldest is None else oldest.id,
                documents=tracker.unfinished,
                held=self._mailboxes.held_documents,
                unpaused=unpaused,
                unpaused_at=unpaused_at,
            )

    def _unpaused(self) -> tuple[int, datetime | None]:
        """The position's `unpaused` parts, without reading the paused keys, which may be many."""
        mailboxes = self._mailboxes
        if not mailboxes.pauses:
            return mailboxes.held_documents, None
        states = [mailboxes.states[state] for state in KeyState if state is not KeyState.PAUSED]
        found = [one for one in chain(*states) if one.held and not mailboxes.is_paused(one)]
        heads = [one.head for one in found]
        known = [accepted_at(head.document) for head in heads if head is not None]
        oldest = min(known, default=None) if len(known) == len(heads) else None
        return sum(mailbox.held for mailbox in found), oldest

    def is_at_work(self) -> bool:
        """Whether a thread has a job."""
        with self._lock:
            return bool(self._mailboxes.states[KeyState.RUNNING])

    # For the row in `status`.

    def suspects(self) -> str | None:
        """Return how the search for an event that kills the process stands, as a text."""
        with self._lock:
            suspects = self._mailboxes.suspects
            count, running = suspects.count
            if not suspects.sought or count == 0:
                return None
            if suspects.is_proving:
                return f"{count} crash suspects, one runs alone"
            return f"{count} crash suspects, {running} of them run"

    def paused(self) -> list[Document]:
        with self._lock:
            return self._mailboxes.pauses.as_rows()

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
            tried = list(islice(self._mailboxes.tried, LOOKED_AT))
            found = [
                _row(mailbox, mailbox.why)
                for mailbox in tried
                if mailbox.state is KeyState.DEFERRED
            ]
            found += [_row(mailbox, reason(Why.PAUSED)) for mailbox in self._first(KeyState.PAUSED)]
            found += [_row(mailbox, _blocked(mailbox)) for mailbox in self._first(KeyState.UNSAVED)]
            if self._mailboxes.lines.first_ready is None:
                found += self._lined_up(Why.NO_SLOW_PLACE, ReadyLine.SLOW)
            found += self._lined_up(Why.CRASH_SUSPECT, ReadyLine.SUSPECT)
            found += [row for thread in self._threads.useful if (row := self._behind(thread))]
        found.sort(key=lambda row: row["since"] or BEFORE_ALL)
        return found[:MOST_WAITING]

    def _first(self, state: KeyState) -> list[Mailbox]:
        return list(islice(self._mailboxes.states[state], MOST_WAITING))

    def _lined_up(self, why: Why, line: ReadyLine) -> list[Document]:
        return [
            _row(mailbox, reason(why))
            for mailbox in islice(self._mailboxes.lines.lines[line], MOST_WAITING)
        ]

    def _behind(self, thread: Thread) -> Document | None:
        """Return the documents that wait behind the one on this thread, if it is slow."""
        work, since = thread.work, thread.since
        if work is None or since is None or time.monotonic() - since < SLOW_SECONDS:
            return None
        if work.mailbox.in_hand < 2 and not work.mailbox.held:
            return None
        return {**_row(work.mailbox, reason(Why.BEHIND_SLOW_HANDLER)), "trySince": _moment(since)}


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
        row |= _whose(work.mailbox, None if isinstance(work, Load) else work.name)
    if isinstance(work, Run):
        row |= {"try": work.job.tries, "arrivedAt": accepted_at(work.job.document)}
    return row


def _whose(mailbox: Mailbox, name: str | None) -> Document:
    channel, key = mailbox.key
    return {EVENT_ID: name, "channel": channel, "key": key}


def _blocked(mailbox: Mailbox) -> Document:
    return reason(Why.MOVING_TO_HELD if mailbox.moving else Why.NOT_SAVED)


def _row(mailbox: Mailbox, why: Document) -> Document:
    head = mailbox.head
    call = head.handling if head is not None and mailbox.awaits else None
    return {
        **_whose(mailbox, head.name if head is not None else None),
        # The first ones in `held` may be in memory as well.
        "documents": mailbox.held + sum(1 for _ in mailbox.in_window()),
        "held": mailbox.held,
        "why": why,
        # Without the first run, which begins again in each process.
        "since": accepted_at(head.document) if head is not None else None,
        "try": head.tries if head is not None else None,
        "trySince": None if call is None else _moment(call.since),
    }
