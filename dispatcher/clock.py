"""One thread that calls functions when their time has come, so that waiting holds no other."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable

from recvq.pulse import Pulse


class Clock:
    """Calls what was left with `later`; the functions must be quick and must not raise.

    The order of two functions due at the same instant is that of their registration. What is
    left when the clock stops is never called.
    """

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._condition = threading.Condition()
        # Under _condition.
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._stopped = False
        self._numbers = itertools.count()
        self.pulse = Pulse("clock")
        self._thread = threading.Thread(target=self._run, name="clock", daemon=True)

    def start(self) -> None:
        """Start the thread; a clock that was stopped before ends at once."""
        self._thread.start()

    def stop(self) -> None:
        """Call nothing any more; may be called twice, and before `start`."""
        with self._condition:
            self._stopped = True
            self._condition.notify()

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the thread to end; returns whether it did."""
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        """Call `function` from the clock's thread in `seconds`; at once if that is past."""
        due = self._monotonic() + seconds
        with self._condition:
            heapq.heappush(self._waiting, (due, next(self._numbers), function))
            if self._waiting[0][2] is function:
                self._condition.notify()

    def _run(self) -> None:
        while (function := self._next()) is not None:
            self.pulse.beat()
            function()
            self.pulse.rest()

    def _next(self) -> Callable[[], None] | None:
        with self._condition:
            while not self._stopped:
                if not self._waiting:
                    self._condition.wait()
                    continue
                seconds = self._waiting[0][0] - self._monotonic()
                if seconds <= 0:
                    return heapq.heappop(self._waiting)[2]
                self._condition.wait(seconds)
        return None
