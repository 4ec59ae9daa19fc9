"""Fires timers: sleeps until the next is due, or until a change stream reports an earlier one."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bson.timestamp import Timestamp
from prometheus_client import CollectorRegistry
from pymongo.database import Database

from linedesk.runtime.backoff import growing_seconds
from linedesk.runtime.liveness import moment
from linedesk.runtime.thread import BackgroundThread
from linedesk.scheduler.firing import BATCH_ROWS, Guarded, Inserting, TimerFiring
from linedesk.scheduler.listener import (
    LONGEST_PAUSE_SECONDS,
    STEP_SECONDS,
    TROUBLE,
    ScheduleListener,
    Trouble,
)
from linedesk.scheduler.metrics import SchedulerMetrics
from linedesk.store.documents import SCHEDULE
from linedesk.store.queue.guard import EVERY_SECONDS

log = logging.getLogger(__name__)

# The interval at which an idle scheduler reads the clock, which may have been set.
CLOCK_SECONDS = 1.0
# The guard checks recvq this long before a timer is due, so that the timer does not wait for it.
AHEAD_SECONDS = 0.1
# A clock that falls behind by more was set back; smaller differences come from a busy machine.
STEP_BACK_SECONDS = 1.0
# The pauses after a round that moved no row: other schedulers were faster, or the rows cannot move.
BEATEN_SECONDS = 0.05
MOST_BEATEN_SECONDS = 3.0
JOIN_SECONDS = 10.0
# The time limit of one batch of timers, or of all daily ones after a clock was set back.
LOOK_SECONDS = 600.0


@dataclass(frozen=True)
class SchedulerLimits:
    """Batch sizes and time limits."""

    batch_rows: int = BATCH_ROWS
    clock_seconds: float = CLOCK_SECONDS
    step_back_seconds: float = STEP_BACK_SECONDS
    listen_seconds: float = STEP_SECONDS
    longest_pause_seconds: float = LONGEST_PAUSE_SECONDS
    guard_seconds: float = EVERY_SECONDS
    """The greatest age of the guard's check that an insert may use."""


SCHEDULER_LIMITS = SchedulerLimits()


def system_now() -> datetime:
    """This machine's clock."""
    return datetime.now(UTC)


class Scheduler(BackgroundThread):
    """Fires timers on its own thread until it is stopped; another thread watches for new timers.

    `listening` is the same database on a client that quickly detects a lost server. `now` returns
    the time by which timers are due: code that moves that clock calls `wake`. Any number of
    schedulers may run on one database; each timer still fires once. Inserts use `inserting(bytes)`,
    by default of its own guard. `registry` has its figures.
    """

    def __init__(
        self,
        database: Database[Any],
        listening: Database[Any],
        *,
        now: Callable[[], datetime] = system_now,
        inserting: Inserting | None = None,
        registry: CollectorRegistry | None = None,
        limits: SchedulerLimits = SCHEDULER_LIMITS,
    ) -> None:
        super().__init__("scheduler", self._run, limit_seconds=LOOK_SECONDS)
        self._now = now
        self._limits = limits
        self._guarded = Guarded(database, every_seconds=limits.guard_seconds)
        self._figures = SchedulerMetrics(registry)
        self._firing = TimerFiring(
            database,
            inserting=inserting or self._guarded.inserting,
            now=now,
            figures=self._figures,
            batch_rows=limits.batch_rows,
        )
        self.listener = ScheduleListener(
            listening[SCHEDULE],
            self._heard,
            step_seconds=limits.listen_seconds,
            longest_pause_seconds=limits.longest_pause_seconds,
        )
        self._trouble = Trouble(
            "timers cannot be fired",
            over="timers are fired again",
            longest_pause_seconds=limits.longest_pause_seconds,
        )
        self._most = limits.batch_rows
        self._steps = ClockSteps(limits.step_back_seconds)
        # At the start, too: the clock may have been ahead when its predecessor fired timers.
        self._must_bring_back = True
        self._wake = threading.Event()
        self._lock = threading.Lock()
        # Under _lock: the time of the thread's next round; None during a round or if no timer
        # waits.
        self._due_at: datetime | None = None
        # Under _lock: the server's time of the newest change received.
        self._seen: Timestamp | None = None

    def start(self) -> None:
        """Start firing timers; after a `stop` it ends at once."""
        self.listener.start()
        super().start()

    def stop(self) -> None:
        """Begin no further batch; may be called at any time, repeatedly."""
        super().stop()
        self._wake.set()
        self.listener.stop()

    def join(self, timeout_seconds: float = JOIN_SECONDS) -> bool:
        """Wait for the end of both threads; returns whether they have ended."""
        deadline = time.monotonic() + timeout_seconds
        has_ended = super().join(timeout_seconds)
        return self.listener.join(max(0.0, deadline - time.monotonic())) and has_ended

    def wake(self) -> None:
        """Begin a round at once: the clock was moved."""
        self._wake.set()

    def stalled(self) -> str | None:
        """A message that names a hanging thread; None while both make progress."""
        return super().stalled() or self.listener.stalled()

    def status(self) -> str:
        """Failures, the number of timers fired since the start, and the next due time."""
        with self._lock:
            due_at = self._due_at
        words = [
            self._trouble.told,
            self.listener.trouble,
            f"{self._figures.fired} timers fired",
            f"next due {moment(due_at)}" if due_at is not None else None,
        ]
        return ", ".join(word for word in words if word)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.activity.busy()
            try:
                due_at = self._look()
            except TROUBLE as error:
                # Halved with each failure: a whole batch may need more room or time than there is.
                self._most = max(1, self._most // 2)
                self._stop.wait(self._trouble.met(error))
            else:
                self._trouble.over()
                self._most = self._limits.batch_rows
                self._sleep_until(due_at)

    def _look(self) -> datetime | None:
        """Fire all due timers; returns the time of the next one."""
        seen, beaten = self._begin_look(), 0
        while not self._stop.is_set():
            self.activity.busy()
            settled = self._firing.fire(seen=seen, most=self._most)
            if settled is None:
                break
            beaten = 0 if settled else beaten + 1
            if beaten:
                self._stop.wait(
                    growing_seconds(beaten, first=BEATEN_SECONDS, most=MOST_BEATEN_SECONDS)
                )
        if self._must_bring_back:
            self._firing.bring_back(seen=seen, stop=self._stop)
            self._must_bring_back = False
        return self._firing.next_at(seen=seen)

    def _begin_look(self) -> Timestamp | None:
        """Begin a round: from here on each change received ends the sleep after it."""
        with self._lock:
            self._due_at = None
            self._wake.clear()
            return self._seen

    def _heard(self, run_at: datetime | None, time: Timestamp | None) -> None:
        with self._lock:
            # Also an earlier time, such as of a restored server: then all rows are read again.
            self._seen = time or self._seen
            if run_at is None or self._due_at is None or run_at < self._due_at:
                self._wake.set()

    def _sleep_until(self, due_at: datetime | None) -> None:
        with self._lock:
            # guard: heard-during-the-look ->
            #     self._due_at = due_at
            #     self._wake.clear()
            self._due_at = due_at
        self.activity.idle()
        ahead = AHEAD_SECONDS
        while not (self._stop.is_set() or self._wake.is_set()):
            now = self._now()
            if self._steps.back(now):
                self._must_bring_back = True
                return
            left = math.inf if due_at is None else (due_at - now).total_seconds()
            self._figures.next_in(None if due_at is None else left)
            if left <= 0:
                return
            if left <= ahead:
                ahead = 0.0
                self._look_ahead()
            else:
                self._wake.wait(min(left - ahead, self._limits.clock_seconds))

    def _look_ahead(self) -> None:
        self.activity.busy()
        # After a failure here the insert checks again and reports its error.
        with suppress(*TROUBLE):
            self._guarded.look_ahead()
        self.activity.idle()


class ClockSteps:
    """Detects a clock that was set back, by comparison with the monotonic clock."""

    def __init__(self, step_back_seconds: float) -> None:
        self._step_back_seconds = step_back_seconds
        self._ahead: float | None = None

    def back(self, now: datetime) -> bool:
        """Whether the clock has fallen behind since the last call."""
        ahead = now.timestamp() - time.monotonic()
        before = ahead if self._ahead is None else self._ahead
        if ahead < before - self._step_back_seconds:
            log.info("clock was set back seconds=%.1f", before - ahead)
            self._ahead = ahead
            return True
        self._ahead = max(ahead, before)
        return False
