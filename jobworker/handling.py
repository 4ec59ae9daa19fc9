"""The call of a handler that may be abandoned, and what it is refused from then on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from jobworker.errors import GateClosed, WorkerError
from jobworker.job import Handling


class Abandoned(WorkerError):
    """The handler came back too late: another run decides, and this one does nothing more."""


# A context reaches into the coroutines and executors of `asyncio`, other than a thread's own
# variables; it does not reach into a thread that a handler starts by itself.
_current: ContextVar[Handling | None] = ContextVar("handling", default=None)


@contextmanager
def under(handling: Handling) -> Iterator[None]:
    """Call a handler inside it. Raises Abandoned at its end, whatever the handler came to."""
    token = _current.set(handling)
    try:
        yield
    finally:
        _current.reset(token)
        if not handling.end():
            raise Abandoned("the handler did not return in time")


def require_wanted() -> None:
    """Raise GateClosed where the handler that wants to call LINE was abandoned."""
    handling = _current.get()
    if handling is not None and handling.is_abandoned:
        raise GateClosed("the handler was abandoned: its event is decided by another run")
