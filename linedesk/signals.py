"""How a process hears that it should end."""

from __future__ import annotations

import os
import signal
from queue import SimpleQueue


def take_signals(inbox: SimpleQueue[int | BaseException]) -> None:
    """The first SIGTERM or SIGINT asks for an orderly end, the second ends at once."""
    came: list[int] = []

    def handle(number: int, frame: object) -> None:
        if came:
            os._exit(128 + number)
        came.append(number)
        # SimpleQueue.put is the one hand-over that is safe inside a signal handler.
        inbox.put(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
