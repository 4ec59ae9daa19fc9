"""Warnings for a bot's author, each once with its file and line."""

from __future__ import annotations

import inspect
import logging
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import FrameType

from jobworker.latest import Latest
from linedesk.runtime import PACKAGES

# Files of Python, of installed packages, and ours.
NOT_THE_BOTS = re.compile(
    rf"^{re.escape(sysconfig.get_path('stdlib'))}/|^<frozen |/(?:site|dist)-packages/"
    rf"|^{re.escape(str(Path(__file__).parents[2]))}/(?:{'|'.join(PACKAGES)})/"
)
log = logging.getLogger(__name__)
_warned = Latest[tuple[str, str], bool](1_000)


def place_of(handler: Callable[..., object]) -> str:
    """Return where a handler is defined, as file:line; "-" if it is no Python function."""
    code = getattr(inspect.unwrap(_plain(handler)), "__code__", None)
    return "-" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def name_of_handler(handler: Callable[..., object]) -> str:
    """Return its name; of an object with `__call__` its class, never its repr."""
    plain = _plain(handler)
    return str(getattr(plain, "__qualname__", type(plain).__name__))


def _plain(handler: Callable[..., object]) -> Callable[..., object]:
    return _plain(handler.func) if isinstance(handler, partial) else handler


def is_bots(filename: str) -> bool:
    """Whether a file is the bot's own."""
    return not NOT_THE_BOTS.search(filename)


def place_of_error(error: BaseException) -> str:
    """Return the deepest frame in the bot's own files, else the deepest one, as file:line."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if is_bots(one.filename)]
    return f"{(own or frames)[-1].filename}:{(own or frames)[-1].lineno}" if frames else "-"


def bot_place() -> str:
    """Return the bot's line that calls linedesk; "-" where linedesk repeats a worker's decision."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_bots(frame.f_code.co_filename):
        frame = frame.f_back
    return "-" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def warn_once(what: str, place: str) -> None:
    """Log a warning about a place in the bot, once in this process."""
    if (what, place) not in _warned:
        _warned[what, place] = True
        log.warning("%s at=%s", what, place)


def unused(handler: Callable[..., object], answer: object) -> str | None:
    """Return what is wrong with a handler's returned value; None for None. Closes a coroutine."""
    if answer is None:
        return None
    what = "a value, which has no effect"
    if inspect.iscoroutine(answer):
        answer.close()
        what = "a coroutine, which does not run"
    elif isinstance(answer, str | Mapping) or hasattr(answer, "to_dict"):
        what = "a message, which is not sent: use talk.reply"
    return f"the handler {name_of_handler(handler)} returns {what}"


def run(handler: Callable[..., object], event: object, talk: object) -> None:
    """Run a handler; a value that it returns is a warning in the log."""
    if (what := unused(handler, handler(event, talk))) is not None:
        warn_once(what, place_of(handler))
