"""The one thread that owns the feed: it opens, reads, opens again, and scans what a feed lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container
from typing import Any

from bson.timestamp import Timestamp

from dispatcher.feed import Feed, HistoryLost
from dispatcher.history import History
from dispatcher.pool import Pool
from dispatcher.saver import Saver
from recvq.documents import Document
from recvq.errors import StoreUnavailable
from recvq.pause import pause_seconds

log = logging.getLogger(__name__)

ROOM_SECONDS = 0.2


class Reader:
    """Reads the feed into the pool until it is stopped.

    `token` is where a predecessor's progress stands in this very feed, None if nowhere.
    `reign_began` is the server's time of taking over: what was stored up to then may have been
    decided by a predecessor.
    """

    def __init__(
        self,
        feed: Feed,
        history: History,
        pool: Pool,
        saver: Saver,
        *,
        token: Any,
        reign_began: Timestamp,
        has_room: Callable[[], bool],
    ) -> None:
        self._feed = feed
        self._history = history
        self._pool = pool
        self._saver = saver
        self._token = token
        self._reign_began = reign_began
        self._has_room = has_room
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        # Ids that the last scan met: the stream brings them once more.
        self._seen: Container[Any] = ()
        self._failures = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Read no more; may be called twice, and before `start`."""
        self._stop.set()

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the thread to end; returns whether it did."""
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

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
        except HistoryLost as error:
            self._lose_token(error)
        except StoreUnavailable as error:
            self._failures += 1
            log.warning("feed unavailable, opening it again error=%s", error)
            self._stop.wait(pause_seconds(self._failures))

    def _open(self) -> None:
        if self._token is not None:
            self._feed.open(self._token)
        else:
            self._scan()

    def _lose_token(self, error: HistoryLost) -> None:
        log.warning(
            "feed lost its position, scanning recvq feed=%s cause=%s", self._feed.name, error
        )
        self._failures += 1
        self._feed.close()
        self._token = None
        self._pool.forget_token()
        self._stop.wait(pause_seconds(self._failures))

    def _scan(self) -> None:
        """The remedy for a feed without a position (G9): scan, then stream from before it."""
        self._seen = ()
        if not self._saver.save():
            raise StoreUnavailable("the lost position could not be forgotten durably")
        # One step under the pool's lock: what finishes during the scan must not look new to it.
        after = self._pool.begin_scan()
        log.info("scanning recvq after=%s", after)
        last = self._history.scan(after, self._take, self._stop.is_set)
        if last is None:
            return
        log.info("recvq scanned documents=%d, streaming from %s", last.read, last.operation_time)
        self._feed.open_at(last.operation_time)
        self._seen = last.seen
        self._pool.end_scan()

    def _take(self, document: Document) -> bool:
        while not self._may_read():
            if self._stop.is_set():
                return False
        return self._pool.put(document, None, again=True)

    def _may_read(self) -> bool:
        """Whether there is room for one more, after a short wait for it."""
        if not self._has_room():
            self._stop.wait(ROOM_SECONDS)
            return False
        return self._pool.wait_for_room(ROOM_SECONDS)

    def _read_one(self) -> None:
        if not self._may_read():
            return
        reading = self._feed.read()
        if self._failures:
            log.info("feed delivers again feed=%s", self._feed.name)
        self._failures = 0
        if reading is None:
            self._token = self._feed.token
            self._pool.move(self._token)
            return
        document, token, time = reading
        if token is not None:
            self._token = token
        if document["_id"] in self._seen:
            self._pool.move(token)
        else:
            self._pool.put(document, token, again=time <= self._reign_began)
