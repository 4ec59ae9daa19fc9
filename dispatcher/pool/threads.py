"""The threads of the pool, and the replacement of those whose handler does not return.

Python cannot end a thread from outside. A thread with an overdue handler is abandoned: another one
takes its place, and a later result of its handler is discarded.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence

from dispatcher.conversations.mailbox import HandlerCall, Job, Load, Run


class Thread(threading.Thread):
    """One thread of the pool; without work it sleeps on `wake`."""

    def __init__(self, number: int, work: Callable[[Thread], None]) -> None:
        super().__init__(name=f"worker-{number:02d}", daemon=True)
        self.wake = threading.Event()
        self.work: Run | Load | None = None
        self.since: float | None = None
        """Monotonic time when it took its present work; None while it is idle."""
        self.is_abandoned = False
        self._main = work

    def run(self) -> None:
        self._main(self)

    @property
    def doing(self) -> str:
        work = self.work
        return f"thread={self.name} event_id={work.name if work else '-'}"

    @property
    def job(self) -> Job | None:
        work = self.work
        return work.job if isinstance(work, Run) else None

    @property
    def stack(self) -> str:
        """Its present stack in the form of a traceback; empty once it has ended."""
        frame = sys._current_frames().get(self.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame is not None else ""

    def has_been_at_it(self, now: float) -> float:
        """Return the seconds since it took its present work; 0 while it is idle."""
        since = self.since
        return 0.0 if since is None else now - since

    @property
    def _handling(self) -> HandlerCall | None:
        job = self.job
        return None if job is None or job.awaits else job.handling

    def _limit(self, limit_seconds: float) -> float:
        """The limit of its handler: its own, or else this one."""
        own = None if self._handling is None else self._handling.limit_seconds
        return limit_seconds if own is None else own

    def is_overdue(self, limit_seconds: float, now: float) -> bool:
        """Whether its handler has exceeded its own limit, or else this one."""
        handling = self._handling
        return handling is not None and handling.is_overdue(limit_seconds, now)

    def hangs(self, limit_seconds: float, step_seconds: float, now: float) -> bool:
        """Whether its present work exceeds the limits of handlers and steps."""
        return self.has_been_at_it(now) > self._limit(limit_seconds) + step_seconds

    def abandon(self) -> bool:
        """Abandon it if its handler still runs."""
        handling = self._handling
        self.is_abandoned = handling is not None and handling.abandon()
        return self.is_abandoned


class Threads:
    """The fixed number of active threads, and the abandoned ones that have not returned yet."""

    def __init__(self, number: int, work: Callable[[Thread], None]) -> None:
        self._work = work
        # Held while a thread is replaced, and while abandoned ones are counted.
        self._lock = threading.Lock()
        self._made = 0
        self.useful = [self._make() for _ in range(number)]
        """The active threads."""
        self._abandoned: list[Thread] = []

    def start(self) -> None:
        for thread in self.useful:
            thread.start()

    def join(self, deadline: float) -> list[str]:
        """Wait for the active ones until the monotonic deadline; returns the work of the rest."""
        for thread in self.useful:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        return [thread.doing for thread in self.useful if thread.is_alive()]

    @property
    def ever_abandoned(self) -> int:
        """How many were abandoned since the start of the process."""
        return self._made - len(self.useful)

    def abandoned(self) -> list[str]:
        """The work of the abandoned threads whose handler has still not returned."""
        with self._lock:
            self._abandoned = [thread for thread in self._abandoned if thread.is_alive()]
            return [thread.doing for thread in self._abandoned]

    def abandon_overdue(self, limit_seconds: float) -> list[Thread]:
        """Abandon the threads whose handler is overdue; `replace` must follow for each."""
        now = time.monotonic()
        overdue = (one for one in self.useful if one.is_overdue(limit_seconds, now))
        return [thread for thread in overdue if thread.abandon()]

    def abandon_at(self, job: Job) -> list[Thread]:
        """Abandon the thread that runs this job's handler; `replace` must follow."""
        return [thread for thread in self.useful if thread.job is job and thread.abandon()]

    def hanging(self, limit_seconds: float, step_seconds: float) -> list[Thread]:
        """The active threads beyond their limits; `limit_seconds` is that of most handlers."""
        now = time.monotonic()
        return [one for one in self.useful if one.hangs(limit_seconds, step_seconds, now)]

    def replace(self, lost: Sequence[Thread]) -> None:
        """Replace abandoned threads with new ones, which have names of their own."""
        for thread in lost:
            with self._lock:
                fresh = self._make()
                self.useful[self.useful.index(thread)] = fresh
                self._abandoned.append(thread)
            fresh.start()

    def busy(self) -> int:
        """How many of the active threads are working on a job or step."""
        return sum(thread.since is not None for thread in self.useful)

    def _make(self) -> Thread:
        self._made += 1
        return Thread(self._made, self._work)
