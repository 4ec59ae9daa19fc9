"""What is known of a handler while it runs: whether it was abandoned, and what it sent by itself.

The handler of an SDK bot calls LINE past the outbox. Such a call is not recorded, so a handler that
fails after it must not run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime

from jobworker.errors import GateClosed, WorkerError
from linedesk.contract import HandlerCall
from linedesk.store.documents import Document, name_of, text_of
from linedesk.store.limits import TOKEN_LIFE
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID


class Abandoned(WorkerError):
    """The handler came back too late: another run decides, and this one does nothing more."""


class HandlerContext:
    """One call of a handler: whose event it is, and what it has done at LINE by itself.

    `answered` is the event whose reply token is used, where that is another one.
    `withheld`: a send was refused its turn, whatever the handler made of that.
    """

    def __init__(self, document: Document, *, answered: Document | None = None) -> None:
        self.context = {EVENT_ID: name_of(document), "key": document["key"]}
        self.withheld = False
        answered = answered or document
        self._accepted: datetime = answered[ACCEPT_TIME]
        self._has_token = text_of(answered, "event", "replyToken") is not None
        self._handling: HandlerCall | None = None
        # Sends not to be made again; each mark by itself, since a handler may call from several
        # threads at a time.
        self._sends: set[object] = set()
        self._at_end = ExitStack()

    @property
    def has_sent(self) -> bool:
        """Whether LINE may have done something that another run of the handler would repeat."""
        return bool(self._sends)

    @property
    def is_abandoned(self) -> bool:
        """Whether another run decides by now."""
        return self._handling is not None and self._handling.is_abandoned

    def when_abandoned(self, action: Callable[[], object]) -> None:
        """Call this once another run decides (`linedesk.contract.HandlerCall`)."""
        if self._handling is not None:
            self._handling.when_abandoned(action)

    @property
    def token_seconds(self) -> float:
        """How long the event's reply token is still good; 0 once it is not, and without one."""
        if not self._has_token:
            return 0.0
        return max(0.0, TOKEN_LIFE.total_seconds() - self.age_seconds)

    @property
    def age_seconds(self) -> float:
        """How long ago its event was accepted; no less than 0, whatever a clock says."""
        return max(0.0, (datetime.now(UTC) - self._accepted).total_seconds())

    def begin_send(self) -> object:
        """Note that a send leaves now; returns its mark. Raises GateClosed if abandoned.

        Noted before the look, and who abandons looks for the note after it has said so: one of the
        two sees the other, so no send goes out that the next run knows nothing of.
        """
        mark = object()
        self._sends.add(mark)
        # guard: note-then-look
        if self.is_abandoned:
            self._sends.discard(mark)
            raise GateClosed("the handler was abandoned: its event is decided by another run")
        return mark

    def forget_send(self, mark: object) -> None:
        """The send that got this mark may be made again: LINE did nothing, or will not twice."""
        self._sends.discard(mark)

    def at_end(self, action: Callable[[], object]) -> None:
        """Do something when the handler has ended, however it ends."""
        self._at_end.callback(action)

    @contextmanager
    def under(self, handling: HandlerCall) -> Iterator[None]:
        """Call the handler inside it. Raises Abandoned at its end, whatever it came to, and
        GateClosed where it returned although a send of its was refused a turn.
        """
        self._handling = handling
        token = _current.set(self)
        try:
            with self._at_end:
                yield
        finally:
            _current.reset(token)
            # guard: thrown-away-at-its-end
            if not handling.end():
                raise Abandoned("the handler did not return in time")
        if self.withheld:
            # It may have caught the error; its message would be lost without a word.
            raise GateClosed("a send of the handler's was refused its turn")


# A context reaches into the coroutines and executors of `asyncio`, other than a thread's own
# variables; it does not reach into a thread that a handler starts by itself.
_current: ContextVar[HandlerContext | None] = ContextVar("call", default=None)


def current_call() -> HandlerContext | None:
    """The call of a handler that this code is part of."""
    return _current.get()


def can_run_again() -> bool:
    """Whether a handler makes the call that can be run again, since it has sent nothing yet."""
    current = _current.get()
    return current is not None and not current.has_sent


def require_wanted() -> None:
    """Raise GateClosed where the handler that wants to call LINE was abandoned."""
    current = _current.get()
    if current is not None and current.is_abandoned:
        raise GateClosed("the handler was abandoned: its event is decided by another run")
