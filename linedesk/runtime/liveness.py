"""The state that a thread reports and other threads read: busy, idle, or waiting for a reason."""

from __future__ import annotations

import time
from datetime import UTC, datetime

# The time limit for one step of a thread: a few commands of MongoDB, each of 50 s at most.
LIMIT_SECONDS = 180.0
# A wait reason must be renewed within this time. Opening a feed may take as long: 60 s to scan the
# oplog, and a few commands before and after.
RENEW_SECONDS = 180.0

# The reason that every process may have.
AWAY = "waiting for MongoDB"


class ThreadActivity:
    """The reports of one thread: `busy` when it begins a step, `idle` when it sleeps."""

    def __init__(self, thread: str, *, limit_seconds: float) -> None:
        self._thread = thread
        self.limit_seconds = limit_seconds
        """The time limit for one step."""
        self._since: float | None = None

    def busy(self) -> None:
        """The thread has finished its step and begins the next one."""
        self._since = time.monotonic()

    def idle(self) -> None:
        """The thread has nothing to do: it sleeps for a bounded time, or until it is woken."""
        self._since = None

    def stalled(self) -> str | None:
        """A message if one step of the thread takes longer than its limit; else None."""
        since = self._since
        seconds = 0.0 if since is None else time.monotonic() - since
        if seconds <= self.limit_seconds:
            return None
        return f"the thread {self._thread} hangs"


class WaitReason:
    """Why a thread waits and does not hang; expires unless set again within RENEW_SECONDS."""

    def __init__(self) -> None:
        self.renewed_at = time.monotonic()
        """Monotonic time at which a reason was last set; at first the time of creation."""
        # Replaced as a whole: a reader sees a text and the time that belongs to it.
        self._set: tuple[str, datetime] | None = None

    def set(self, text: str | None) -> None:
        """Set the reason, again and again while the thread waits; None: no reason."""
        if text is not None:
            self.renewed_at = time.monotonic()
        if text != self.text:
            self._set = None if text is None else (text, datetime.now(UTC))

    @property
    def text(self) -> str | None:
        """The reason set last; None if there is none."""
        was_set = self._set
        return None if was_set is None else was_set[0]

    def since(self) -> tuple[str, datetime] | None:
        """The reason and its start; None without a reason, or if it has expired."""
        is_old = time.monotonic() - self.renewed_at > RENEW_SECONDS
        return None if is_old else self._set

    def fresh(self) -> str | None:
        """The same as a text for the service manager."""
        found = self.since()
        return None if found is None else f"{found[0]} since {moment(found[1])}"


def moment(at: datetime) -> str:
    """A time for status texts, in UTC as in the log."""
    return f"{at:%Y-%m-%d %H:%M} UTC"
