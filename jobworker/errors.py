"""The errors of running a bot and calling LINE, split by the caller's reaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from linedesk.store.errors import AccessRefused, StoreUnavailable


class WorkerError(Exception):
    """Base of every error that jobworker raises."""


class LineError(WorkerError):
    """A call of the LINE API brought no answer."""


class NotSendable(LineError):
    """The request cannot be written as JSON, so no try will ever send it."""


class NotSent(LineError):
    """No connection to LINE: the request never left this machine."""


class OutcomeUnknown(LineError):
    """The request may have reached LINE, and its answer did not reach us."""


class GateClosed(WorkerError):
    """The process is stopping or may have been replaced, so LINE is not called."""


class LineAway(GateClosed):
    """LINE fails or refuses the access token: it is not called for now, a later try may succeed."""


class WorkerAway(WorkerError):
    """No worker process runs the handler now; the same job goes to one later.

    `worker` is the id of the one that lost it. `reserved`: a worker is kept for the job for a
    moment.
    """

    def __init__(self, text: str, *, worker: str | None = None, reserved: bool = False) -> None:
        super().__init__(text)
        self.worker = worker
        self.reserved = reserved


class NotRunning(WorkerError):
    """LINE was called without a running worker: at import, or in a separate process."""


class TransientError(WorkerError):
    """Not the handler's fault, and temporary: it is tried for some minutes, any number of times."""


class PermanentError(WorkerError):
    """Each further try of the handler would fail in the same way."""


class ContentError(WorkerError):
    """A user's content cannot be downloaded from LINE."""


class ContentNotReady(ContentError, TransientError):
    """LINE is still preparing it: a long video takes a while."""


class ContentFailed(ContentError, TransientError):
    """LINE or the connection failed several times in a row; the partial file is deleted."""


class ContentRefused(ContentError, PermanentError):
    """LINE refuses it permanently."""


class ContentNotFound(ContentRefused):
    """LINE does not have it: it never existed, or it has expired (404)."""


class ContentGone(ContentRefused):
    """The user has taken the message back (410)."""


class ContentTooLarge(ContentError, PermanentError):
    """It is larger than the caller allows."""


class ExternalContent(ContentError, PermanentError):
    """The content is on an external server; the bot's own code has to fetch it."""


class Retry(WorkerError):
    """A handler raises it to be tried again in `after` seconds, six hours at most; a failed try."""

    def __init__(self, *, after: float) -> None:
        super().__init__(f"again in {after} s")
        self.after = float(after)


class GiveUp(PermanentError):
    """A handler raises it to end its event now, without another try.

    `reason` goes to the log and into the dead letter's cause, so it never quotes a user.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class BotError(WorkerError, ValueError):
    """The bot's decision cannot be carried out; its handler has to be fixed.

    `reason` goes to the log and into the dead letter's cause, so it never quotes a user.
    """

    def __init__(self, text: str, *, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason


class WrongMessage(BotError):
    """LINE would refuse a message. `details` has the properties, as in LINE's answer."""

    def __init__(self, text: str, *, reason: str, details: Sequence[Mapping[str, str]]) -> None:
        super().__init__(text, reason=reason)
        self.details = details


class TalkEnded(BotError):
    """A talk was used to send or to set a timer after its handler had ended."""


class NoTimerHandler(BotError, PermanentError):
    """A timer fired, and the present bot has no handler of its name."""


COME_AGAIN = (
    *(BotError, TypeError, NameError, AttributeError),
    *(LookupError, ImportError, AssertionError),
)
"""Errors of the bot's code: most of them come again in each try, so a long wait would not help."""
NOT_ITS_FAULT = (StoreUnavailable, AccessRefused, GateClosed, WorkerAway)
"""Errors that a handler may meet without being at fault: its event is not given up for them."""
