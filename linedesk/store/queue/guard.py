"""The guard of recvq: inserts stop before unread documents could be overwritten.

Each process that inserts into recvq has a guard and checks it before each insert. It changes
nothing in MongoDB.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymongo
from bson.errors import BSONError
from pymongo.database import Database
from pymongo.errors import PyMongoError

from linedesk.runtime.outage import MONGODB
from linedesk.runtime.thread import BackgroundThread
from linedesk.store.errors import (
    AccessRefused,
    QueueError,
    RecvqClosed,
    StoreUnavailable,
    WrongCollection,
    translated,
)
from linedesk.store.queue.usage import Reach, RecvqUsage

log = logging.getLogger(__name__)

EVERY_SECONDS = 1.0
# The time that an insert waits for a check; after it the last result is used, or the insert fails.
HASTY_SECONDS = 0.5
# Longer than any check takes.
HANGING_SECONDS = 15.0
# A process checks again before it has inserted this share since its last check. It thus sees the
# inserts of other processes in time, however small the collection is.
LOOK_SHARE = 0.01
NOT_LOOKED_AT = "recvq has not been checked yet"


class Guard(BackgroundThread):
    """Knows whether recvq accepts inserts; after `start` its own thread checks every second.

    Inserts within `inserting` are counted at once, those of other processes at the next check. A
    guard whose check fails keeps its last result: the insert itself then fails or succeeds.
    """

    def __init__(self, database: Database[Any], *, every_seconds: float = EVERY_SECONDS) -> None:
        super().__init__("guard", self._run, limit_seconds=HANGING_SECONDS)
        self._usage = RecvqUsage(database)
        self._every_seconds = every_seconds
        self._due_at = 0.0
        self.refused: str | None = None
        """Why MongoDB refuses the user, safe to show to clients; None after a successful check.

        It stays while MongoDB does not answer: after a refused password the driver waits for the
        server's next heartbeat.
        """
        self._looking = threading.Lock()  # held for a whole check: guards _usage
        self._counting = threading.Lock()  # guards all below
        self._wrong: str | None = NOT_LOOKED_AT
        self._reach = Reach(0, 1)
        self._full = self._warned = False
        self._begun = self._ended = self._seen = 0  # bytes

    @property
    def closed(self) -> str | None:
        """Why recvq accepts no inserts, safe to show to clients; None while it does."""
        with self._counting:
            return self._closed_to(0)

    @property
    def share(self) -> float | None:
        """The unread share of recvq, 0 to 1; None while unknown."""
        with self._counting:
            return None if self._wrong else self._reach.plus(self._unseen).share

    @contextmanager
    def inserting(self, size_bytes: int) -> Iterator[None]:
        """Wrap an insert of `size_bytes` of BSON; raises RecvqClosed if there is no room.

        Occasionally it checks first, and raises StoreUnavailable if the check fails.
        """
        with self._counting:
            has_to_look = self._unseen + size_bytes > self._reach.capped_bytes * LOOK_SHARE
        # guard: look-after-one-percent
        if has_to_look:
            self.refresh()
        with self._counting:
            reason = self._closed_to(size_bytes)
            if reason is not None:
                raise RecvqClosed(reason)
            self._begun += size_bytes
        try:
            yield
        finally:
            with self._counting:
                self._ended += size_bytes

    def look(self) -> None:
        """Check once, and log changes; takes at most READ_SECONDS and SUM_SECONDS.

        Raises StoreUnavailable if MongoDB does not answer, and keeps the last result.
        """
        with self._looking:
            self._look(patient=True)

    def look_when_due(self, *, ahead_seconds: float = 0.0) -> None:
        """As `look`, unless the last check is recent enough, also in `ahead_seconds` from now.

        For the owner of a guard that is not started, before its inserts.
        """
        if time.monotonic() + ahead_seconds >= self._due_at:
            self.look()
            self._due_at = time.monotonic() + self._every_seconds

    def refresh(self) -> None:
        """Check within HASTY_SECONDS, with an earlier long sum.

        While another thread makes a new sum, the last result is kept. Raises StoreUnavailable.
        """
        if self._looking.acquire(timeout=HASTY_SECONDS):
            try:
                with pymongo.timeout(HASTY_SECONDS):
                    self._look(patient=False)
            finally:
                self._looking.release()

    def _look(self, *, patient: bool) -> None:
        with self._counting:
            # The measurement may lack inserts that have not ended.
            ended = self._ended
        try:
            with translated():
                reach = self._usage.measure(patient=patient)
        except WrongCollection as error:
            self.refused = None
            self._is_wrong(str(error))
        except AccessRefused as error:
            self.refused = str(error)
            raise
        else:
            self.refused = None
            self._reaches(reach, ended)

    @property
    def _unseen(self) -> int:
        """Bytes inserted here, or being inserted, that the last check could not include."""
        return self._begun - self._seen

    def _closed_to(self, size_bytes: int) -> str | None:
        if self._wrong is not None:
            return self._wrong
        # guard: own-bytes-count-at-once -> reach = self._reach
        reach = self._reach.plus(self._unseen + size_bytes)
        if reach.closes(closed=self._full):
            return f"recvq is full: {reach.share:.0%} of it is unread"
        return None

    def _is_wrong(self, reason: str) -> None:
        with self._counting:
            before, self._wrong = self._wrong, reason
        if before != reason:
            log.error('recvq closed reason="%s"', reason)

    def _reaches(self, reach: Reach, ended: int) -> None:
        with self._counting:
            was_wrong = self._wrong not in (None, NOT_LOOKED_AT)
            was_full, was_warned = self._full, self._warned
            self._wrong, self._reach, self._seen = None, reach, ended
            self._full = reach.closes(closed=was_full)
            self._warned = self._full or reach.warns(warned=was_warned)
        numbers = reach.share, reach.unread_bytes, reach.capped_bytes
        if self._full and not was_full:
            log.error("recvq closed, it is full share=%.3f unread=%d capped=%d", *numbers)
        elif was_wrong or (was_full and not self._full):
            log.info("recvq open share=%.3f unread=%d capped=%d", *numbers)
        elif self._warned and not was_warned:
            log.warning("recvq is filling share=%.3f unread=%d capped=%d", *numbers)

    def _run(self) -> None:
        failed = False
        while not self._stop.is_set():
            self.activity.busy()
            try:
                self.look()
                MONGODB.works("recvq not checked")
                failed = False
            except StoreUnavailable as error:
                MONGODB.fails("recvq not checked", error)
            except (QueueError, PyMongoError, BSONError) as error:
                # The client may be closed during a check that outlasts a stop; its result is not
                # needed.
                if not failed and not self._stop.is_set():
                    _tell(error)
                failed = True
            self._stop.wait(self._every_seconds)
        self.activity.idle()


def _tell(error: Exception) -> None:
    if isinstance(error, AccessRefused):
        log.error('recvq cannot be checked reason="%s"', error)
    else:
        name, code = type(error).__name__, getattr(error, "code", None)
        log.error("recvq cannot be checked error=%s code=%s", name, code)
