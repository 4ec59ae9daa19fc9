"""The loading animation: shows the user in the chat that a slow handler is running.

LINE shows it in one-to-one chats, to friends, for the requested time or until the next message. It
is free (reference, "Display a loading animation"). No answer depends on it. A call is made only
while no other call waits at the gate and before the handler has ended. A failed call is not
repeated.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import pymongo

from jobworker.errors import LineError
from jobworker.handler_context import HandlerContext
from jobworker.line.answer import LineAnswer
from jobworker.line.side_call import Line, NotCalled, SideCall, is_verdict
from jobworker.overdue import Overdue
from jobworker.record.conversations import StoredConversation
from linedesk.store.documents import Document, name_of, text_of
from linedesk.store.errors import StoreUnavailable
from linedesk.store.records.events import EVENT_ID

log = logging.getLogger(__name__)

START = "/v2/bot/chat/loading/start"
# How long a handler runs before it is shown. Most handlers take milliseconds.
AFTER_SECONDS = 1.0
# The time requested from LINE: 5 to 60 in steps of five.
SHOWN_SECONDS = 20
# Between two successful calls, so that a wait at the gate leaves no gap.
AGAIN_SECONDS = 15.0
# For reading whether the user is a friend.
READ_SECONDS = 0.5
# For the call. An answer decided meanwhile waits until it has ended.
CALL_SECONDS = 2.0
# No calls are made for this time after one without an answer, so they never open the breaker.
QUIET_SECONDS = 60.0


def may_be_shown(document: Document, call: HandlerContext) -> bool:
    """Whether the user waits for an answer in a chat that can show it: one-to-one, token valid."""
    event = document["event"]
    is_active = text_of(event, "mode") != "standby"
    has_chat = text_of(event, "source", "type") == "user" and text_of(event, "source", "userId")
    return bool(is_active and has_chat) and call.token_seconds > 0


class LoadingAnimations:
    """The animations of all handlers, if they are on. `load` reads a conversation."""

    def __init__(
        self, line: Line, *, load: Callable[[Document], StoredConversation], is_on: bool = True
    ) -> None:
        self.line = line
        self.load = load
        self._is_on = is_on
        self.young = Overdue(
            AFTER_SECONDS, _Animation.due, later=line.later, monotonic=line.monotonic
        )
        # Replaced as a whole, by any thread.
        self.quiet_until = -math.inf

    def begin(self, document: Document, call: HandlerContext) -> Callable[[], None]:
        """Start for a handler; returns the function to call at its end, on its thread."""
        if not self._is_on or not may_be_shown(document, call):
            return lambda: None
        animation = _Animation(document, call, self)
        self.young.begin(animation)
        return animation.end


class _Animation(SideCall):
    """The animation of one handler. A call under way at the handler's end has to end before any of
    the handler's effects is called; otherwise the animation would be shown after the answer.
    """

    def __init__(self, document: Document, call: HandlerContext, all_: LoadingAnimations) -> None:
        super().__init__(all_.line, START, call_seconds=CALL_SECONDS)
        self._document = document
        self._call = call
        self._all = all_
        self._is_known_friend = False

    def end(self) -> None:
        """The handler has ended: make no more calls, and wait for one under way."""
        self._all.young.end(self)
        self.finish()

    def enter(self) -> None:
        """Ask first whether the user is a friend, on a pool thread and before the gate is held."""
        if self._is_known_friend:
            super().enter()
        else:
            self._line.step(self._ask_friend)

    def _ask_friend(self) -> None:
        self._is_known_friend = self.is_wanted() and self._is_friend()
        if self._is_known_friend:
            super().enter()
        else:
            self.close()

    def _is_friend(self) -> bool:
        """Whether the user is known to be a friend; False if MongoDB does not answer in time."""
        if self._document["event"].get("type") == "follow":
            return True
        try:
            with pymongo.timeout(READ_SECONDS):
                return self._all.load(self._document).friend is True
        except StoreUnavailable:
            return False

    def is_wanted(self) -> bool:
        is_quiet = self._line.monotonic() < self._all.quiet_until
        return not (self._call.is_abandoned or self._call.has_sent or is_quiet)

    def not_called(self, why: NotCalled) -> None:
        pass

    def request(self) -> LineAnswer:
        user = self._document["event"]["source"]["userId"]
        body = {"chatId": user, "loadingSeconds": SHOWN_SECONDS}
        return self._line.client.post(
            START,
            body,
            limit_seconds=CALL_SECONDS,
            key=self._document["key"],
            **{EVENT_ID: name_of(self._document)},
        )

    def answered(self, answer: LineAnswer | LineError) -> float | None:
        if is_verdict(answer):
            return AGAIN_SECONDS if answer.status < 300 else None
        self._all.quiet_until = self._line.monotonic() + QUIET_SECONDS
        log.info(
            "LINE refuses the loading animation, none is requested for a while seconds=%.0f",
            QUIET_SECONDS,
        )
        return None
