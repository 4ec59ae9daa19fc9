"""The drain: moves spooled documents to recvq, oldest first, once MongoDB accepts them again.

One process of the host drains, the others watch. Documents leave the spool only after the majority
has them. A crash in between causes duplicates, which recvq ignores, and never a gap.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database
from pymongo.errors import OperationFailure, PyMongoError

from linedesk.runtime.backoff import growing_seconds
from linedesk.runtime.outage import MONGODB
from linedesk.runtime.thread import BackgroundThread
from linedesk.store.collections import check_recvq
from linedesk.store.documents import RECVQ, name_of
from linedesk.store.errors import (
    QueueError,
    SpoolUnavailable,
    StoreUnavailable,
    is_outage,
)
from linedesk.store.insert import INVALID_BSON, insert_documents, never_taken
from linedesk.store.spool.spool import Batch, Spool, SpoolContents
from linedesk.store.spool.spool_file import folder_held, identity

log = logging.getLogger(__name__)

REPORT_SECONDS = 10.0
LOOK_SECONDS = 1.0
# The pauses after failures in a row.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 3.0
INSERT_SECONDS = 2.0
# Longer than any step of a drain. A frozen process (SIGSTOP) keeps its lock, and the spooled
# documents of all front desks would wait for it.
STILL_SECONDS = 15.0
BATCH_DOCUMENTS = 500
BATCH_BYTES = 4 * 1024 * 1024

AWAY = (QueueError, PyMongoError, BSONError)
REFUSED = (BSONError, OperationFailure, StoreUnavailable)


class Drain(BackgroundThread):
    """A thread that empties the spool. It owns `spool`, its own connection to the file.

    Each insert happens inside `inserting(bytes)`, which raises StoreUnavailable while recvq has no
    room for it.
    """

    def __init__(
        self,
        spool: Spool,
        database: Database[Any],
        *,
        inserting: Callable[[int], AbstractContextManager[None]] = lambda size: nullcontext(),
    ) -> None:
        super().__init__("spool-drain", self._run, limit_seconds=STILL_SECONDS)
        self._spool = spool
        self._database = database
        self._inserting = inserting
        self._turn = DrainLock(Path(f"{spool.path}-drain"))
        # Of the session, from the first batch until the spool is empty; monotonic times.
        self._began_at: float | None = None
        self._moved_at = self._reported_at = 0.0
        self._moved = 0
        self.held = SpoolContents()
        """The spool's contents at the last check, at most a second ago unless its disk hangs."""
        self._checked = False
        self._failures = 0
        self._reason: str | None = None

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.activity.busy()
                self._wake.clear()
                self._step()
        finally:
            self.activity.idle()
            self._turn.end()
            self._spool.close()

    def _step(self) -> None:
        try:
            self.held = self._spool.held()
            if not self.held.documents:
                self._settle()
            elif self._turn.taken():
                # Halved with each failure: a whole batch may need more room or time than there is.
                most = BATCH_BYTES >> self._failures
                self._move(documents=BATCH_DOCUMENTS, max_bytes=most)
                self._failures, self._reason = 0, None
                MONGODB.works("spool waits")
                return
        except AWAY as error:
            self._pause(error)
            return
        self._wake.wait(LOOK_SECONDS)

    def _move(self, *, documents: int, max_bytes: int) -> None:
        """Move the oldest documents to recvq.

        A retry begins with the same document, so the order never changes: stored documents are
        skipped, and the rest follows. If MongoDB will never take one of them, the oldest is moved
        alone or set apart: no document may block those behind it.
        """
        if not self._checked:
            # An insert into a missing recvq would create an uncapped one.
            check_recvq(self._database)
            self._checked = True
        batch = self._spool.oldest(documents=documents, max_bytes=max_bytes)
        # guard: removal-after-majority ->
        #     self._spool.remove(batch)
        #     self._insert(batch)
        try:
            self._insert(batch)
        except REFUSED as error:
            if not _never_taken(error, batch):
                raise
            if len(batch.bsons) > 1:
                self._move(documents=1, max_bytes=0)
                return
            reason = str(error) if isinstance(error, QueueError) else type(error).__name__
            self._spool.remove(batch, refused=reason)
            words = 'spooled document refused by mongodb and set apart event_id=%s reason="%s"'
            log.error(words, _event_id(batch), reason)  # noqa: TRY400  # no text of the document
        else:
            self._spool.remove(batch)
        self._progress(len(batch.bsons))

    def _insert(self, batch: Batch) -> None:
        documents = [RawBSONDocument(data) for data in batch.bsons]
        with self._inserting(sum(len(data) for data in batch.bsons)):
            insert_documents(self._database[RECVQ], documents, timeout_seconds=INSERT_SECONDS)

    def _progress(self, documents: int) -> None:
        """Log the begin of a session, and each REPORT_SECONDS how far it is."""
        self._moved_at, held = time.monotonic(), self.held
        if self._began_at is None:
            self._began_at = self._reported_at = self._moved_at
            self._moved = 0
        self._moved += documents
        if self._moved_at - self._reported_at >= REPORT_SECONDS:
            self._reported_at = self._moved_at
            left = held.documents - documents
            log.info("still draining spool drained=%d left=%d", self._moved, left)

    def _settle(self) -> None:
        """End a session once the spool was empty for a whole interval."""
        began, last = self._began_at, self._moved_at
        if began is not None and time.monotonic() - last >= LOOK_SECONDS:
            self._began_at = None
            log.info("spool is empty documents=%d seconds=%.1f", self._moved, last - began)
            self._spool.tidy()
        if self._began_at is None:
            self._turn.end()

    def _pause(self, error: Exception) -> None:
        # Another process may succeed in the meantime.
        self._turn.end()
        self._checked = False
        self._failures += 1
        reason = str(error) if isinstance(error, QueueError) else type(error).__name__
        if is_outage(error):
            MONGODB.fails("spool waits", reason)
        elif self.held.documents and reason != self._reason:
            waiting = self.held.documents
            log.warning('spool waits documents=%d reason="%s"', waiting, reason)
        self._reason = reason
        first, most = FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS
        self._stop.wait(growing_seconds(self._failures, first=first, most=most))


def _never_taken(error: Exception, batch: Batch) -> bool:
    """Whether MongoDB rejects a document for its content, by the codes of the answer."""
    if isinstance(error, BSONError):
        # The unreadable BSON may also be that of the answer.
        return not all(map(_has_frame, batch.bsons))
    if isinstance(error, OperationFailure):
        return error.code == INVALID_BSON
    return bool(never_taken(error))


def _has_frame(data: bytes) -> bool:
    """Whether the driver would send it; only MongoDB checks the content."""
    try:
        RawBSONDocument(data)
    except BSONError:
        return False
    return True


def _event_id(batch: Batch) -> str:
    with suppress(BSONError, KeyError):
        return name_of(RawBSONDocument(batch.bsons[0]))
    return "unknown"


class DrainLock:
    """The lock file of the spool: the process that holds it drains the spool.

    The kernel releases it also at kill -9. A holder must renew it repeatedly. A holder that stops
    making progress loses the lock; it may complete one more step before it notices. Two processes
    that drain must therefore be harmless.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: int | None = None
        self._seen: int | None = None
        self._seen_at = 0.0

    def taken(self) -> bool:
        """Whether this process drains; raises SpoolUnavailable if the lock cannot be opened."""
        try:
            return self._still_mine() if self._lock is not None else self._try()
        except OSError as error:
            words = "the spool's lock cannot be opened: see SPOOL_PATH"
            raise SpoolUnavailable(words, f"{self._path}: {error.strerror}") from error

    def end(self) -> None:
        """Release the lock; no effect if it is not held."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _still_mine(self) -> bool:
        assert self._lock is not None
        # guard: lock-still-mine
        if identity(self._lock) != identity(self._path):
            self.end()
            return False
        os.utime(self._lock)
        return True

    def _try(self) -> bool:
        lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._watch(lock)
            os.close(lock)
            return False
        except OSError:
            os.close(lock)
            raise
        self._lock, self._seen = lock, None
        return self._still_mine()

    def _watch(self, lock: int) -> None:
        """Remove the file of a holder that no longer touches it: the next try makes another.

        It uses the process's monotonic clock, since the host's clock may be set.
        """
        touched, now = os.fstat(lock).st_mtime_ns, time.monotonic()
        if touched != self._seen:
            self._seen, self._seen_at = touched, now
        elif now - self._seen_at > STILL_SECONDS:
            with suppress(FileNotFoundError), folder_held(self._path):
                if identity(lock) == identity(self._path):
                    self._path.unlink()
                    words = "spool's drain makes no progress, taking over seconds=%.0f"
                    log.warning(words, now - self._seen_at)
            self._seen = None
