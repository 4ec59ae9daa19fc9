"""Signs of life that one thread gives and any other may read: what it is at, what it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

# What a thread may be at one thing for: a few commands of MongoDB, each 50 s at the longest.
LIMIT_SECONDS = 180.0
# A reason to wait has to be given again within this. It may take as long to open a feed: to walk
# through the oplog 60 s, and a few commands before and after.
RENEW_SECONDS = 180.0

# The reason that every process may have.
AWAY = "waiting for MongoDB"


class ThreadActivity:
    """That of one thread, which says `beat` as it takes up something and `rest` when it sleeps."""

    def __init__(
        self,
        thread: str,
        *,
        limit_seconds: float = LIMIT_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._thread = thread
        self._limit_seconds = limit_seconds
        self._monotonic = monotonic
        self._since: float | None = None

    def beat(self) -> None:
        """What was in hand is done, and the next thing begins."""
        self._since = self._monotonic()

    def rest(self) -> None:
        """Nothing is in hand: only a bounded wait, or one that anybody can end."""
        self._since = None

    def stalled(self) -> str | None:
        """That the thread is at one thing for longer than it may be, in words; else None."""
        since = self._since
        seconds = 0.0 if since is None else self._monotonic() - since
        if seconds <= self._limit_seconds:
            return None
        return f"the thread {self._thread} hangs"


class WaitReason:
    """Why nothing goes on although nothing hangs. It has to be said again and again to count."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self.said_at = monotonic()
        """Monotonic time at which something was waited for last; at first that of its making."""
        # Replaced as a whole, so that who reads it sees words and time that belong together.
        self._said: tuple[str, datetime] | None = None

    def say(self, words: str | None) -> None:
        """The thread waits for this, and would say so again; None: for nothing any more."""
        if words is not None:
            self.said_at = self._monotonic()
        if words != self.words:
            self._said = None if words is None else (words, datetime.now(UTC))

    @property
    def words(self) -> str | None:
        """What was said last; None once that is over."""
        said = self._said
        return said[0] if said is not None else None

    def fresh(self) -> str | None:
        """What is waited for and since when; None if nothing is, or it was not said lately."""
        said = self._said
        if said is None or self._monotonic() - self.said_at > RENEW_SECONDS:
            return None
        return f"{said[0]} since {moment(said[1])}"


def moment(at: datetime) -> str:
    """A time as a person reads it in a status, in UTC as in the log."""
    return f"{at:%Y-%m-%d %H:%M} UTC"
