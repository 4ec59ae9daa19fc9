"""Whose turn it is among the processes of a host: a lock that the kernel frees at kill -9 too."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from recvq.errors import SpoolUnavailable


class Turn:
    """Who of the host's processes drains the spool: who holds the lock on this file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: int | None = None

    def taken(self) -> bool:
        """Whether this process drains; raises SpoolUnavailable where the lock cannot be had."""
        if self._lock is not None:
            return True
        try:
            lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            words = "the spool's lock cannot be opened: see SPOOL_PATH"
            raise SpoolUnavailable(words, f"{self._path}: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return False
        self._lock = lock
        return True

    def end(self) -> None:
        """Let another process have it; harmless when it is not held."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
