"""The lock of the draining process of a host; the kernel releases it also at kill -9."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from contextlib import suppress
from pathlib import Path

from linedesk.store.errors import SpoolUnavailable
from linedesk.store.spool.spool_file import folder_held, identity

log = logging.getLogger(__name__)

# Longer than any step of a drain. A frozen process (SIGSTOP) keeps its lock, and the spooled
# documents of all front desks would wait for it.
STILL_SECONDS = 15.0


class DrainLock:
    """The lock file of the spool: the process that holds it drains the spool.

    A holder must renew it repeatedly. A holder that stops making progress loses the lock; it may
    complete one more step before it notices. Two processes that drain must therefore be harmless.
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
