"""The thread that fires timers while the process holds the lease.

It sleeps until the next row of `schedule` is due. The jobworker reports each row that it writes;
rows of other processes, and those typed by hand, are found by a read every ten seconds.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from bson.errors import BSONError
from prometheus_client import CollectorRegistry
from pymongo.database import Database
from pymongo.errors import OperationFailure, PyMongoError

from dispatcher.metrics import TimerMetrics
from dispatcher.timer_firing import BATCH_ROWS, TimerFiring
from linedesk.runtime.backoff import growing_seconds
from linedesk.runtime.liveness import moment
from linedesk.runtime.thread import BackgroundThread
from linedesk.store.errors import AUTHENTICATION_FAILED, AccessRefused, QueueError, StoreUnavailable
from linedesk.store.queue.guard import EVERY_SECONDS, Guard

log = logging.getLogger(__name__)

# All errors of MongoDB, recvq and the time zone files: timers survive each of them.
TROUBLE = (QueueError, PyMongoError, BSONError, OSError)

# The longest time without a read of `schedule`.
READ_SECONDS = 10.0
# The interval at which the idle thread reads the clock, which may have been set.
CLOCK_SECONDS = 1.0
# The guard checks recvq this long before a timer is due, so that the timer does not wait for it.
AHEAD_SECONDS = 0.1
# An insert within this time uses that check.
SOON_SECONDS = 0.2
# A clock that falls behind by more was set back; smaller differences come from a busy machine.
STEP_BACK_SECONDS = 1.0
# The pauses after a round that moved no row: another process was faster, or the rows cannot move.
BEATEN_SECONDS = 0.05
MOST_BEATEN_SECONDS = 3.0
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 3.0
# The time limit of one batch of timers, or of all daily ones after a clock was set back.
LOOK_SECONDS = 600.0


class LeaseNotFresh(QueueError):
    """Nothing fires: another process may have taken over."""


def system_now() -> datetime:
    return datetime.now(UTC)


class Timers(BackgroundThread):
    """Fires timers on its own thread, from the take-over until it is stopped.

    `now` returns the time by which timers are due: code that moves that clock calls `wake`.
    `registry` has its figures.
    """

    def __init__(
        self,
        database: Database[Any],
        *,
        lease_is_fresh: Callable[[], bool],
        now: Callable[[], datetime] = system_now,
        registry: CollectorRegistry | None = None,
    ) -> None:
        super().__init__("timers", self._run, limit_seconds=LOOK_SECONDS)
        self._lease_is_fresh = lease_is_fresh
        self._now = now
        self._guard = Guard(database, every_seconds=EVERY_SECONDS)
        self._figures = TimerMetrics(registry)
        self._firing = TimerFiring(database, self._guard, now=now, figures=self._figures)
        # The failures in a row, their latest reason, and as a text since when it lasts.
        self._failures = 0
        self._reason: str | None = None
        self._trouble: str | None = None
        self._most = BATCH_ROWS
        # How far the clock is ahead of the monotonic one.
        self._ahead = -math.inf
        # At the start, too: the clock may have been ahead when its predecessor fired timers.
        self._must_bring_back = True
        self._wake = threading.Event()
        self._lock = threading.Lock()
        # Under _lock: the time of the next look; None if no timer waits.
        self._due_at: datetime | None = None

    def set(self, due_at: datetime | None) -> None:
        """A row was written that is due then; None: it does not fire. From any thread, quick."""
        with self._lock:
            if due_at is not None and (self._due_at is None or due_at < self._due_at):
                self._due_at = due_at
                self._wake.set()

    def wake(self) -> None:
        """Read the clock at once: it was moved."""
        self._wake.set()

    def stop(self) -> None:
        """Begin no further batch; may be called at any time, repeatedly."""
        super().stop()
        self._wake.set()

    def status(self) -> str:
        """Failures, the number of timers fired since the start, and the next due time."""
        with self._lock:
            due_at = self._due_at
        words = [
            self._trouble,
            f"{self._figures.fired} timers fired",
            f"next due {moment(due_at)}" if due_at is not None else None,
        ]
        return ", ".join(word for word in words if word)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.activity.busy()
            try:
                self._look()
            except TROUBLE as error:
                # Halved with each failure: a whole batch may need more room or time than there is.
                self._most = max(1, self._most // 2)
                self._stop.wait(self._failed(error))
            else:
                self._recovered()
                self._sleep()

    def _failed(self, error: Exception) -> float:
        """Log a new reason; returns the pause. A refused password is raised: a restart reads it."""
        if isinstance(error, AccessRefused) and error.code == AUTHENTICATION_FAILED:
            raise error
        self._failures += 1
        reason = _reason(error)
        if reason != self._reason:
            self._reason = reason
            self._trouble = f"timers cannot be fired since {moment(datetime.now(UTC))}: {reason}"
            # Errors that a retry cannot fix, such as a missing right, need an operator.
            say = log.warning if isinstance(error, StoreUnavailable | LeaseNotFresh) else log.error
            say('timers cannot be fired, trying again reason="%s"', reason)
        return growing_seconds(
            self._failures, first=FIRST_PAUSE_SECONDS, most=LONGEST_PAUSE_SECONDS
        )

    def _recovered(self) -> None:
        if self._failures:
            log.info("timers are fired again tries=%d", self._failures)
        self._failures, self._reason, self._trouble = 0, None, None
        self._most = BATCH_ROWS

    def _look(self) -> None:
        """Fire all due timers, then note the time of the next one."""
        with self._lock:
            self._due_at = None
        beaten = 0
        while not self._stop.is_set():
            self.activity.busy()
            if not self._lease_is_fresh():
                raise LeaseNotFresh("the lease is not renewed")
            settled = self._firing.fire(most=self._most)
            if settled is None:
                break
            beaten = 0 if settled else beaten + 1
            if beaten:
                self._stop.wait(
                    growing_seconds(beaten, first=BEATEN_SECONDS, most=MOST_BEATEN_SECONDS)
                )
        if self._must_bring_back:
            self._firing.bring_back(stop=self._stop)
            self._must_bring_back = False
        # guard: set-during-the-look -> self._due_at = self._firing.next_at()
        self.set(self._firing.next_at())

    def _sleep(self) -> None:
        """Wait until a timer is due, the clock was set back, or the rows have to be read again."""
        self.activity.idle()
        ahead, until = AHEAD_SECONDS, time.monotonic() + READ_SECONDS
        while True:
            self._wake.clear()
            if self._stop.is_set() or time.monotonic() >= until:
                return
            with self._lock:
                due_at = self._due_at
            now = self._now()
            if self._was_set_back(now):
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
                self._wake.wait(min(left - ahead, CLOCK_SECONDS))

    def _was_set_back(self, now: datetime) -> bool:
        """Whether the clock has fallen behind the monotonic one since the last call."""
        ahead, before = now.timestamp() - time.monotonic(), self._ahead
        if ahead >= before - STEP_BACK_SECONDS:
            self._ahead = max(ahead, before)
            return False
        log.info("clock was set back seconds=%.1f", before - ahead)
        self._ahead = ahead
        return True

    def _look_ahead(self) -> None:
        self.activity.busy()
        # After a failure here the insert checks again and reports its error.
        with suppress(*TROUBLE):
            self._guard.look_when_due(ahead_seconds=SOON_SECONDS)
        self.activity.idle()


def _reason(error: Exception) -> str:
    if isinstance(error, OperationFailure):
        return f"MongoDB error {error.code}"
    return str(error) if isinstance(error, QueueError) else type(error).__name__
