"""The pool as whoever tells of it sees it: what is in hand, who does what, who waits and why.

Counts are taken under the pool's lock, and only what takes no longer with more documents.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from dispatcher.keyed.line import Line, Task
from dispatcher.keyed.lines import Lines
from dispatcher.keyed.threads import Thread, Threads
from dispatcher.metrics import InHand
from dispatcher.progress.tracker import ProgressTracker
from linedesk.store.documents import Document
from linedesk.store.queue.backlog import FeedPosition

MOST_THREADS = 50
MOST_WAITING = 20
# Among so many that were parked first those are looked for that are parked now.
LOOKED_AT = 10 * MOST_WAITING
# A key whose thread is at one job for less does not wait.
SLOW_SECONDS = 1.0


class PoolView:
    """Looks at one pool from any thread; `lock` is the pool's."""

    def __init__(
        self, ledger: ProgressTracker, lines: Lines, threads: Threads, *, lock: threading.Lock
    ) -> None:
        self._lock = lock
        self._threads = threads
        # Both under _lock.
        self._ledger = ledger
        self._lines = lines

    def in_hand(self) -> InHand:
        """The figures of this moment."""
        ledger, lines = self._ledger, self._lines
        with self._lock:
            blocked = len(lines.blocked)
            holding = sum(line.holding for line in lines.blocked)
            return InHand(
                documents=ledger.unfinished,
                window=len(ledger),
                held=(lines.held_keys, lines.held_documents),
                taken=lines.taken,
                decided=lines.decided,
                paused=len(lines.paused),
                parked=lines.parked,
                saving=blocked - holding,
                holding=holding,
            )

    def standing(self, ids: Sequence[Any]) -> FeedPosition:
        """Which of these documents were not read yet, and what else the depth is made of."""
        with self._lock:
            oldest = self._ledger.oldest
            return FeedPosition(
                newest=self._ledger.newest,
                unread=[not self._ledger.has_read(id_) for id_ in ids],
                oldest=None if oldest is None else oldest.id,
                documents=self._ledger.unfinished,
                held=self._lines.held_documents,
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
            return self._lines.pauses.as_rows()

    def doing(self) -> list[Document]:
        """What the busy threads are at, the longest first."""
        found = [(since, one) for one in self._threads.useful if (since := one.since) is not None]
        return _longest([_doing(thread, since) for since, thread in found], MOST_THREADS)

    def waiting(self) -> list[Document]:
        """The keys that wait longest although a thread would be free for them."""
        with self._lock:
            slow = list(islice(self._lines.slow, LOOKED_AT))
            paused = list(islice(self._lines.paused, MOST_WAITING))
            blocked = self._lines.blocked[:MOST_WAITING]
            found = [row for line in slow if (row := _parked(line))]
            found += [row for line in paused if (row := _first(line, "paused"))]
            found += [row for line in blocked if (row := _first(line, _blocked(line)))]
        found += [row for thread in self._threads.useful if (row := _behind(thread))]
        return _longest(found, MOST_WAITING)


def _longest(rows: list[Document], most: int) -> list[Document]:
    """Those that began first; `since`, a monotonic time so far, becomes a date."""
    rows.sort(key=lambda row: float(row["since"]))
    now, monotonic = datetime.now(UTC), time.monotonic()
    for row in rows[:most]:
        row["since"] = now - timedelta(seconds=monotonic - row["since"])
    return rows[:most]


def _doing(thread: Thread, since: float) -> Document:
    task = thread.task
    row: Document = {"name": thread.name, "doing": "step", "eventId": None}
    row |= {"channel": None, "key": None, "since": since}
    if task is not None:
        handling = task.handling
        row["doing"] = "job" if handling is None or handling.is_over else "handler"
        row |= _whose(task)
    return row


def _whose(task: Task) -> Document:
    channel, key = task.line.key
    # What is next in `held` is nobody's to know before it is read.
    name = None if task.stands_in else task.name
    return {"eventId": name, "channel": channel, "key": key}


def _parked(line: Line) -> Document | None:
    task = line.tasks[0] if line.tasks else None
    if task is None or not task.parked:
        return None
    return _row(line, task, task.because or "set aside")


def _blocked(line: Line) -> str:
    return "its documents are on their way into held" if line.holding else "waiting for a save"


def _first(line: Line, why: str) -> Document | None:
    return _row(line, line.tasks[0], why) if line.tasks else None


def _behind(thread: Thread) -> Document | None:
    """Of a key whose thread has been at its first document for long, what waits behind it."""
    task, since = thread.task, thread.since
    if task is None or since is None or time.monotonic() - since < SLOW_SECONDS:
        return None
    if len(task.line) < 2 and not task.line.held:
        return None
    return {**_row(task.line, task, "waiting behind a slow handler"), "since": since}


def _row(line: Line, task: Task, why: str) -> Document:
    return {
        **_whose(task),
        # Of those in `held` the first ones may be in hand as well.
        "documents": line.held + sum(1 for _ in line.not_held()),
        "held": line.held,
        "why": why,
        "since": task.begun or task.slot.since or time.monotonic(),
    }
