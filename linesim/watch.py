"""The one lock of a simulator, and waiting for something to become true of what it protects."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition, RLock
from typing import TypeVar

T = TypeVar("T")


class Watch:
    """Hold `changing` to change what is protected, and `reading` to look at it."""

    def __init__(self) -> None:
        self._changed = Condition(RLock())
        self._version = 0  # under _changed

    @contextmanager
    def changing(self) -> Iterator[None]:
        """The lock; leaving it wakes whoever waits in `wait_for`."""
        with self._changed:
            try:
                yield
            finally:
                self._version += 1
                self._changed.notify_all()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """The lock; it wakes nobody, so that a predicate which reads does not wake itself."""
        with self._changed:
            yield

    def wait_for(self, predicate: Callable[[], T], timeout_seconds: float) -> T:
        """The predicate's first true value; it is asked without the lock, once after each change.

        Raises TimeoutError when it is still false after `timeout_seconds`.
        """
        deadline = time.monotonic() + timeout_seconds
        seen = -1
        while self._changed_since(seen, deadline):
            with self._changed:
                seen = self._version
            if value := predicate():
                return value
        raise TimeoutError(f"still not so after {timeout_seconds:g} s")

    def _changed_since(self, version: int, deadline: float) -> bool:
        """Whether there was a change in time; the first question is answered even with no time."""
        left = deadline - time.monotonic()
        if left <= 0 and version >= 0:
            return False
        with self._changed:
            return self._changed.wait_for(lambda: self._version != version, max(left, 0))
