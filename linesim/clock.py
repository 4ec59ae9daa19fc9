"""The times that LINE's rules are measured by: a system clock, and one that tests move by hand."""

import time
from threading import Lock
from typing import Protocol


class Clock(Protocol):
    """Seconds of a monotonic clock, for spans, and Unix seconds, for the times that people read."""

    def monotonic(self) -> float: ...

    def time(self) -> float: ...


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def time(self) -> float:
        return time.time()


class HandClock:
    """Stands still until `advance` moves it; both of its times move together."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._lock = Lock()
        self._start = start
        self._passed = 0.0  # under _lock

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._passed += seconds

    def monotonic(self) -> float:
        with self._lock:
            return self._passed

    def time(self) -> float:
        return self._start + self.monotonic()
