"""A wait for a condition with a deadline, instead of sleeping, and a clock that stands still."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

LONGEST_PAUSE_SECONDS = 0.01


def eventually(look: Callable[[], Found], *, seconds: float = 15.0) -> Found:
    """The first true value that `look` returns."""
    deadline = time.monotonic() + seconds
    pause, pause_seconds = threading.Event(), 0.001
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not happen in time"
        pause.wait(pause_seconds)
        pause_seconds = min(pause_seconds * 2, LONGEST_PAUSE_SECONDS)
    return found


class Now:
    """A clock that a test moves."""

    seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds
