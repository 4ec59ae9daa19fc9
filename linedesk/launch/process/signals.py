"""Signal handlers of a process."""

from __future__ import annotations

import os
import signal
from queue import SimpleQueue


def take_signals(inbox: SimpleQueue[int | BaseException]) -> None:
    """Handle signals: the first SIGTERM or SIGINT begins a clean stop, the second exits at once."""
    came: list[int] = []

    def handle(number: int, frame: object) -> None:
        if came:
            os._exit(128 + number)
        came.append(number)
        # Only SimpleQueue.put is safe inside a signal handler.
        inbox.put(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
