"""Ctrl-C ends `linedesk` with 130 and without a traceback, at any moment.

It is imported first, and therefore imports almost nothing.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from linedesk.runtime.exit_codes import Exit


def take_ctrl_c() -> None:
    """Have Ctrl-C end this process at once, unless it ignores Ctrl-C.

    A shell script's background job ignores it.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_at_once)
        sys.unraisablehook = _end_if_interrupted


@contextmanager
def interruptible() -> Iterator[None]:
    """Around a command: Ctrl-C raises KeyboardInterrupt, and the command can clear up.

    Before and after the command, and at a second Ctrl-C, the process ends at once.
    """
    if signal.getsignal(signal.SIGINT) is not _end_at_once:
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _end_at_once)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, _end_at_once)
    raise KeyboardInterrupt


def _end_at_once(number: int, frame: FrameType | None) -> None:
    os._exit(Exit.INTERRUPTED)


def _end_if_interrupted(error: Any) -> None:
    """End the process at Ctrl-C in a callback; Python would only print the KeyboardInterrupt."""
    if isinstance(error.exc_value, KeyboardInterrupt):
        os._exit(Exit.INTERRUPTED)
    sys.__unraisablehook__(error)
