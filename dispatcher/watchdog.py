"""Overdue handlers and stalled threads, and the report to the service manager each second.

The report comes from a thread of its own, since the main thread may be in a call of MongoDB. It
goes by the activity that other threads note.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dispatcher.feed.reader import FeedReader
from dispatcher.keyed.pool import Pool
from dispatcher.keyed.queues import Run
from linedesk.contract import Worker
from linedesk.runtime.liveness import ThreadActivity
from linedesk.runtime.metrics import MetricsSnapshot
from linedesk.runtime.service_manager import ServiceManager, word_seconds
from linedesk.runtime.thread import BackgroundThread, Component

log = logging.getLogger(__name__)

# What one job or step takes at the longest, its handler apart. One command of MongoDB: 5 s to
# select a server and 20 s for its answer, twice, since the driver tries once more. A job makes at
# most ten of them to settle its record. A step waits up to 60 s for the interval, notes its try,
# calls LINE in 13 s and writes down the answer. Beyond this a thread hangs where nothing may.
STEP_SECONDS = 600.0
# The feed brings a document at least this often, be it a heartbeat, or says what it waits for; so
# it has as long once it waits no more.
FEED_SECONDS = 90.0


class Watchdog:
    """Looks at the pool, the reader and all the other parts.

    `handler_seconds` is how long a handler without a limit of its own may run, `step_seconds` how
    long any other step of a job may take.
    """

    def __init__(
        self,
        pool: Pool,
        reader: FeedReader,
        worker: Worker,
        parts: Sequence[Component],
        *,
        threads: int,
        handler_seconds: float,
        feed_seconds: float = FEED_SECONDS,
        step_seconds: float = STEP_SECONDS,
    ) -> None:
        self._pool = pool
        self._reader = reader
        self._worker = worker
        self.parts = parts
        """Those beside the pool and the reader."""
        self._threads = threads
        self._handler_seconds = handler_seconds
        self.feed_seconds = feed_seconds
        """For how long the feed may bring nothing and give no reason."""
        self._step_seconds = step_seconds
        self._said: str | None = None

    def look(self) -> bool:
        """Look once; False if so many threads are lost that the process has to be restarted."""
        self._abandon_overdue()
        stall = self.stalled()
        if stall is not None and stall != self._said:
            log.error("stalled: %s", stall)
        self._said = stall
        return self._has_threads_left()

    def stalled(self) -> str | None:
        """What hangs although it may not, in words; None while all goes on.

        Every thread is within the limit of its step, and the feed has delivered lately or waits
        for something that has a name, and has said so lately.
        """
        late = self._pool.hanging(self._handler_seconds, self._step_seconds)
        if late:
            return f"a thread hangs {late[0]}"
        for part in self.parts:
            if (stall := part.stalled()) is not None:
                return stall
        if self._reader.quiet_seconds() > self.feed_seconds and self._reader.reason.fresh() is None:
            return "the feed brings nothing, not even a heartbeat"
        return None

    def _abandon_overdue(self) -> None:
        for thread in self._pool.abandon_overdue(self._handler_seconds):
            run = thread.work
            assert isinstance(run, Run), "only a handler is abandoned"
            log.error(
                "handler did not return, abandoned event_id=%s thread=%s seconds=%.1f",
                run.name,
                thread.name,
                thread.has_been_at_it(time.monotonic()),
            )
            self._worker.did_not_return(run.job, thread.stack)

    def _has_threads_left(self) -> bool:
        lost = self._pool.abandoned()
        if len(lost) < self._threads:
            return True
        log.error("as many handlers hang as there are threads, stopping threads=%d", len(lost))
        for doing in lost:
            log.error("abandoned thread still runs %s", doing)
        return False


# Each word of a start or a stop is good for so long: thirty of them may get lost.
MORE_SECONDS = 30.0

STARTING, WAITING, STANDBY, WORKING = "starting", "waiting", "standby", "working"
STALLED, STOPPING = "stalled", "stopping"

Words = Callable[[], str]


class Reported(NamedTuple):
    """What was told last, with the figures that it was made of."""

    state: str = STARTING
    words: str = ""
    figures: MetricsSnapshot = MetricsSnapshot()


class WatchdogReporter(BackgroundThread):
    """One process's; its methods but `stop` are for the main thread.

    `look` takes the figures of the moment, and comes before each word.
    """

    def __init__(
        self,
        service: ServiceManager,
        *,
        look: Callable[[], MetricsSnapshot] = MetricsSnapshot,
        step_seconds: float = STEP_SECONDS,
    ) -> None:
        super().__init__("report", self._run)
        self._service = service
        self._look = look
        self._main = ThreadActivity("main", limit_seconds=step_seconds)
        self.told = Reported()
        """The last word; replaced as a whole, for anybody to read."""
        # So that nothing is told that was overtaken.
        self._lock = threading.Lock()
        # Under _lock.
        self._is_ready = False
        self._again: Callable[[], None] = lambda: None

    def beat(self) -> None:
        """The main thread goes on to its next call."""
        self._main.busy()

    def waiting(self, status: str, *, state: str = STARTING) -> None:
        """Not at work yet; the main thread has to `beat` meanwhile."""
        self.beat()
        self._say(lambda: status, lambda: state, stalled=self._main.stalled, tell=self._wait)

    def standby(self, status: str) -> None:
        """Another one is at work, and nobody is to wait for that: this one is ready."""
        self._be_ready(status)
        self.waiting(status, state=STANDBY)

    def working(self, status: Words, state: Words, *, stalled: Callable[[], str | None]) -> None:
        """At work, as long as nothing is `stalled`; the main thread has to `beat`."""
        self.beat()
        with self._lock:
            self._look()
        self._be_ready(status())
        self._say(
            status,
            state,
            stalled=lambda: self._main.stalled() or stalled(),
            tell=self._service.alive,
        )

    def stopping(self, status: Words, *, within_seconds: float) -> None:
        """On the way to the end, for so long at the most."""
        until = time.monotonic() + within_seconds
        self._say(
            status,
            lambda: STOPPING,
            stalled=lambda: "does not end" if time.monotonic() > until else None,
            tell=lambda words: self._service.stopping(words, seconds=MORE_SECONDS),
        )

    def _say(
        self,
        status: Words,
        state: Words,
        *,
        stalled: Callable[[], str | None],
        tell: Callable[[str], None],
    ) -> None:
        """At once, and again each second."""

        def say() -> None:
            figures, why = self._look(), stalled()
            if why is None:
                self.told = Reported(state(), status(), figures)
                tell(self.told.words)
            else:
                self.told = Reported(STALLED, f"stalled: {why}", figures)
                self._service.unwell(self.told.words)

        with self._lock:
            self._again = say
            say()

    def _wait(self, status: str) -> None:
        if self._is_ready:
            self._service.alive(status)
        else:
            self._service.starting(status, seconds=MORE_SECONDS)

    def _be_ready(self, status: str) -> None:
        with self._lock:
            if not self._is_ready:
                self._is_ready = True
                self._service.ready(status)

    def _run(self) -> None:
        while not self._stop.wait(word_seconds(self._service)):
            with self._lock:
                self._again()
