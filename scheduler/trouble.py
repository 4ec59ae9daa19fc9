"""What keeps a thread from going on: said once, and how long to wait before the next try."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from bson.errors import BSONError
from pymongo.errors import OperationFailure, PyMongoError

from recvq.errors import AUTHENTICATION_FAILED, AccessRefused, QueueError, StoreUnavailable
from recvq.pause import growing_seconds
from recvq.pulse import moment

log = logging.getLogger(__name__)

# All that MongoDB, recvq and the files of time zones may say: no timer is given up for it.
TROUBLE = (QueueError, PyMongoError, BSONError, OSError)

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 3.0


class Trouble:
    """One thread's: `words` begin the line that says so, `over` the one that takes it back."""

    def __init__(self, words: str, *, over: str) -> None:
        self._words = words
        self._over = over
        self._failures = 0
        self._reason: str | None = None
        self.told: str | None = None
        """What was said and since when, for a status; None while all is well."""

    def met(self, error: Exception) -> float:
        """Say why, if that is news; returns how many seconds to pause.

        Raises a wrong password on: only a new process reads one that was replaced.
        """
        if isinstance(error, AccessRefused) and error.code == AUTHENTICATION_FAILED:
            raise error
        self._failures += 1
        reason = _reason(error)
        if reason != self._reason:
            self._reason = reason
            self.told = f"{self._words} since {moment(datetime.now(UTC))}: {reason}"
            # What no repetition mends, such as a missing right, waits for a person.
            say = log.warning if isinstance(error, StoreUnavailable) else log.error
            say('%s, trying again reason="%s"', self._words, reason)
        return growing_seconds(
            self._failures, first=FIRST_PAUSE_SECONDS, most=LONGEST_PAUSE_SECONDS
        )

    def over(self) -> None:
        """All is well again."""
        if self._reason is not None:
            log.info("%s tries=%d", self._over, self._failures)
        self._failures, self._reason, self.told = 0, None, None


def _reason(error: Exception) -> str:
    if isinstance(error, OperationFailure):
        return f"MongoDB error {error.code}"
    return str(error) if isinstance(error, QueueError) else type(error).__name__
