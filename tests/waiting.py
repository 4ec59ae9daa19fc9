"""Waiting for a condition with a deadline, which is what tests do instead of sleeping."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def eventually(look: Callable[[], Found], *, seconds: float = 15.0) -> Found:
    """The first true value that `look` returns."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not happen in time"
        pause.wait(0.01)
    return found
