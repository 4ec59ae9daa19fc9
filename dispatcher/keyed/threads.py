"""The threads of the pool, and the replacement of those whose handler does not return.

Python cannot end a thread from outside. A thread with an overdue handler is abandoned: another one
takes its place, and a later result of its handler is discarded.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable

from dispatcher.keyed.call_claim import CallClaim
from dispatcher.keyed.queues import Load, QueuedJob, Run


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
        """Its present work, for a log line."""
        work = self.work
        return f"thread={self.name} event_id={work.name if work else '-'}"

    def is_at(self, job: QueuedJob) -> bool:
        """Whether it runs the job."""
        work = self.work
        return isinstance(work, Run) and work.job is job

    @property
    def is_at_a_job(self) -> bool:
        """Whether it runs any job."""
        return isinstance(self.work, Run)

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
    def _handling(self) -> CallClaim | None:
        """The last call of its job's handler."""
        return self.work.job.handling if isinstance(self.work, Run) else None

    def is_overdue(self, limit_seconds: float, now: float) -> bool:
        """Whether its handler has exceeded its own limit, or else this one."""
        handling = self._handling
        if handling is None:
            return False
        limit = limit_seconds if handling.limit_seconds is None else handling.limit_seconds
        return now - handling.since > limit

    def hangs(self, limit_seconds: float, step_seconds: float, now: float) -> bool:
        """Whether its present work exceeds the limits of handlers and steps."""
        handling = self._handling
        own = handling.limit_seconds if handling is not None else None
        limit = limit_seconds if own is None else own
        return self.has_been_at_it(now) > limit + step_seconds

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
        self._useful = [self._make() for _ in range(number)]
        self._abandoned: list[Thread] = []

    def start(self) -> None:
        """Start the threads."""
        for thread in self._useful:
            thread.start()

    def join(self, deadline: float) -> list[str]:
        """Wait for the active ones until the monotonic deadline; returns the remaining ones'
        work.
        """
        for thread in self._useful:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        return [thread.doing for thread in self._useful if thread.is_alive()]

    @property
    def useful(self) -> list[Thread]:
        """A copy of the active threads."""
        return list(self._useful)

    @property
    def ever_abandoned(self) -> int:
        """How many were abandoned since the start of the process."""
        return self._made - len(self._useful)

    @property
    def abandoned(self) -> list[Thread]:
        """The abandoned threads whose handler has still not returned."""
        with self._lock:
            self._abandoned = [thread for thread in self._abandoned if thread.is_alive()]
            return list(self._abandoned)

    def abandon_overdue(self, limit_seconds: float) -> list[Thread]:
        """Abandon the threads whose handler is overdue; `replace` must follow for each."""
        now = time.monotonic()
        overdue = (one for one in self._useful if one.is_overdue(limit_seconds, now))
        return [thread for thread in overdue if thread.abandon()]

    def abandon_at(self, job: QueuedJob) -> list[Thread]:
        """Abandon the thread that runs this job's handler; `replace` must follow."""
        return [thread for thread in self._useful if thread.is_at(job) and thread.abandon()]

    def hanging(self, limit_seconds: float, step_seconds: float) -> list[Thread]:
        """The active threads whose job or step exceeds every limit."""
        now = time.monotonic()
        return [one for one in self._useful if one.hangs(limit_seconds, step_seconds, now)]

    def replace(self, lost: Thread) -> None:
        """Replace an abandoned thread with a new one, which has a name of its own."""
        with self._lock:
            fresh = self._make()
            self._useful[self._useful.index(lost)] = fresh
            self._abandoned.append(lost)
        fresh.start()

    def busy_longer_than(self, seconds: float) -> list[Thread]:
        """The active threads that have been at one job or step for longer than that."""
        now = time.monotonic()
        return [thread for thread in self._useful if thread.has_been_at_it(now) > seconds]

    def _make(self) -> Thread:
        self._made += 1
        return Thread(self._made, self._work)
