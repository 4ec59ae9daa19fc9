"""The one thread that owns the feed: it opens, reads, opens again, and scans what a feed lost."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Container
from typing import Any

from bson.timestamp import Timestamp

from dispatcher.feed.feed import Feed, FeedItem, PositionLost, RecvqGone
from dispatcher.feed.heartbeat import Heartbeat, Stalled
from dispatcher.feed.recovery import SCANNING, Recovery
from dispatcher.feed.rescan import Rescan
from dispatcher.keyed.pool import Pool
from dispatcher.keyed.saver import Saver
from linedesk.runtime.backoff import pause_seconds
from linedesk.runtime.liveness import AWAY, WaitReason
from linedesk.runtime.thread import BackgroundThread
from linedesk.store.documents import Document, has_a_place, is_heartbeat
from linedesk.store.errors import StoreUnavailable
from linedesk.store.queue.repair import ANOTHER, CollectionRepair

log = logging.getLogger(__name__)

ROOM_SECONDS = 0.2
# Only a feed that was open for so long without an error begins to fail anew: pauses grow also
# where each opening succeeds and the next read fails.
HEALTHY_SECONDS = 5.0
# recvq is looked at this often while it is quiet, since a lost index shows on no feed.
LOOK_SECONDS = 10.0
# A read that takes longer was not answered in time, and the driver asked again by itself.
SLOW_READ_SECONDS = 2.0

OPENING = "opening the feed"


class FeedReader(BackgroundThread):
    """Reads the feed into the pool until it is stopped.

    `token` is where a predecessor's progress stands in this very feed, None if nowhere.
    `reign_began` is the server's time of taking over: what was stored up to then may have been
    decided by a predecessor.
    """

    def __init__(
        self,
        feed: Feed,
        history: Rescan,
        pool: Pool,
        saver: Saver,
        *,
        token: Any,
        reign_began: Timestamp,
        has_room: Callable[[], bool],
        keeper: CollectionRepair,
        heartbeat: Heartbeat,
    ) -> None:
        super().__init__("feed", self._run)
        self._feed = feed
        self._history = history
        self._pool = pool
        self._token = token
        self._reign_began = reign_began
        self._has_room = has_room
        self._keeper = keeper
        self._heartbeat = heartbeat
        self.reason = WaitReason()
        """Why the feed brings nothing for now, if that has a name."""
        self._remedy = Recovery(
            history,
            pool,
            saver,
            keeper,
            take=self._take,
            waits_for=self.reason.say,
            stop=self._stop,
        )
        # Ids that the last scan met: the stream brings them once more.
        self._seen: Container[Any] = ()
        self._failures = 0
        self._silent = True
        # It was opened and brought no heartbeat: to open it again is then no reason to wait.
        self._mute = False
        # When the feed was opened; None while it is not.
        self._opened_at: float | None = None
        self._looked_at = -math.inf
        # recvq is another one than was read, and the feed has not said so; then whether all that
        # was stored until that was seen is where a feed brings it.
        self._doubted = False
        self._settled = False
        self.delivered_at = time.monotonic()
        """Monotonic time of the last document that came, heartbeats included."""

    def quiet_seconds(self) -> float:
        """For how long it has brought nothing, not even a heartbeat, and named no reason."""
        return time.monotonic() - max(self.delivered_at, self.reason.said_at)

    def lost_history(self) -> int:
        """How often the feed could not go on where it stood, since the start of the process."""
        return self._remedy.losses

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._read_until_it_fails()
        finally:
            self._feed.close()

    def _read_until_it_fails(self) -> None:
        try:
            self._open()
            while not self._stop.is_set():
                self._read_one()
        except RecvqGone as error:
            self._feed.close()
            if self._remedy.finish_old(error):
                self._lose_token(error)
        except PositionLost as error:
            self._feed.close()
            self._lose_token(error)
        except Stalled as error:
            self._mute = True
            self.reason.say(None)
            self._open_again(error)
        except StoreUnavailable as error:
            self.reason.say(AWAY)
            self._open_again(error)

    def _open_again(self, error: StoreUnavailable) -> None:
        self._count_failure()
        log.warning("feed unavailable, opening it again error=%s", error)
        self._stop.wait(pause_seconds(self._failures))

    # Opening.

    def _open(self) -> None:
        if self._token is not None:
            self._opens()
            self._feed.open(self._token)
        else:
            self._seen = ()
            last = self._remedy.scan()
            if last is None:
                return
            self._opens()
            self._feed.open_at(last.operation_time)
            self._seen = last.seen
            self._remedy.done()
        self._opened_at = time.monotonic()
        self._heartbeat.heard()
        if not self._mute:
            # The outage is over: from now on the feed has its time to bring something.
            self.reason.say(OPENING)
        self._look()

    def _opens(self) -> None:
        if not self._mute and self.reason.words != AWAY:
            self.reason.say(OPENING)

    def _lose_token(self, error: PositionLost) -> None:
        log.info("feed lost its position, scanning recvq feed=%s cause=%s", self._feed.name, error)
        self.reason.say(SCANNING)
        self._count_failure()
        self._token = None
        self._remedy.lose(error)
        self._stop.wait(pause_seconds(self._failures))

    def _count_failure(self) -> None:
        opened_at, self._opened_at = self._opened_at, None
        if opened_at is not None and time.monotonic() - opened_at > HEALTHY_SECONDS:
            self._failures = 0
        self._failures += 1
        self._silent = True

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
        self.delivered_at = time.monotonic()
        self._mute = False
        self.reason.say(why)

    def _may_read(self) -> bool:
        """Whether there is room for one more, after a short wait for it."""
        if not self._has_room():
            self.reason.say("too much waits to be carried out")
            self._stop.wait(ROOM_SECONDS)
            return False
        if not self._pool.wait_for_room(ROOM_SECONDS):
            paused = ", some are paused" if self._pool.ordered.pauses else ""
            self.reason.say(f"too many documents in hand{paused}")
            return False
        return True

    def _read_one(self) -> None:
        if not self._may_read():
            self._heartbeat.heard()
            return
        reading = self._ask()
        if reading is None:
            self._token = self._feed.token
            self._pool.move(self._token)
            self._be_quiet()
            return
        self._heartbeat.heard()
        self._delivers(None)
        document, token, time_ = reading
        if token is not None:
            self._token = token
        if not has_a_place(document):
            log.error("not a document of the front desk, passed over id=%s", document["_id"])
            self._pool.move(token)
        elif document["_id"] in self._seen:
            self._pool.move(token)
        else:
            self._enter(document, token, again=time_ <= self._reign_began)

    def _ask(self) -> FeedItem | None:
        began = time.monotonic()
        reading = self._feed.read()
        took = time.monotonic() - began
        if took > SLOW_READ_SECONDS:
            log.warning("the server answered the feed late seconds=%.1f", took)
        if self._silent and self._failures:
            log.info("feed delivers again feed=%s", self._feed.name)
        self._silent = False
        return reading

    def _be_quiet(self) -> None:
        """What is done while the feed brings nothing; raises StoreUnavailable, RecvqGone."""
        self._heartbeat.quiet()
        if self._doubted:
            self._settle_doubt()
        elif time.monotonic() - self._looked_at > LOOK_SECONDS:
            self._look()
        self.reason.say(self._heartbeat.refused)

    def _look(self) -> None:
        """See whether recvq is right, and mend at once what is mended in place."""
        wrong = self._keeper.look()
        self._looked_at = time.monotonic()
        self._doubted, self._settled = wrong in ANOTHER, False
        if wrong is not None and not self._doubted:
            self._remedy.mend()

    def _settle_doubt(self) -> None:
        """End the stream of a recvq that is another one now, once all of the old one was read."""
        if not self._settled:
            self._history.wait_until_visible()
            self._settled = True
            return
        wrong = self._keeper.look()
        self._doubted = False
        if wrong in ANOTHER:
            raise RecvqGone(f"found {wrong}")
