"""One thread that calls functions when their time has come, so that waiting holds no other."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable

from linedesk.runtime.thread import BackgroundThread


class DelayedCalls(BackgroundThread):
    """Calls what was left with `later`; the functions must be quick and must not raise.

    The order of two functions due at the same instant is that of their registration. What is
    left at the stop is never called.
    """

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__("clock", self._run)
        self._monotonic = monotonic
        self._condition = threading.Condition()
        # Under _condition.
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def stop(self) -> None:
        """Call nothing any more; may be called twice, and before `start`."""
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
