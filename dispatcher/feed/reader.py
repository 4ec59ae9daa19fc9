"""The thread that owns the feed.

It opens the feed, reads it into the pool and opens it again after failures. It scans recvq for
documents that a feed has lost, and proves with a heartbeat that a quiet feed delivers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container
from datetime import UTC, datetime
from typing import Any

from bson.timestamp import Timestamp
from pymongo.collection import Collection

from dispatcher.commit.committer import Committer
from dispatcher.feed.feed import Feed, FeedItem, PositionLost, RecvqGone
from dispatcher.feed.rescan import Rescan, ScanPass
from dispatcher.pool.pool import Pool
from linedesk.runtime.backoff import pause_seconds
from linedesk.runtime.liveness import AWAY, WaitReason
from linedesk.runtime.outage import MONGODB
from linedesk.runtime.thread import BackgroundThread
from linedesk.store.documents import Document, has_a_place, is_heartbeat, make_heartbeat
from linedesk.store.errors import StoreUnavailable, WrongCollection
from linedesk.store.insert import insert_documents
from linedesk.store.queue.guard import Guard

log = logging.getLogger(__name__)

# After being open for longer than this, a feed's failures count from zero again. A feed whose next
# read fails right after each opening therefore rests longer each time.
HEALTHY_SECONDS = 5.0
# A longer read was not answered in time, and the driver repeated it by itself.
SLOW_READ_SECONDS = 2.0
ROOM_SECONDS = 0.2
FINISH_LOOK_SECONDS = 0.05
# A heartbeat is stored after the feed was quiet for this long, and has this long to come back.
HEARTBEAT_AFTER_SECONDS = 30.0
HEARTBEAT_BACK_SECONDS = 30.0
HEARTBEAT_INSERT_SECONDS = 5.0

OPENING = "opening the feed"
SCANNING = "scanning recvq"


class Stalled(StoreUnavailable):
    """The feed does not deliver a document that is known to be stored: open it again."""


class Heartbeat:
    """Proves that a quiet feed still delivers: a stored heartbeat document has to come back."""

    def __init__(self, recvq: Collection[Any], guard: Guard) -> None:
        self._recvq = recvq
        self._guard = guard
        self._quiet_since = time.monotonic()
        # When the heartbeat under way was confirmed; None without one.
        self._stored_at: float | None = None
        self.refused: str | None = None
        """Why recvq refused a heartbeat during this quiet period; None if it did not."""

    def heard(self) -> None:
        """Restart the quiet period: the feed delivered, was opened, or was not read."""
        self._quiet_since = time.monotonic()
        self._stored_at = None
        self.refused = None

    def quiet(self) -> None:
        """Handle a read without a document; stores a heartbeat when one is due.

        Raises Stalled if a heartbeat was stored HEARTBEAT_BACK_SECONDS ago and was not delivered.
        """
        now = time.monotonic()
        if self._stored_at is not None:
            if now - self._stored_at > HEARTBEAT_BACK_SECONDS:
                seconds = now - self._stored_at
                self.heard()
                log.error("the feed does not deliver: a heartbeat is missing seconds=%.0f", seconds)
                raise Stalled("a heartbeat did not come back")
        elif now - self._quiet_since > HEARTBEAT_AFTER_SECONDS:
            self._beat()

    def _beat(self) -> None:
        try:
            self._guard.look()
            if (closed := self._guard.closed) is not None:
                # Tried again after another quiet period; the guard reports why recvq is closed.
                self.heard()
                self.refused = f"recvq is closed: {closed}"
                return
            one = make_heartbeat(datetime.now(UTC))
            insert_documents(self._recvq, [one], timeout_seconds=HEARTBEAT_INSERT_SECONDS)
        except StoreUnavailable as error:
            self.heard()
            self.refused = AWAY
            log.debug("heartbeat not stored, trying again error=%s", error)
            return
        self._stored_at = time.monotonic()


class FeedReader(BackgroundThread):
    """Reads the feed into the pool until it is stopped.

    A pause follows each failure, whatever failed. Then the feed is opened at the last token that it
    delivered. Without one recvq is scanned, and the feed is opened behind the scan: once, since a
    later opening would need another scan.

    `token` is the saved position of a predecessor in this feed, None without one. `epoch_began` is
    the server's time of the takeover: a predecessor may have decided documents stored before it.
    """

    def __init__(
        self,
        feed: Feed,
        rescan: Rescan,
        pool: Pool,
        committer: Committer,
        *,
        token: Any,
        epoch_began: Timestamp,
        has_room: Callable[[], bool],
        heartbeat: Heartbeat,
    ) -> None:
        super().__init__("feed", self._run)
        self._feed = feed
        self._rescan = rescan
        self._pool = pool
        self._committer = committer
        self._epoch_began = epoch_began
        self._has_room = has_room
        self._heartbeat = heartbeat
        # Where the feed continues; None without a position.
        self._token = token
        # Ids that the last scan met: the stream delivers them once more.
        self._seen: Container[Any] = ()
        # Why the next scan is needed; None at the very first start.
        self._cause: PositionLost | None = None
        self.lost_history = 0
        """How many times the feed lost its position since the start of the process."""
        # The number of failures in short succession, which determines the pause.
        self._failures = 0
        self.opened_at: float | None = None
        """Monotonic time when the feed was opened; None since its last failure."""
        # It was opened and delivered no heartbeat: opening it again explains no silence.
        self._is_mute = False
        self.reason = WaitReason()
        """Why the feed delivers no documents at present, if there is a known reason."""
        self.delivered_at = time.monotonic()
        """Monotonic time of the last document, heartbeats included."""

    def quiet_seconds(self) -> float:
        """Return how long the feed has delivered nothing, without a known reason."""
        return time.monotonic() - max(self.delivered_at, self.reason.renewed_at)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._try()
        finally:
            self._feed.close()

    def _try(self) -> None:
        try:
            self._follow()
        except PositionLost as error:
            self._lose(error)
        except Stalled as error:
            self._is_mute = True
            self._fail(error, None)
        except StoreUnavailable as error:
            self._fail(error, AWAY)

    def _follow(self) -> None:
        """Open the feed and read it until the stop; every failure raises."""
        start = self._scan() if self._token is None else None
        if not self._stop.is_set():
            self._open(start)
        while not self._stop.is_set():
            self._read()

    def _fail(self, error: StoreUnavailable, why: str | None) -> None:
        self.reason.set(why)
        MONGODB.fails("feed unavailable", error)
        self._pause()

    def _pause(self) -> None:
        """Wait before the next try, longer after each failure in short succession."""
        opened_at, self.opened_at = self.opened_at, None
        if opened_at is not None and time.monotonic() - opened_at > HEALTHY_SECONDS:
            self._failures = 0
        self._failures += 1
        self._stop.wait(pause_seconds(self._failures))

    # Lost positions, and a recvq that is gone.

    def _lose(self, error: PositionLost) -> None:
        self._feed.close()
        if isinstance(error, RecvqGone):
            in_hand, after = self._pool.standing()
            told = 'recvq is gone, its documents are finished first how="%s" in_hand=%d after=%s'
            log.error(told, error, in_hand, after)
            if not self._finish():
                return
        name = self._feed.name
        log.info("feed lost its position, scanning recvq feed=%s cause=%s", name, error)
        self._token, self._seen, self._cause = None, (), error
        self.lost_history += 1
        self.reason.set(SCANNING)
        self._pool.forget_token()
        self._pause()

    def _scan(self) -> ScanPass | None:
        """Scan recvq for documents that may be unfinished (G9); None if stopped before the end.

        A kill may end each step. The token is therefore forgotten durably first, and every later
        step checks the present state.
        """
        self._committer.commit()
        began, cause = time.monotonic(), self._cause
        # One step under the pool's lock: documents that finish during the scan must not look new to
        # it.
        after = self._pool.begin_scan()
        log.debug("scanning recvq after=%s", after)
        try:
            start = self._rescan.scan(after, self._take, self._is_over)
        except WrongCollection:
            if self._finish():
                raise
            return None
        if start is None:
            return None
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
        return start

    def _is_over(self) -> bool:
        """Asked at each row of a scan: it may take long until the first document is handed over."""
        self.reason.set(SCANNING)
        return self._stop.is_set()

    def _finish(self) -> bool:
        """Finish and save all documents of the recvq that is gone; False if stopped before.

        Until then the token stays saved: after a crash the oplog still has what recvq has lost.
        """
        # guard: finished-before-forgotten -> while False:
        while self._pool.standing()[0] > 0 or not self._is_saved():
            self.reason.set("recvq is gone: its documents have to be finished")
            if self._stop.wait(FINISH_LOOK_SECONDS):
                return False
        return True

    def _is_saved(self) -> bool:
        try:
            return self._committer.commit()
        except StoreUnavailable:
            return False

    # Opening.

    def _open(self, start: ScanPass | None) -> None:
        if not self._is_mute and self.reason.text != AWAY:
            self.reason.set(OPENING)
        if start is not None:
            self._feed.open_at(start.operation_time)
            self._pool.end_scan()
            self._seen, self._cause = start.seen, None
        else:
            self._feed.open(self._token)
        self.opened_at = time.monotonic()
        self._heartbeat.heard()
        if not self._is_mute:
            # The outage is over: the feed now has its full time to deliver.
            self.reason.set(OPENING)

    # Reading.

    def _take(self, document: Document) -> bool:
        while not self._may_read():
            if self._stop.is_set():
                return False
        self._delivers(SCANNING)
        return self._enter(document, None, again=True)

    def _enter(self, document: Document, token: Any, *, again: bool) -> bool:
        if is_heartbeat(document):
            self._pool.put_finished(document, token)
            return False
        return self._pool.put(document, token, again=again)

    def _delivers(self, why: str | None) -> None:
        self._is_mute = False
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
            self._token = self._feed.token
            self._pool.move(self._token)
            self._heartbeat.quiet()
            self.reason.set(self._heartbeat.refused)
            return
        self._heartbeat.heard()
        document, token, stored_at = item
        if token is not None:
            # Of several documents at one place the last one has it.
            self._token = token
        self._delivers(None)
        if not has_a_place(document):
            log.error("not a front desk document, skipped id=%s", document["_id"])
            self._pool.move(token)
        elif document["_id"] in self._seen:
            self._pool.move(token)
        else:
            self._enter(document, token, again=stored_at <= self._epoch_began)

    def _ask(self) -> FeedItem | None:
        began = time.monotonic()
        item = self._feed.read()
        took = time.monotonic() - began
        if took > SLOW_READ_SECONDS:
            log.warning("the server answered the feed late seconds=%.1f", took)
        MONGODB.works("feed unavailable")
        return item
