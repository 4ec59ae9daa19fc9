"""What can go wrong when a bot is run and LINE is called, split by what the caller does about it.

* WorkerError
  * LineError         a call of the LINE API brought no answer
    * NotSendable     permanent: the request cannot even be written
    * NotSent         transient and definite: the request never left this machine
    * OutcomeUnknown  transient: LINE may or may not have accepted it
  * GateClosed        the process is stopping or may have been replaced; nothing was called
    * LineAway        LINE is not called for now: it fails, or refuses the access token
  * WorkerAway        the handler's worker process is away, or has lost the job
  * MayArriveTwice    a replay of a send that LINE may have accepted, too old to be proved
  * NotRunning        an `ApiClient` was used where no worker runs that it could call through
  * ContentError      a photo, video, voice message or file cannot be had
    * ContentNotReady, ContentFailed   transient: the handler is tried later
    * ContentRefused, with ContentNotFound and ContentGone; ContentTooLarge, ExternalContent
  * Lasting           each further try of the handler would fail in the same way
  * Passing           no fault of the handler's: it is tried for some minutes, however often
  * BotError          the bot asked for something that cannot be carried out
    * TalkEnded       a talk was used after its handler had ended
    * NoTimerHandler  a timer rang that no handler of the bot is for
"""

from __future__ import annotations

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
    """The process is stopping, or may have been replaced, so LINE is not called."""


class LineAway(GateClosed):
    """The breaker is open, so LINE is not called for now; the same may go later."""


class WorkerAway(WorkerError):
    """No worker process runs the handler now; the same job goes to one later.

    `worker` is the id of the one that has lost it. `waits`: the job is resumed when a worker is
    there for it.
    """

    def __init__(
        self, text: str, *, worker: str | None = None, alone: bool = False, waits: bool = False
    ) -> None:
        super().__init__(text)
        self.worker = worker
        self.alone = alone
        self.waits = waits


class NotRunning(WorkerError):
    """LINE was to be called while no worker runs: at import, or in a process of its own."""


class TransientError(WorkerError):
    """No fault of the handler's, and over in a while: it is tried for some minutes."""


class PermanentError(WorkerError):
    """Each further try of the handler would fail in the same way."""


class ContentError(WorkerError):
    """What a user sent cannot be had from LINE."""


class ContentNotReady(ContentError, TransientError):
    """LINE is still preparing it: a long video takes a while."""


class ContentFailed(ContentError, TransientError):
    """LINE failed, or the connection did, a few times in a row; what had come is thrown away."""


class ContentRefused(ContentError, PermanentError):
    """LINE refuses it for good."""


class ContentNotFound(ContentRefused):
    """LINE does not have it: it never was there, or its time is over (404)."""


class ContentGone(ContentRefused):
    """The user has taken the message back (410)."""


class ContentTooLarge(ContentError, PermanentError):
    """It is larger than the caller allows."""


class ExternalContent(ContentError, PermanentError):
    """It lies on somebody else's server, where the bot's own code has to fetch it."""


class MayArriveTwice(WorkerError):
    """A try of the send is of unknown outcome, and LINE no longer tells it from a new one."""


class BotError(PermanentError, ValueError):
    """The bot decided something that cannot be carried out; the handler is to be mended.

    `reason` goes to the log and into the dead letter's cause, so it never quotes a user.
    """

    def __init__(self, text: str, *, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason


class TalkEnded(BotError):
    """A talk was to send or to set a timer when its handler had ended."""


class NoTimerHandler(BotError):
    """A timer rang, and the bot that runs now has no handler of its name."""


NOT_ITS_FAULT = (StoreUnavailable, AccessRefused, GateClosed, WorkerAway)
"""What a handler may meet that says nothing of it: its event is not given up for that."""
