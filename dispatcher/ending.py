"""Why a dispatcher ended, or never began."""

from __future__ import annotations

import logging
import threading
from enum import Enum

from recvq.errors import AccessRefused, Replaced

log = logging.getLogger(__name__)


class Ending(Enum):
    """Why a dispatcher ended; the command line makes an exit code of it."""

    STOPPED = "stopped"
    STUCK = "stuck"
    """A thread did not end within the drain, or too many handlers never returned."""
    REPLACED = "replaced"
    REFUSED = "refused"
    """MongoDB refuses the user: a new start may read another password."""
    FAILED = "failed"


class Interrupted(Exception):
    """A signal came, or a thread died, before the dispatcher had begun."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.value)
        self.ending = ending


def ending_of(message: int | BaseException) -> Ending:
    """What a message in the inbox makes of the process: a signal's number, or an error."""
    if isinstance(message, int):
        log.info("stopping signal=%d", message)
        return Ending.STOPPED
    if isinstance(message, Replaced):
        log.error("replaced by another dispatcher, stopping error=%s", message)
        return Ending.REPLACED
    if isinstance(message, AccessRefused):
        return Ending.REFUSED
    return Ending.FAILED


def death_of(args: threading.ExceptHookArgs) -> BaseException:
    """What a thread died of, for the inbox; says so where nobody else will."""
    error = args.exc_value or RuntimeError("a thread ended without an error")
    name = args.thread.name if args.thread else "?"
    if isinstance(error, AccessRefused):
        log.error('mongodb refuses the dispatcher thread=%s reason="%s"', name, error)
    elif not isinstance(error, Replaced):
        log.critical("thread died thread=%s", name, exc_info=error)
    return error
