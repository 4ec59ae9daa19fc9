"""Why a dispatcher ended."""

from __future__ import annotations

import logging
import threading
from enum import Enum

from linedesk.store.errors import AccessRefused, Replaced, WrongCollection

log = logging.getLogger(__name__)


class ExitReason(Enum):
    """Why a dispatcher ended; the command line turns it into an exit code."""

    STOPPED = "stopped"
    STUCK = "stuck"
    """A thread did not end within the drain, or too many handlers never returned."""
    REPLACED = "replaced"
    REFUSED = "refused"
    """MongoDB refuses the user: a new start may read another password."""
    WRONG_RECVQ = "wrong recvq"
    """recvq is missing, not capped or without its index: the operator has to act first."""
    FAILED = "failed"


def ending_of(message: int | BaseException) -> ExitReason:
    """Return the ending for a message of the inbox: a signal's number or an error."""
    if isinstance(message, int):
        log.info("stopping signal=%d", message)
        return ExitReason.STOPPED
    if isinstance(message, Replaced):
        log.error("replaced by another dispatcher, stopping error=%s", message)
        return ExitReason.REPLACED
    if isinstance(message, AccessRefused):
        return ExitReason.REFUSED
    if isinstance(message, WrongCollection):
        return ExitReason.WRONG_RECVQ
    return ExitReason.FAILED


def death_of(args: threading.ExceptHookArgs) -> BaseException:
    """Return a dead thread's error for the inbox; logs it if no later place does."""
    error = args.exc_value or RuntimeError("a thread ended without an error")
    name = args.thread.name if args.thread else "?"
    if isinstance(error, AccessRefused):
        log.error('mongodb refuses the dispatcher thread=%s reason="%s"', name, error)
    elif isinstance(error, WrongCollection):
        log.error(
            'recvq cannot be read, stopping; start again after the repair reason="%s"',
            error,
        )
    elif not isinstance(error, Replaced):
        log.critical("thread died thread=%s", name, exc_info=error)
    return error
