"""What a bot should not do and a test would not show: block a worker, remember by itself.

Each is warned of once a test, with file and line, after its event was carried out.
"""

from __future__ import annotations

import dis
import functools
import gc
import inspect
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType, ModuleType
from typing import Any

from jobworker.testing.kept import Handler, changed, modules_of, snapshot

BLOCKING_SECONDS = 1.0
WAITS = {
    "time.sleep": "sleeps",
    "socket.connect": "waits for the network",
    "socket.getaddrinfo": "waits for the network",
    "subprocess.Popen": "waits for another program",
    "os.system": "waits for another program",
}
INSTEAD = "which blocks a worker thread: keep it short, or set a timer (talk.after) and go on there"
FORGETS = "which ends with the process, and which all users share: use talk.data or talk.state"
UNSENT = "returns a message, which nobody is sent: use talk.reply"
ENDED = "when nothing that is sent by it is carried out any more: use talk.data and a timer"


class BotWarning(UserWarning):
    """A bot does what goes well in a test and badly in production."""


@dataclass(frozen=True)
class Finding:
    """Something to be warned of."""

    what: str
    file: str
    line: int


class Watch:
    """Watches one bot's handlers; `on=False` watches nothing."""

    def __init__(self, *, on: bool = True) -> None:
        self._on = on
        self._told: set[Finding] = set()
        # Looked for once, since a package may have many.
        self._modules = functools.cache(modules_of)

    def call(self, handler: Handler, event: Any, talk: Any) -> list[Finding]:
        """Call a handler; returns what is to be told once its event is carried out."""
        if not self._on:
            handler(event, talk)
            return []
        modules = self._modules(handler)
        before, holders = snapshot(handler, modules), _holders(event, talk)
        began = time.perf_counter()
        with _waits_noted(handler, modules) as found:
            answer: object = handler(event, talk)
        if isinstance(answer, str) or hasattr(answer, "to_dict"):
            found.append(_at(handler, UNSENT))
        if time.perf_counter() - began > BLOCKING_SECONDS and not found:
            found.append(_at(handler, f"takes more than {BLOCKING_SECONDS:.0f} s, {INSTEAD}"))
        for where, name in changed(before, snapshot(handler, modules)):
            told = f"changes {where}.{name}, {FORGETS}"
            found.append(_at(handler, told, name))
        if _holders(event, talk) > holders:
            # What only waits for the collector is not kept.
            gc.collect()
        if _holders(event, talk) > holders:
            found.append(_at(handler, f"keeps its event or talk beyond its end, {ENDED}"))
        return found

    def tell(self, found: list[Finding]) -> None:
        """Warn of what was not warned of before."""
        for finding in found:
            if finding not in self._told:
                self._told.add(finding)
                warnings.warn_explicit(finding.what, BotWarning, finding.file, finding.line)


def _holders(event: Any, talk: Any) -> int:
    return sys.getrefcount(event) + sys.getrefcount(talk)


# What a handler waits for. Python tells of each connection and process; of a sleep it does not.


class _Running(threading.local):
    """The handler that runs on this thread: what it waited for, and where its files are."""

    found: list[Finding] | None = None
    handler: Handler
    files: frozenset[str | None]


_running = _Running()
_sleep = time.sleep


@contextmanager
def _waits_noted(handler: Handler, modules: Sequence[ModuleType]) -> Iterator[list[Finding]]:
    found: list[Finding] = []
    _listen()
    _running.handler, _running.found = handler, found
    _running.files = frozenset(getattr(module, "__file__", None) for module in modules)
    sleeps = [
        (module, name)
        for module in (time, *modules)
        for name, value in vars(module).items()
        if value is _sleep
    ]
    for module, name in sleeps:
        setattr(module, name, _noted_sleep)
    try:
        yield found
    finally:
        _running.found = None
        for module, name in sleeps:
            setattr(module, name, _sleep)


def _noted_sleep(seconds: float) -> None:
    _note("time.sleep")
    _sleep(seconds)


@functools.cache
def _listen() -> None:
    """Once a process, since such a hook stays."""
    sys.addaudithook(lambda event, _: _note(event))


def _note(event: str) -> None:
    found = _running.found
    if found is None or event not in WAITS:
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename not in _running.files:
        frame = frame.f_back
    told = f"the handler {_name(_running.handler)} {WAITS[event]}, {INSTEAD}"
    if frame is None:
        found.append(_at(_running.handler, f"{WAITS[event]}, {INSTEAD}"))
    else:
        found.append(Finding(told, frame.f_code.co_filename, frame.f_lineno))


# Where it is.


def _at(handler: Handler, what: str, name: str = "") -> Finding:
    """In the handler's module, at the line that speaks of `name`, else of the handler."""
    told = f"the handler {_name(handler)} {what}"
    function = inspect.unwrap(handler)
    code = getattr(function, "__code__", None)
    if code is None:
        return Finding(told, str(getattr(inspect.getmodule(function), "__file__", "?")), 1)
    for one in (code, *_codes(function)):
        if name in (*one.co_names, *one.co_freevars):
            return Finding(told, one.co_filename, _mention(one, name))
    return Finding(told, code.co_filename, code.co_firstlineno)


def _name(handler: Handler) -> str:
    return str(getattr(handler, "__qualname__", handler))


def _codes(handler: Handler) -> Iterator[CodeType]:
    """Those of the functions beside the handler."""
    for value in vars(sys.modules[handler.__module__]).values():
        if getattr(value, "__module__", None) == handler.__module__:
            code = getattr(value, "__code__", None)
            if isinstance(code, CodeType):
                yield code


def _mention(code: CodeType, name: str) -> int:
    lines = (
        instruction.positions.lineno
        for instruction in dis.get_instructions(code)
        if instruction.argval == name
        and instruction.positions is not None
        and not instruction.opname.startswith("LOAD_CONST")
    )
    return next((line for line in lines if line is not None), code.co_firstlineno)
