"""The thread that owns the feed, and the state machine that decides its next step.

It opens the feed, reads it into the pool and opens it again after failures. It scans recvq for
documents that a feed has lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container
from enum import Enum
from typing import Any

from bson.timestamp import Timestamp

from dispatcher.feed.feed import FEED_LIMITS, Feed, FeedItem, FeedLimits, PositionLost, RecvqGone
from dispatcher.feed.heartbeat import Heartbeat, Stalled
from dispatcher.feed.rescan import Rescan, ScanPass
from dispatcher.keyed.pool import Pool
from dispatcher.keyed.saver import Saver
from linedesk.runtime.liveness import AWAY, WaitReason
from linedesk.runtime.thread import BackgroundThread
from linedesk.store.documents import Document, has_a_place, is_heartbeat
from linedesk.store.errors import StoreUnavailable, WrongCollection

log = logging.getLogger(__name__)

ROOM_SECONDS = 0.2
FINISH_LOOK_SECONDS = 0.05

OPENING = "opening the feed"
SCANNING = "scanning recvq"


class ReaderState(Enum):
    """The reader's next step."""

    SCANNING = "scanning"
    """There is no position: scan all of recvq that may be unfinished."""
    OPENING = "opening"
    """Open the feed at the position, or at the start of the scan."""
    READING = "reading"
    """Read the feed."""
    BACKOFF = "backing off"
    """Pause, longer after each failure."""
    STOPPED = "stopped"


class ReaderMachine:
    """The reader's next step and the facts it depends on: no threads, no I/O, no clock.

    The reader carries out `state` and reports the result by calling a method. Each cell is the next
    state; an empty cell cannot happen. RESUME is the next state after a pause: SCANNING without a
    position, else OPENING.

    | event | SCANNING | OPENING | READING | BACKOFF |
    | --- | --- | --- | --- | --- |
    | scanned | OPENING | | | |
    | opened | | READING | | |
    | delivered | SCANNING | | READING | |
    | moved | | | READING | |
    | lost | | BACKOFF | BACKOFF | |
    | unavailable | BACKOFF | BACKOFF | BACKOFF | |
    | stalled | | | BACKOFF | |
    | paused | | | | RESUME |
    | stopped | STOPPED | STOPPED | STOPPED | STOPPED |
    """

    def __init__(self, token: Any, *, healthy_seconds: float = FeedLimits.healthy_seconds) -> None:
        self.token = token
        """Where the feed continues; None without a position."""
        self.start: ScanPass | None = None
        """The scan after which the feed has to begin; None once it was opened there."""
        self.seen: Container[Any] = ()
        """Ids that the last scan met: the stream delivers them once more."""
        self.cause: PositionLost | None = None
        """Why the next scan is needed; None at the very first start."""
        self.losses = 0
        """How many times the position was lost."""
        self.failures = 0
        """The number of failures in short succession, which determines the pause."""
        self.is_mute = False
        """It was opened and delivered no heartbeat: the next opening needs no pause."""
        self._healthy_seconds = healthy_seconds
        self._is_silent = True
        # When the feed was opened; None after that was counted.
        self._opened_at: float | None = None
        self.state = self._resume()

    @property
    def reads(self) -> bool:
        """Whether the feed is open."""
        return self.state is ReaderState.READING

    def scanned(self, start: ScanPass) -> None:
        """All documents of recvq that may be unfinished were handed over."""
        self._go(ReaderState.OPENING, ReaderState.SCANNING)
        self.start = start

    def opened(self, now: float) -> None:
        """The feed is open, at the token or at the start of the scan."""
        self._go(ReaderState.READING, ReaderState.OPENING)
        if self.start is not None:
            self.seen, self.start, self.cause = self.start.seen, None, None
        self._opened_at = now

    def answered(self) -> bool:
        """The feed answered a read; returns whether it had failed before."""
        is_news, self._is_silent = self._is_silent and self.failures > 0, False
        return is_news

    def delivered(self, token: Any) -> None:
        """The feed or a scan delivered a document; without a token the position stays."""
        self._go(self.state, ReaderState.SCANNING, ReaderState.READING)
        self.is_mute = False
        if token is not None:
            self.token = token

    def moved(self, token: Any) -> None:
        """The feed delivered no document, and its position is `token`."""
        self._go(self.state, ReaderState.READING)
        self.token = token

    def lost(self, cause: PositionLost, now: float) -> None:
        """The feed cannot continue from its token."""
        self._fail(now, ReaderState.OPENING, ReaderState.READING)
        self.token, self.seen = None, ()
        self.cause = cause
        self.losses += 1

    def unavailable(self, now: float) -> None:
        """The present step failed and may be tried again."""
        self._fail(now, ReaderState.SCANNING, ReaderState.OPENING, ReaderState.READING)

    def stalled(self, now: float) -> None:
        """The feed is open but does not deliver a document that is known to be stored."""
        self._fail(now, ReaderState.READING)
        self.is_mute = True

    def paused(self) -> None:
        """The pause after a failure is over."""
        self._go(self._resume(), ReaderState.BACKOFF)

    def stopped(self) -> None:
        """The end; no step follows."""
        self.state = ReaderState.STOPPED

    def _resume(self) -> ReaderState:
        return ReaderState.SCANNING if self.token is None else ReaderState.OPENING

    def _fail(self, now: float, *before: ReaderState) -> None:
        self._go(ReaderState.BACKOFF, *before)
        # A scan is valid for one opening only: the next one may forget the ids it has `seen`.
        self.start, self._is_silent = None, True
        opened_at, self._opened_at = self._opened_at, None
        if opened_at is not None and now - opened_at > self._healthy_seconds:
            self.failures = 0
        self.failures += 1

    def _go(self, after: ReaderState, *before: ReaderState) -> None:
        if self.state not in before:
            raise RuntimeError(f"not while {self.state.value}")
        self.state = after


class FeedReader(BackgroundThread):
    """Reads the feed into the pool until it is stopped; `ReaderMachine` decides each step.

    `token` is the saved position of a predecessor in this feed, None without one. `epoch_began` is
    the server's time of the takeover: a predecessor may have decided documents stored before it.
    """

    def __init__(
        self,
        feed: Feed,
        rescan: Rescan,
        pool: Pool,
        saver: Saver,
        *,
        token: Any,
        epoch_began: Timestamp,
        has_room: Callable[[], bool],
        heartbeat: Heartbeat,
        limits: FeedLimits = FEED_LIMITS,
    ) -> None:
        super().__init__("feed", self._run)
        self._feed = feed
        self._rescan = rescan
        self._pool = pool
        self._saver = saver
        self._epoch_began = epoch_began
        self._has_room = has_room
        self._heartbeat = heartbeat
        self._limits = limits
        self._machine = ReaderMachine(token, healthy_seconds=limits.healthy_seconds)
        self.reason = WaitReason(renew_seconds=limits.renew_seconds)
        """Why the feed delivers no documents at present, if there is a known reason."""
        self.delivered_at = time.monotonic()
        """Monotonic time of the last document, heartbeats included."""

    def quiet_seconds(self) -> float:
        """Return how long the feed has delivered nothing, without a known reason."""
        return time.monotonic() - max(self.delivered_at, self.reason.renewed_at)

    @property
    def is_reading(self) -> bool:
        """Whether the feed is open."""
        return self._machine.reads

    def lost_history(self) -> int:
        """How many times the feed lost its position since the start of the process."""
        return self._machine.losses

    def _run(self) -> None:
        steps = {
            ReaderState.SCANNING: self._scan,
            ReaderState.OPENING: self._open,
            ReaderState.READING: self._read,
            ReaderState.BACKOFF: self._back_off,
        }
        try:
            while not self._stop.is_set():
                self._do(steps[self._machine.state])
        finally:
            self._machine.stopped()
            self._feed.close()

    def _do(self, step: Callable[[], None]) -> None:
        try:
            step()
        except PositionLost as error:
            self._feed.close()
            if isinstance(error, RecvqGone):
                in_hand, after = self._pool.standing()
                told = (
                    'recvq is gone, its documents are finished first how="%s" in_hand=%d after=%s'
                )
                log.error(told, error, in_hand, after)  # noqa: TRY400
                if not self._finish():
                    return
            self._machine.lost(error, time.monotonic())
            self._forget_position(error)
        except Stalled as error:
            self._machine.stalled(time.monotonic())
            self._fails(error, None)
        except StoreUnavailable as error:
            self._machine.unavailable(time.monotonic())
            self._fails(error, AWAY)

    def _fails(self, error: StoreUnavailable, why: str | None) -> None:
        self.reason.set(why)
        log.warning("feed unavailable, opening it again error=%s", error)

    def _back_off(self) -> None:
        self._stop.wait(self._limits.pause_seconds(self._machine.failures))
        self._machine.paused()

    # Lost positions, and a recvq that is gone.

    def _forget_position(self, cause: PositionLost) -> None:
        name = self._feed.name
        log.info("feed lost its position, scanning recvq feed=%s cause=%s", name, cause)
        self.reason.set(SCANNING)
        self._pool.forget_token()

    def _scan(self) -> None:
        """Scan recvq for documents that may be unfinished (G9).

        A kill may end each step. The token is therefore forgotten durably first, and every later
        step checks the present state.
        """
        if not self._saver.save():
            raise StoreUnavailable("the lost position could not be forgotten durably")
        began, cause = time.monotonic(), self._machine.cause
        # One step under the pool's lock: documents that finish during the scan must not look new to
        # it.
        after = self._pool.begin_scan()
        log.info("scanning recvq after=%s", after)
        try:
            start = self._rescan.scan(after, self._take, self._is_over)
        except WrongCollection:
            if self._finish():
                raise
            return
        if start is None:
            return
        log.log(
            logging.INFO if cause is None else logging.WARNING,
            "recvq scanned, streaming from %s documents=%d new=%d seconds=%.1f after=%s cause=%s",
            start.operation_time,
            start.taken,
            start.new,
            time.monotonic() - began,
            after,
            cause or "first start",
        )
        self._machine.scanned(start)

    def _is_over(self) -> bool:
        """Asked at each row of a scan: it may take long until the first document is handed over."""
        self.reason.set(SCANNING)
        return self._stop.is_set()

    def _finish(self) -> bool:
        """Finish and save all documents of the recvq that is gone; False if stopped before.

        Until then the token stays saved: after a crash the oplog still has what recvq has lost.
        """
        # guard: finished-before-forgotten -> while False:
        while self._pool.standing()[0] > 0 or not self._saver.save():
            self.reason.set("recvq is gone: its documents have to be finished")
            if self._stop.wait(FINISH_LOOK_SECONDS):
                return False
        return True

    # Opening.

    def _open(self) -> None:
        if not self._machine.is_mute and self.reason.text != AWAY:
            self.reason.set(OPENING)
        if (start := self._machine.start) is not None:
            self._feed.open_at(start.operation_time)
            self._pool.end_scan()
        else:
            self._feed.open(self._machine.token)
        self._machine.opened(time.monotonic())
        self._heartbeat.heard()
        if not self._machine.is_mute:
            # The outage is over: the feed now has its full time to deliver.
            self.reason.set(OPENING)

    # Reading.

    def _take(self, document: Document) -> bool:
        while not self._may_read():
            if self._stop.is_set():
                return False
        self._delivers(None, SCANNING)
        return self._enter(document, None, again=True)

    def _enter(self, document: Document, token: Any, *, again: bool) -> bool:
        if is_heartbeat(document):
            self._pool.put_finished(document, token)
            return False
        return self._pool.put(document, token, again=again)

    def _delivers(self, token: Any, why: str | None) -> None:
        self._machine.delivered(token)
        self.delivered_at = time.monotonic()
        self.reason.set(why)

    def _may_read(self) -> bool:
        """Return whether there is room for one more document, after a short wait for it."""
        if not self._has_room():
            self.reason.set("too many effects wait to be carried out")
            self._stop.wait(ROOM_SECONDS)
            return False
        if not self._pool.wait_for_room(ROOM_SECONDS):
            paused = ", some are paused" if self._pool.pauses else ""
            self.reason.set(f"too many documents in hand{paused}")
            return False
        return True

    def _read(self) -> None:
        if not self._may_read():
            self._heartbeat.heard()
            return
        item = self._ask()
        if item is None:
            self._machine.moved(self._feed.token)
            self._pool.move(self._machine.token)
            self._be_quiet()
            return
        self._heartbeat.heard()
        document, token, stored_at = item
        self._delivers(token, None)
        if not has_a_place(document):
            log.error("not a front desk document, skipped id=%s", document["_id"])
            self._pool.move(token)
        elif document["_id"] in self._machine.seen:
            self._pool.move(token)
        else:
            self._enter(document, token, again=stored_at <= self._epoch_began)

    def _ask(self) -> FeedItem | None:
        began = time.monotonic()
        item = self._feed.read()
        took = time.monotonic() - began
        if took > self._limits.slow_read_seconds:
            log.warning("the server answered the feed late seconds=%.1f", took)
        if self._machine.answered():
            log.info("feed delivers again feed=%s", self._feed.name)
        return item

    def _be_quiet(self) -> None:
        """The work while the feed is quiet; raises StoreUnavailable."""
        self._heartbeat.quiet()
        self.reason.set(self._heartbeat.refused)
