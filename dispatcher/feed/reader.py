"""The thread that owns the feed, and the state machine that tells it what to do next.

It opens the feed, reads it into the pool, opens it again, and scans recvq for what a feed lost.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Container
from enum import Enum
from typing import Any

from bson.timestamp import Timestamp

from dispatcher.feed.feed import FEED_LIMITS, Feed, FeedItem, FeedLimits, PositionLost, RecvqGone
from dispatcher.feed.heartbeat import Heartbeat, Stalled
from dispatcher.feed.recovery import SCANNING, Recovery
from dispatcher.feed.rescan import Rescan, ScanPass
from dispatcher.keyed.pool import Pool
from dispatcher.keyed.saver import Saver
from linedesk.runtime.liveness import AWAY, WaitReason
from linedesk.runtime.thread import BackgroundThread
from linedesk.store.documents import Document, has_a_place, is_heartbeat
from linedesk.store.errors import StoreUnavailable
from linedesk.store.queue.repair import ANOTHER, CollectionRepair

log = logging.getLogger(__name__)

ROOM_SECONDS = 0.2
DRAIN_LOOK_SECONDS = 0.05

OPENING = "opening the feed"


class ReaderState(Enum):
    """What the reader does next."""

    SCANNING = "scanning"
    """It has no position: make recvq right, and scan all of it that may be unfinished."""
    OPENING = "opening"
    """Open the feed at the position, or where the scan began."""
    READING = "reading"
    """Read the feed."""
    READING_OLD = "reading the old recvq"
    """recvq is another one than the feed reads: read on, until all that was stored is visible."""
    READING_REST = "reading the rest of the old recvq"
    """All that was stored in the old one is where the feed brings it: read until it is quiet."""
    DRAINING = "draining"
    """The recvq that was read is gone: what it brought is finished and saved first."""
    BACKOFF = "backing off"
    """Wait, longer with each failure."""
    STOPPED = "stopped"


READS = frozenset({ReaderState.READING, ReaderState.READING_OLD, ReaderState.READING_REST})


class ReaderMachine:
    """What the reader does next, and what it has to know for that: no threads, no I/O, no clock.

    The reader does what `state` says and tells by a method how it ended. Each cell is the next
    state; an empty cell cannot happen. RESUME is what the facts ask for once a pause is over:
    DRAINING if a recvq is gone, else SCANNING without a position, else OPENING.

    | event | SCANNING | OPENING | READING | READING_OLD | READING_REST | DRAINING | BACKOFF |
    | --- | --- | --- | --- | --- | --- | --- | --- |
    | scanned | OPENING | | | | | | |
    | opened | | READING | | | | | |
    | delivered | SCANNING | | READING | READING_OLD | READING_REST | | |
    | moved | | | READING | READING_OLD | READING_REST | | |
    | replaced | | | READING_OLD | | | | |
    | visible | | | | READING_REST | | | |
    | same_again | | | | | READING | | |
    | went | | DRAINING | DRAINING | DRAINING | DRAINING | | |
    | drained | | | | | | BACKOFF | |
    | lost | | BACKOFF | BACKOFF | BACKOFF | BACKOFF | | |
    | unavailable | BACKOFF | BACKOFF | BACKOFF | BACKOFF | BACKOFF | BACKOFF | |
    | stalled | | | BACKOFF | BACKOFF | BACKOFF | | |
    | paused | | | | | | | RESUME |
    | stopped | STOPPED | STOPPED | STOPPED | STOPPED | STOPPED | STOPPED | STOPPED |
    """

    def __init__(self, token: Any, *, healthy_seconds: float = FeedLimits.healthy_seconds) -> None:
        self.token = token
        """Where the feed goes on; None if nowhere."""
        self.start: ScanPass | None = None
        """The scan behind which the feed is to begin, until it was opened there."""
        self.seen: Container[Any] = ()
        """Ids that the last scan met: the stream brings them once more."""
        self.gone: RecvqGone | None = None
        """How the recvq that was read went away, until all that it brought is finished."""
        self.cause: PositionLost | None = None
        """Why the next scan is needed; None at the very first start."""
        self.losses = 0
        """How often the position was lost."""
        self.failures = 0
        """How often it failed, one shortly after the other: what a pause depends on."""
        self.is_mute = False
        """It was opened and brought no heartbeat: opening it again is no reason to wait."""
        self._healthy_seconds = healthy_seconds
        self._is_silent = True
        # When the feed was opened; None once that has counted.
        self._opened_at: float | None = None
        self.state = self._resume()

    @property
    def reads(self) -> bool:
        """Whether the feed is open."""
        return self.state in READS

    def scanned(self, start: ScanPass) -> None:
        """All of recvq that may be unfinished was handed over."""
        self._go(ReaderState.OPENING, ReaderState.SCANNING)
        self.start = start

    def opened(self, now: float) -> None:
        """The feed is open, at the token or where the scan began."""
        self._go(ReaderState.READING, ReaderState.OPENING)
        if self.start is not None:
            self.seen, self.start, self.cause = self.start.seen, None, None
        self._opened_at = now

    def answered(self) -> bool:
        """The feed answered a read; whether that is news, after failures."""
        is_news, self._is_silent = self._is_silent and self.failures > 0, False
        return is_news

    def delivered(self, token: Any) -> None:
        """The feed or a scan brought a document; without a token the position stays."""
        self._go(self.state, ReaderState.SCANNING, *READS)
        self.is_mute = False
        if token is not None:
            self.token = token

    def moved(self, token: Any) -> None:
        """The feed brought nothing, and stands at `token`."""
        self._go(self.state, *READS)
        self.token = token

    def replaced(self) -> None:
        """recvq is another one than was opened, and the feed has not said so."""
        self._go(ReaderState.READING_OLD, ReaderState.READING)

    def visible(self) -> None:
        """All that was stored before is where the feed brings it."""
        self._go(ReaderState.READING_REST, ReaderState.READING_OLD)

    def same_again(self) -> None:
        """recvq is as it should be after all."""
        self._go(ReaderState.READING, ReaderState.READING_REST)

    def went(self, gone: RecvqGone) -> None:
        """The recvq that was read is another one now, or none, and was read to its end."""
        self._go(ReaderState.DRAINING, ReaderState.OPENING, *READS)
        self.gone = gone

    def drained(self, now: float) -> None:
        """All that the old recvq brought is finished and saved under its token."""
        self._fail(now, ReaderState.DRAINING)
        cause, self.gone = self.gone, None
        assert cause is not None, "what is drained is gone"
        self._lose(cause)

    def lost(self, cause: PositionLost, now: float) -> None:
        """The feed cannot go on from its token."""
        self._fail(now, ReaderState.OPENING, *READS)
        self._lose(cause)

    def unavailable(self, now: float) -> None:
        """What it was at failed, and may be tried again."""
        self._fail(now, ReaderState.SCANNING, ReaderState.OPENING, ReaderState.DRAINING, *READS)

    def stalled(self, now: float) -> None:
        """The feed is open, and does not bring what was surely stored."""
        self._fail(now, *READS)
        self.is_mute = True

    def paused(self) -> None:
        """The pause after a failure is over."""
        self._go(self._resume(), ReaderState.BACKOFF)

    def stopped(self) -> None:
        """Nothing follows."""
        self.state = ReaderState.STOPPED

    def _resume(self) -> ReaderState:
        if self.gone is not None:
            return ReaderState.DRAINING
        return ReaderState.SCANNING if self.token is None else ReaderState.OPENING

    def _lose(self, cause: PositionLost) -> None:
        self.token, self.seen = None, ()
        self.cause = cause
        self.losses += 1

    def _fail(self, now: float, *before: ReaderState) -> None:
        self._go(ReaderState.BACKOFF, *before)
        # A scan is good for one opening only: what it has `seen` may be forgotten by the next.
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
    """Reads the feed into the pool until it is stopped; `ReaderMachine` says what comes next.

    `token` is where a predecessor's progress stands in this very feed, None if nowhere.
    `epoch_began` is the server's time of taking over: what was stored up to then may have been
    decided by a predecessor.
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
        repair: CollectionRepair,
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
        self._repair = repair
        self._heartbeat = heartbeat
        self._limits = limits
        self._recovery = Recovery(rescan, pool, saver, repair)
        self._machine = ReaderMachine(token, healthy_seconds=limits.healthy_seconds)
        self._looked_at = -math.inf
        self.reason = WaitReason(renew_seconds=limits.renew_seconds)
        """Why the feed brings nothing for now, if that has a name."""
        self.delivered_at = time.monotonic()
        """Monotonic time of the last document that came, heartbeats included."""

    def quiet_seconds(self) -> float:
        """For how long it has brought nothing, not even a heartbeat, and named no reason."""
        return time.monotonic() - max(self.delivered_at, self.reason.renewed_at)

    @property
    def is_reading(self) -> bool:
        """Whether the feed is open."""
        return self._machine.reads

    def lost_history(self) -> int:
        """How often the feed could not go on where it stood, since the start of the process."""
        return self._machine.losses

    def _run(self) -> None:
        steps = {
            ReaderState.SCANNING: self._scan,
            ReaderState.OPENING: self._open,
            ReaderState.READING: self._read,
            ReaderState.READING_OLD: self._read,
            ReaderState.READING_REST: self._read,
            ReaderState.DRAINING: self._drain,
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
        except RecvqGone as gone:
            self._goes(gone)
        except PositionLost as error:
            self._feed.close()
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

    # A position that is lost, and a recvq that is gone.

    def _forget_position(self, cause: PositionLost) -> None:
        name = self._feed.name
        log.info("feed lost its position, scanning recvq feed=%s cause=%s", name, cause)
        self.reason.set(SCANNING)
        self._pool.forget_token()

    def _scan(self) -> None:
        start = self._recovery.scan(self._machine.cause, take=self._take, is_over=self._is_over)
        if start is not None:
            self._machine.scanned(start)

    def _is_over(self) -> bool:
        """Asked with each row of a scan, which may take long before the first is handed over."""
        self.reason.set(SCANNING)
        return self._stop.is_set()

    def _goes(self, gone: RecvqGone) -> None:
        self._feed.close()
        self._machine.went(gone)
        self._recovery.report(gone)

    def _drain(self) -> None:
        """Until all that the old recvq brought is finished and saved, its token is kept: after a
        crash the oplog still brings what recvq lost.
        """
        gone = self._machine.gone
        assert gone is not None, "only what is gone is drained"
        self.reason.set(f"{gone}: what it brought has to be finished")
        # guard: finished-before-made-anew -> never
        if self._pool.standing()[0] > 0:
            self._stop.wait(DRAIN_LOOK_SECONDS)
        elif self._saver.save():
            self._machine.drained(time.monotonic())
            self._forget_position(gone)
        else:
            self._machine.unavailable(time.monotonic())

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
            # The outage is over: from now on the feed has its time to bring something.
            self.reason.set(OPENING)
        self._look()

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
        """Whether there is room for one more, after a short wait for it."""
        if not self._has_room():
            self.reason.set("too much waits to be carried out")
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
            log.error("not a document of the front desk, passed over id=%s", document["_id"])
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
        """What is done while the feed brings nothing; raises StoreUnavailable, RecvqGone."""
        self._heartbeat.quiet()
        if self._machine.state is ReaderState.READING_OLD:
            self._rescan.wait_until_visible()
            self._machine.visible()
        elif self._machine.state is ReaderState.READING_REST:
            self._look_again()
        elif time.monotonic() - self._looked_at > self._limits.look_seconds:
            self._look()
        self.reason.set(self._heartbeat.refused)

    def _look(self) -> None:
        """See whether recvq is right, and mend at once what is mended in place."""
        wrong = self._repair.look()
        self._looked_at = time.monotonic()
        if wrong in ANOTHER:
            self._machine.replaced()
        elif wrong is not None:
            self._recovery.apply()

    def _look_again(self) -> None:
        """End the stream of a recvq that is another one now, since all of the old one was read."""
        wrong = self._repair.look()
        if wrong in ANOTHER:
            raise RecvqGone(f"found {wrong}")
        self._machine.same_again()
