"""How a process hears that it should end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


@contextmanager
def until_ctrl_c() -> Iterator[threading.Event]:
    """For a command that goes on until Ctrl-C: it sets the event, a second one ends at once.

    An exception in the middle of a foreign callback would be swallowed there, and nothing end.
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
