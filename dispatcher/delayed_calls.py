"""One thread that calls functions when they are due, so that no other thread has to wait."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable

from linedesk.runtime.thread import BackgroundThread


class DelayedCalls(BackgroundThread):
    """Calls the functions passed to `later`; they must be quick and must not raise.

    Functions due at the same instant are called in the order of registration. Functions that are
    not due before the stop are never called.
    """

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__("clock", self._run)
        self._monotonic = monotonic
        self._condition = threading.Condition()
        # Under _condition.
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def stop(self) -> None:
        """Make no more calls; may be called twice, and before `start`."""
        super().stop()
        with self._condition:
            self._condition.notify()

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        """Call `function` from its thread in `seconds`; at once if that is past."""
        due = self._monotonic() + seconds
        with self._condition:
            heapq.heappush(self._waiting, (due, next(self._numbers), function))
            if self._waiting[0][2] is function:
                self._condition.notify()

    def _run(self) -> None:
        while (function := self._next()) is not None:
            self.activity.busy()
            function()
            self.activity.idle()

    def _next(self) -> Callable[[], None] | None:
        with self._condition:
            while not self._stop.is_set():
                if not self._waiting:
                    self._condition.wait()
                    continue
                seconds = self._waiting[0][0] - self._monotonic()
                if seconds <= 0:
                    return heapq.heappop(self._waiting)[2]
                self._condition.wait(seconds)
        return None
