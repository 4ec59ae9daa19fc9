"""Finds overdue handlers and stalled threads, and reports to the service manager each second.

The report comes from a thread of its own, because the main thread may be in a call of MongoDB. It
uses the activity that other threads note.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dispatcher.conversations.mailbox import Run
from dispatcher.feed.reader import FeedReader
from dispatcher.pool.pool import Pool
from dispatcher.pool.threads import Thread
from jobworker.assembly import BotWorker
from linedesk.runtime.liveness import ThreadActivity
from linedesk.runtime.metrics import MetricsSnapshot
from linedesk.runtime.service_manager import ServiceManager, word_seconds
from linedesk.runtime.thread import BackgroundThread

log = logging.getLogger(__name__)

# The longest time of one job or step, without its handler. One command of MongoDB takes 5 s to
# select a server and 20 s for its answer, twice, since the driver retries once. A job makes at most
# ten commands to settle its record. A step waits up to 60 s for the interval, notes its try, calls
# LINE in 13 s and stores the answer. A thread that takes longer hangs.
STEP_SECONDS = 600.0
# The feed delivers a document (perhaps a heartbeat) or names a wait reason at least this often.
# After a wait it has this time again.
FEED_SECONDS = 90.0


class Watchdog:
    """Checks all parts; `handler_seconds` limits most handlers."""

    def __init__(
        self,
        pool: Pool,
        reader: FeedReader,
        worker: BotWorker,
        parts: Sequence[BackgroundThread],
        *,
        handler_seconds: float,
    ) -> None:
        self._pool = pool
        self._reader = reader
        self._worker = worker
        self.parts = parts
        """The parts in addition to the pool and the reader."""
        self._handler_seconds = handler_seconds
        self._said: str | None = None

    def look(self) -> bool:
        """Check once; False if so many threads are lost that the process has to be restarted."""
        self._abandon_overdue()
        stall = self.stalled()
        if stall is not None and stall != self._said:
            log.error("stalled: %s", stall)
        self._said = stall
        return self._worker.watch_async(self._handler_seconds) and self._has_threads_left()

    def stalled(self) -> str | None:
        """Return the part that hangs unexpectedly, as a text; None if there is none.

        Every thread must be within the limit of its step. The feed must have delivered recently, or
        have named a wait reason recently.
        """
        if late := self._late():
            return f"a thread hangs {late[0].doing}"
        for part in self.parts:
            if (stall := part.stalled()) is not None:
                return stall
        if self._reader.quiet_seconds() > FEED_SECONDS and self._reader.reason.fresh() is None:
            return "the feed delivers nothing, not even a heartbeat"
        return None

    @property
    def blames_no_job(self) -> bool:
        """Whether the last check found a stall, and no job hangs."""
        return self._said is not None and not any(one.job is not None for one in self._late())

    def _late(self) -> list[Thread]:
        return self._pool.threads.hanging(self._handler_seconds, STEP_SECONDS)

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
            wait = self._worker.did_not_return(run.job, thread.stack)
            self._pool.wait(run.job, wait)

    def _has_threads_left(self) -> bool:
        lost = self._pool.threads.abandoned()
        if len(lost) < len(self._pool.threads.useful):
            return True
        log.error("as many handlers hang as there are threads, stopping threads=%d", len(lost))
        for doing in lost:
            log.error("abandoned thread still runs %s", doing)
        return False


# Each report of a start or a stop is valid for this long: thirty of them may get lost.
MORE_SECONDS = 30.0

STARTING, WAITING, STANDBY, WORKING = "starting", "waiting", "standby", "working"
STALLED, STOPPING = "stalled", "stopping"

Words = Callable[[], str]


class Reported(NamedTuple):
    """The last report, with the figures it was made from."""

    state: str = STARTING
    words: str = ""
    figures: MetricsSnapshot = MetricsSnapshot()


class WatchdogReporter(BackgroundThread):
    """The reports of one process, by its main thread; `look` reads the figures for each report."""

    def __init__(
        self,
        service: ServiceManager,
        *,
        look: Callable[[], MetricsSnapshot] = MetricsSnapshot,
    ) -> None:
        super().__init__("report", self._run)
        self._service = service
        self._look = look
        self._main = ThreadActivity("main", limit_seconds=STEP_SECONDS)
        self.told = Reported()
        """The last report; replaced as a whole, so that any thread may read it."""
        # So that no outdated report is sent.
        self._lock = threading.Lock()
        # Under _lock.
        self._is_ready = False
        self._again: Callable[[], None] = lambda: None

    def beat(self) -> None:
        """Note that the main thread continues with its next call."""
        self._main.busy()

    def waiting(self, status: str, *, state: str = STARTING) -> None:
        """Report that the process is not active yet; the main thread has to `beat` meanwhile."""
        self.beat()
        self._say(lambda: status, lambda: state, stalled=self._main.stalled, tell=self._wait)

    def standby(self, status: str) -> None:
        """Report readiness as a standby: no service has to wait until this process leads."""
        self._be_ready(status)
        self.waiting(status, state=STANDBY)

    def working(self, status: Words, state: Words, *, stalled: Callable[[], str | None]) -> None:
        """Report work while no part is `stalled`; the main thread has to `beat`."""
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
        """Report the stop, which takes at most this long."""
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
        """Report at once, and again each second."""

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
