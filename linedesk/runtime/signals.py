"""Signal handlers of a process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


@contextmanager
def until_ctrl_c() -> Iterator[threading.Event]:
    """For a command that runs until Ctrl-C: it sets the event; a second Ctrl-C exits at once.

    An exception instead could be swallowed inside a library's callback.
    """
    over = threading.Event()

    def handle(number: int, frame: object) -> None:
        if over.is_set():
            raise KeyboardInterrupt
        over.set()

    before = signal.signal(signal.SIGINT, handle)
    try:
        with suppress(KeyboardInterrupt):
            yield over
    finally:
        signal.signal(signal.SIGINT, before)
