"""Finds work that has begun and not ended within some seconds, with one timer for all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import takewhile
from typing import Generic, TypeVar

T = TypeVar("T")


class Overdue(Generic[T]):
    """Calls `tell` with each item that has not ended `seconds` after its begin, on the clock's
    thread. Most end long before, so no item has a timer of its own.
    """

    def __init__(
        self,
        seconds: float,
        tell: Callable[[T], None],
        *,
        later: Callable[[float, Callable[[], None]], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._tell = tell
        self._later = later
        self._monotonic = monotonic
        self._lock = threading.Lock()
        # Both under _lock. All wait equally long, so the first to begin is the first to be late.
        self._begun: dict[T, float] = {}
        self._looks = False

    def begin(self, one: T) -> None:
        with self._lock:
            self._begun[one] = self._monotonic() + self._seconds
            if self._looks:
                return
            self._looks = True
        self._later(self._seconds, self._look)

    def end(self, one: T) -> None:
        """The item has ended; harmless if it was reported or has ended before."""
        with self._lock:
            self._begun.pop(one, None)

    def _look(self) -> None:
        with self._lock:
            now = self._monotonic()
            late = list(takewhile(lambda one: self._begun[one] <= now, self._begun))
            for one in late:
                del self._begun[one]
            first = next(iter(self._begun.values()), None)
            self._looks = first is not None
        if first is not None:
            self._later(max(0.0, first - now), self._look)
        for one in late:
            self._tell(one)
