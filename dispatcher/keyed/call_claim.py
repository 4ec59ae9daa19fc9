"""The dispatcher's side of one call of a handler (`linedesk.contract`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class CallClaim:
    """A call of the bot's handler: of the two, its return and its being abandoned, one counts.

    `limit_seconds` is how long it may run; None for as long as any handler.
    """

    __slots__ = ("_action", "_claim", "is_abandoned", "limit_seconds", "since")

    def __init__(self, limit_seconds: float | None = None) -> None:
        self.since = time.monotonic()
        self.limit_seconds = limit_seconds
        self.is_abandoned = False
        self._action: Callable[[], object] | None = None
        # Acquired once and never released: of the two ends only one can.
        self._claim = threading.Lock()

    def end(self) -> bool:
        """The handler returned; False if it was abandoned before, and then it decides nothing."""
        return self._claim.acquire(blocking=False)

    def abandon(self) -> bool:
        """Give up waiting for it; False if it has returned."""
        # guard: one-end-of-a-handler
        if not self._claim.acquire(blocking=False):
            return False
        self.is_abandoned = True
        if self._action is not None:
            self._action()
        return True

    def when_abandoned(self, action: Callable[[], object]) -> None:
        """Call this once it is abandoned, at once if it was; perhaps twice."""
        self._action = action
        if self.is_abandoned:
            action()

    @property
    def is_over(self) -> bool:
        """Whether it has returned or was abandoned."""
        return self._claim.locked()
