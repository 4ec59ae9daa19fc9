"""A wait for a condition with a deadline, instead of sleeping, and a clock that stands still."""

import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

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


Ended = subprocess.CompletedProcess[str]


def ran(command: Sequence[Any], *, seconds: float = 120.0, **more: Any) -> Ended:
    """How a command without a terminal ended, with its output."""
    more = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, **more}
    return subprocess.run(command, timeout=seconds, check=False, **more)


class Now:
    """A clock that a test moves."""

    seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds
