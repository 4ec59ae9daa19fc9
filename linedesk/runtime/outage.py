"""An outage of MongoDB in the log of a process: one line when it begins, one when it is over.

Many threads use MongoDB, and in an outage each of them fails again and again. The first failure is
a warning; those that follow are seen with -v only.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from pymongo.errors import ConnectionFailure, PyMongoError

log = logging.getLogger(__name__)

# Each part tries again within 10 s. One that has not failed for so long has nothing to do any more.
FORGOTTEN_SECONDS = 60.0


class Outage:
    """Which parts of this process cannot use MongoDB now. Any thread may call its methods."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        # When each of them failed last.
        self._failing: dict[str, float] = {}
        self._began_at = 0.0

    def fails(self, part: str, error: object) -> None:
        """A part failed and will try again; the part is named by what did not happen."""
        with self._lock:
            is_first = not self._recent()
            if is_first:
                self._began_at = self._monotonic()
            self._failing[part] = self._monotonic()
        if is_first:
            log.warning("MongoDB cannot be used: %s, trying again error=%s", part, error)
        else:
            log.debug("%s, trying again error=%s", part, error)

    def works(self, part: str) -> None:
        """A part has succeeded; the outage is over once no part fails."""
        if part not in self._failing:
            return
        with self._lock:
            if self._failing.pop(part, None) is None or self._recent():
                return
            seconds = self._monotonic() - self._began_at
        log.info("MongoDB can be used again seconds=%.1f", seconds)

    def _recent(self) -> bool:
        """Whether any part fails; those that have nothing to do any more are forgotten."""
        now = self._monotonic()
        for part, at in list(self._failing.items()):
            if now - at > FORGOTTEN_SECONDS:
                del self._failing[part]
        return bool(self._failing)


MONGODB = Outage()


def is_away(error: Exception) -> bool:
    """Whether an error of the driver says that MongoDB cannot be reached, or not in time.

    Any other error may stay for good, so it is none of `Outage`: it would hide later ones.
    """
    if isinstance(error, ConnectionFailure):
        return True
    return isinstance(error, PyMongoError) and error.timeout
