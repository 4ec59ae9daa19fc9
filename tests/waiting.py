"""Waits for a condition with a deadline; tests use it instead of sleeping."""

from __future__ import annotations

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
