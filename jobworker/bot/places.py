"""Where the bot's own code stands, for its author: handlers and calls by file and line."""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable, Mapping
from types import FrameType

from jobworker.latest import Latest
from linedesk.runtime import PACKAGES

log = logging.getLogger(__name__)

_warned = Latest[tuple[str, str], bool](1_000)


def place_of(handler: Callable[..., object]) -> str:
    """Return where a handler is defined, as file:line; "-" if it is no Python function."""
    code = getattr(inspect.unwrap(handler), "__code__", None)
    return "-" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def bot_place() -> str:
    """Return the line of the bot that is calling linedesk; "-" if none is."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package in sys.stdlib_module_names:
            # A thread of the dispatcher's, which repeats what a worker process decided.
            return "-"
        if package not in PACKAGES:
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "-"


def warn_once(what: str, place: str) -> None:
    """Log a warning about a place in the bot, once in this process."""
    if (what, place) not in _warned:
        _warned[what, place] = True
        log.warning("%s at=%s", what, place)


def unused(handler: Callable[..., object], answer: object) -> str | None:
    """Return what is wrong with the value that a handler returned; None for None.

    A coroutine is closed, since nothing awaits it.
    """
    if answer is None:
        return None
    name = getattr(handler, "__qualname__", type(handler).__name__)
    if inspect.iscoroutine(answer):
        answer.close()
        return f"the handler {name} returns a coroutine, which does not run"
    if isinstance(answer, str | Mapping) or hasattr(answer, "to_dict"):
        return f"the handler {name} returns a message, which is not sent: use talk.reply"
    return f"the handler {name} returns a value, which has no effect"
