"""The state of a running handler: whether it was abandoned, and its own sends.

The handler of an SDK bot calls LINE without the outbox. Such a call is not recorded, so a handler
that fails after it must not run again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime

from dispatcher.conversations.mailbox import HandlerCall
from jobworker.errors import GateClosed, WorkerError
from linedesk.store.documents import Document, name_of, text_of
from linedesk.store.limits import TOKEN_LIFE
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID

ABANDONED = "the handler was abandoned: its event is decided by another run"


class Abandoned(WorkerError):
    """The handler returned too late: another run decides, and this one is discarded."""


class HandlerContext:
    """One call of a handler: its event, and its own calls of LINE.

    `answered` is the event whose reply token is used, if it is another one. `number` counts the
    tries, from 1; `lost_by` are the worker processes that lost it. `withheld`: a send was refused
    its turn, even if the handler ignored that.
    """

    def __init__(
        self,
        document: Document,
        *,
        answered: Document | None = None,
        number: int = 1,
        lost_by: frozenset[str] = frozenset(),
    ) -> None:
        self.number = number
        self.lost_by = lost_by
        self.thread = threading.current_thread().name
        """Where it runs, for operators."""
        self.context = {EVENT_ID: name_of(document), "key": document["key"]}
        self.withheld = False
        answered = answered or document
        self._accepted: datetime = answered[ACCEPT_TIME]
        self._has_token = text_of(answered, "event", "replyToken") is not None
        self._handling: HandlerCall | None = None
        # Sends that must not be repeated. Each has a mark of its own, since a handler may call from
        # several threads at a time.
        self._sends: set[object] = set()
        self._at_end = ExitStack()

    @property
    def has_sent(self) -> bool:
        """Whether LINE may have executed a call that another run of the handler would repeat."""
        return bool(self._sends)

    @property
    def is_abandoned(self) -> bool:
        """Whether another run decides instead."""
        return self._handling is not None and self._handling.is_abandoned

    def when_abandoned(self, action: Callable[[], object]) -> None:
        """Call this once another run decides (`dispatcher.conversations.mailbox.HandlerCall`)."""
        if self._handling is not None:
            self._handling.when_abandoned(action)

    @property
    def token_seconds(self) -> float:
        """How long the event's reply token is still valid; 0 if it is not, and without one."""
        if not self._has_token:
            return 0.0
        return max(0.0, TOKEN_LIFE.total_seconds() - self.age_seconds)

    @property
    def age_seconds(self) -> float:
        """How long ago its event was accepted; at least 0, even if clocks differ."""
        return max(0.0, (datetime.now(UTC) - self._accepted).total_seconds())

    def begin_send(self) -> object:
        """Note that a send begins now; returns its mark. Raises GateClosed if abandoned.

        The note comes before the check, and abandoning reads the notes after it is declared. One
        side always sees the other, so the next run knows of every send.
        """
        mark = object()
        self._sends.add(mark)
        # guard: note-then-look
        if self.is_abandoned:
            self._sends.discard(mark)
            raise GateClosed(ABANDONED)
        return mark

    def forget_send(self, mark: object) -> None:
        """Note that LINE will not execute the send with this mark, so it may be made again."""
        self._sends.discard(mark)

    def at_end(self, action: Callable[[], object]) -> None:
        """Call this when the handler has ended, with or without an error."""
        self._at_end.callback(action)

    @contextmanager
    def under(self, handling: HandlerCall) -> Iterator[None]:
        """Call the handler inside it. At its end it raises Abandoned, whatever the result, and
        GateClosed if the handler returned although one of its sends was refused a turn.
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
            # The handler may have caught the error; its message would be lost silently.
            raise GateClosed("a send of the handler's was refused its turn")


# Unlike a thread's own variables, a context reaches into the coroutines and executors of `asyncio`;
# it does not reach into a thread that a handler starts itself.
_current: ContextVar[HandlerContext | None] = ContextVar("call", default=None)


def current_call() -> HandlerContext | None:
    """The call of a handler that this code is part of."""
    return _current.get()


def can_run_again() -> bool:
    """Whether the calling handler can run again, because it has sent nothing yet."""
    current = _current.get()
    return current is not None and not current.has_sent


def require_wanted() -> None:
    """Raise GateClosed if the calling handler was abandoned."""
    current = _current.get()
    if current is not None and current.is_abandoned:
        raise GateClosed(ABANDONED)
