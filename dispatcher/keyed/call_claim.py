"""The dispatcher's side of one call of a handler (`linedesk.contract`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class CallClaim:
    """A call of the bot's handler, which ends once: it returns or is abandoned.

    `limit_seconds` is its time limit; None for the limit of all handlers.
    """

    __slots__ = ("_action", "_claim", "is_abandoned", "limit_seconds", "since")

    def __init__(self, limit_seconds: float | None = None) -> None:
        self.since = time.monotonic()
        self.limit_seconds = limit_seconds
        self.is_abandoned = False
        self._action: Callable[[], object] | None = None
        # Acquired once and never released: only one of the two ends succeeds.
        self._claim = threading.Lock()

    def end(self) -> bool:
        """The handler returned; False if it was abandoned before, and its decision is discarded."""
        return self._claim.acquire(blocking=False)

    def abandon(self) -> bool:
        """Abandon the call; False if it has returned."""
        # guard: one-end-of-a-handler
        if not self._claim.acquire(blocking=False):
            return False
        self.is_abandoned = True
        if self._action is not None:
            self._action()
        return True

    def when_abandoned(self, action: Callable[[], object]) -> None:
        """Call this when the call is abandoned, or at once if it was; possibly twice."""
        self._action = action
        if self.is_abandoned:
            action()

    @property
    def is_over(self) -> bool:
        """Whether it has returned or was abandoned."""
        return self._claim.locked()
