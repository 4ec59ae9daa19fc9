"""What a thread reports of itself and any other may read: what it does, what it waits for."""

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
    """What one thread reports: `busy` as it takes up something, `idle` when it sleeps."""

    def __init__(
        self,
        thread: str,
        *,
        limit_seconds: float = LIMIT_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._thread = thread
        self.limit_seconds = limit_seconds
        """For how long it may be busy with one thing."""
        self._monotonic = monotonic
        self._since: float | None = None

    def busy(self) -> None:
        """The thread is done with what it was busy with, and takes up the next thing."""
        self._since = self._monotonic()

    def idle(self) -> None:
        """The thread has nothing to do: it sleeps for a bounded time, or until it is woken."""
        self._since = None

    def stalled(self) -> str | None:
        """That the thread is busy with one thing for longer than its limit, in words; else None."""
        since = self._since
        seconds = 0.0 if since is None else self._monotonic() - since
        if seconds <= self.limit_seconds:
            return None
        return f"the thread {self._thread} hangs"


class WaitReason:
    """Why a thread makes no progress although it does not hang.

    A reason counts only while it is set again and again.
    """

    def __init__(
        self,
        *,
        renew_seconds: float = RENEW_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._renew_seconds = renew_seconds
        self._monotonic = monotonic
        self.renewed_at = monotonic()
        """Monotonic time at which a reason was set last; at first that of its making."""
        # Replaced as a whole: a reader sees a text and the time that belongs to it.
        self._set: tuple[str, datetime] | None = None

    def set(self, text: str | None) -> None:
        """The thread waits for this, and will set it again while it waits; None: for nothing."""
        if text is not None:
            self.renewed_at = self._monotonic()
        if text != self.text:
            self._set = None if text is None else (text, datetime.now(UTC))

    @property
    def text(self) -> str | None:
        """What was set last; None once that is over."""
        was_set = self._set
        return None if was_set is None else was_set[0]

    def fresh(self) -> str | None:
        """What is waited for and since when; None if nothing is, or it was not set lately."""
        was_set = self._set
        if was_set is None or self._monotonic() - self.renewed_at > self._renew_seconds:
            return None
        return f"{was_set[0]} since {moment(was_set[1])}"


def moment(at: datetime) -> str:
    """A time as a person reads it in a status, in UTC as in the log."""
    return f"{at:%Y-%m-%d %H:%M} UTC"
