"""The clocks for LINE's rules: the system's, which can be moved ahead, and one that only tests
move.
"""

import time
from abc import ABC, abstractmethod
from threading import Lock

MOST_SECONDS = 366 * 24 * 60 * 60.0


class Clock(ABC):
    """Seconds of a monotonic clock, for spans, and Unix seconds, for displayed times.

    `advance` moves both; `ahead` is the total in seconds. It raises ValueError for zero, negative
    moves, or more than a year at once. Safe to use from any number of threads.
    """

    @abstractmethod
    def monotonic(self) -> float: ...

    @abstractmethod
    def time(self) -> float: ...

    def __init__(self) -> None:
        self._lock = Lock()
        self.ahead = 0.0  # written under _lock

    @staticmethod
    def check(seconds: float) -> None:
        if not 0 < seconds <= MOST_SECONDS:  # which NaN is not either
            raise ValueError(f"a clock moves ahead, by a year at most, not by {seconds} s")

    def advance(self, seconds: float) -> None:
        self.check(seconds)
        with self._lock:
            self.ahead += seconds


class ShiftedClock(Clock):
    """The system's clock, and ahead of it once it was moved."""

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    def time(self) -> float:
        return time.time() + self.ahead


class HandClock(Clock):
    """Changes only by `advance`; both of its times move together."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        super().__init__()
        self._start = start

    def monotonic(self) -> float:
        return self.ahead

    def time(self) -> float:
        return self._start + self.ahead
