"""The loading animation: shows the user in the chat that a slow handler is running.

LINE shows it in one-to-one chats, to friends, for the requested time or until the next message. It
is free (reference, "Display a loading animation"). No answer depends on it. A call is made only
while no other call waits at the gate and before the handler has ended. A failed call is not
repeated.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import pymongo

from jobworker.errors import LineError
from jobworker.handler_context import HandlerContext
from jobworker.line.answer import LineAnswer, is_no_verdict
from jobworker.line.client import answer_or_error
from jobworker.line.gate import Gate
from jobworker.line.gate_order import Standing, Ticket, TurnClass
from jobworker.line.rate_limits import RateLimits
from jobworker.overdue import Overdue
from jobworker.record.conversations import Conversation
from linedesk.store.documents import Document, name_of, text_of
from linedesk.store.errors import StoreUnavailable
from linedesk.store.records.events import EVENT_ID

log = logging.getLogger(__name__)

START = "/v2/bot/chat/loading/start"


@dataclass(frozen=True)
class LoadingLimits:
    """When the animation is shown, and the limits of its calls."""

    after_seconds: float = 1.0
    """How long a handler runs before it is shown. Most handlers take milliseconds."""
    shown_seconds: int = 20
    """The time requested from LINE: 5 to 60 in steps of five."""
    again_seconds: float = 15.0
    """Between two successful calls, so that a wait at the gate leaves no gap."""
    read_seconds: float = 0.5
    """For reading whether the user is a friend."""
    call_seconds: float = 2.0
    """For the call. An answer decided meanwhile waits until it has ended."""
    quiet_seconds: float = 60.0
    """No calls are made for this time after one without an answer, so they never open the
    breaker.
    """


LIMITS = LoadingLimits()


class ShowState(Enum):
    """The state of one handler's animation; see the table of `Show`."""

    RESTING = "resting"
    """It waits for the clock."""
    WAITING = "waiting"
    """It waits for a turn at the gate, or is entering it."""
    CALLING = "calling"
    """A call is under way."""
    LAST_CALL = "last call"
    """The same, after the handler has ended."""
    ENDED = "ended"


class Show:
    """The animation while one handler runs. Pure; its owner has the lock.

    | state | `due` | `turn` | `answered`: taken | `answered`: not | `stop` | `end`: the handler |
    | --- | --- | --- | --- | --- | --- | --- |
    | RESTING | WAITING | - | - | - | ENDED | ENDED |
    | WAITING | - | CALLING | - | - | ENDED | ENDED |
    | CALLING | - | - | RESTING | ENDED | - | LAST_CALL |
    | LAST_CALL | - | - | ENDED | ENDED | - | - |
    | ENDED | - | - | - | - | - | - |

    `-`: nothing changes. Each method returns whether its owner continues: to the gate, with the
    call, to the clock. A call under way at the handler's end has to end before any of the handler's
    effects is called; otherwise the animation would be shown after the answer.
    """

    def __init__(self) -> None:
        self.state = ShowState.RESTING

    def due(self) -> bool:
        """It is time to show the animation."""
        return self._go(ShowState.RESTING, ShowState.WAITING)

    def turn(self) -> bool:
        """The gate gave a turn, and the call is made now."""
        return self._go(ShowState.WAITING, ShowState.CALLING)

    def answered(self, *, taken: bool) -> bool:
        """The call has ended."""
        goes_on = self._go(ShowState.CALLING, ShowState.RESTING if taken else ShowState.ENDED)
        self._go(ShowState.LAST_CALL, ShowState.ENDED)
        return goes_on and taken

    def stop(self) -> None:
        """The animation must not be shown any more, for any reason."""
        if self.state in (ShowState.RESTING, ShowState.WAITING):
            self.state = ShowState.ENDED

    def end(self) -> None:
        """The handler has ended."""
        self._go(ShowState.CALLING, ShowState.LAST_CALL)
        self.stop()

    def _go(self, before: ShowState, after: ShowState) -> bool:
        if self.state is not before:
            return False
        self.state = after
        return True


def may_be_shown(document: Document, call: HandlerContext) -> bool:
    """Whether the user waits for an answer in a chat that can show it: one-to-one, token valid."""
    event = document["event"]
    is_active = text_of(event, "mode") != "standby"
    has_chat = text_of(event, "source", "type") == "user" and text_of(event, "source", "userId")
    return bool(is_active and has_chat) and call.token_seconds > 0


def no_animation(_: Document, __: HandlerContext) -> Callable[[], None]:
    """Replaces `LoadingAnimations.begin` if animations are off."""
    return lambda: None


class LoadingAnimations:
    """The animations of all handlers. `load` reads a conversation, `post` calls LINE."""

    def __init__(
        self,
        gate: Gate,
        *,
        rate_limits: RateLimits,
        post: Callable[..., LineAnswer],
        load: Callable[[Document], Conversation],
        step: Callable[[Callable[[], None]], None],
        later: Callable[[float, Callable[[], None]], None],
        limits: LoadingLimits = LIMITS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.gate = gate
        self.step = step
        self.later = later
        self.limits = limits
        self._rate_limits = rate_limits
        self._post = post
        self._load = load
        self._monotonic = monotonic
        self.young = Overdue(limits.after_seconds, _Animation.due, later=later, monotonic=monotonic)
        # Replaced as a whole, by any thread.
        self._quiet_until = -math.inf

    def begin(self, document: Document, call: HandlerContext) -> Callable[[], None]:
        """Start for a handler; returns the function to call at its end, on its thread."""
        if not may_be_shown(document, call):
            return no_animation(document, call)
        animation = _Animation(document, call, self)
        self.young.begin(animation)
        return animation.end

    def is_friend(self, document: Document) -> bool:
        """Whether the user is known to be a friend; False if MongoDB does not answer in time."""
        if document["event"].get("type") == "follow":
            return True
        try:
            with pymongo.timeout(self.limits.read_seconds):
                return self._load(document).friend is True
        except StoreUnavailable as error:
            log.info("no loading animation, MongoDB is away error=%s", error)
            return False

    def may_call(self) -> bool:
        """Whether LINE accepts such calls, as far as known."""
        is_quiet = self._monotonic() < self._quiet_until
        return not is_quiet and not self._rate_limits.seconds(START)

    def call(self, document: Document) -> bool:
        """Make the call under the gate; returns whether LINE accepted it."""
        body = {
            "chatId": document["event"]["source"]["userId"],
            "loadingSeconds": self.limits.shown_seconds,
        }
        answer = answer_or_error(
            lambda: self._post(
                START,
                body,
                limit_seconds=self.limits.call_seconds,
                key=document["key"],
                **{EVENT_ID: name_of(document)},
            )
        )
        self._rate_limits.note(START, answer)
        return self._is_taken(answer)

    def _is_taken(self, answer: LineAnswer | LineError) -> bool:
        if not isinstance(answer, LineAnswer) or is_no_verdict(answer.status):
            self._quiet_until = self._monotonic() + self.limits.quiet_seconds
            log.info(
                "LINE refuses the loading animation, none is requested for a while seconds=%.0f",
                self.limits.quiet_seconds,
            )
            return False
        return answer.status < 300


class _Animation:
    """The animation of one handler: carries out `Show`."""

    def __init__(self, document: Document, call: HandlerContext, all_: LoadingAnimations) -> None:
        self._document = document
        self._call = call
        self._all = all_
        self._changed = threading.Condition()
        # Both under _changed.
        self._show = Show()
        self._ticket: Ticket | None = None
        self._is_known_friend = False

    def due(self) -> None:
        """On the clock's thread: the handler has run for long, or the animation ends soon."""
        with self._changed:
            if not self._show.due():
                return
        if self._is_known_friend:
            self._enter()
        else:
            self._all.step(self._ask_friend)

    def end(self) -> None:
        """The handler has ended: make no more calls, and wait for one under way."""
        self._all.young.end(self)
        with self._changed:
            self._show.end()
            ticket = self._ticket
        if ticket is not None:
            self._all.gate.cancel(ticket)
        with self._changed:
            # guard: shown-before-the-answer
            self._changed.wait_for(
                lambda: self._show.state is ShowState.ENDED,
                timeout=2 * self._all.limits.call_seconds,
            )

    def _stop(self) -> None:
        with self._changed:
            self._show.stop()

    def _ask_friend(self) -> None:
        """On a pool thread, before the gate is held."""
        if self._is_wanted() and self._all.is_friend(self._document):
            self._is_known_friend = True
            self._enter()
        else:
            self._stop()

    def _enter(self) -> None:
        ticket = Ticket(
            Standing(TurnClass.IDLE, time.monotonic()),
            patient=False,
            granted=self._take_turn,
            refused=lambda _: self._stop(),
        )
        with self._changed:
            if self._show.state is not ShowState.WAITING:
                return
            self._ticket = ticket
        self._all.gate.enter(ticket)

    def _take_turn(self, ticket: Ticket) -> None:
        """On a pool thread: handle a turn at the gate."""
        with self._all.gate.holding(ticket) as turn:
            if not (self._is_wanted() and self._all.may_call() and turn.may_call()):
                self._stop()
                return
            with self._changed:
                # The handler may have ended during the wait for the interval.
                # guard: no-animation-after-the-handler -> self._show.turn()
                if not self._show.turn():
                    return
            turn.begin()
            taken = self._all.call(self._document)
        with self._changed:
            goes_on = self._show.answered(taken=taken)
            self._changed.notify_all()
        if goes_on:
            self._all.later(self._all.limits.again_seconds, self.due)

    def _is_wanted(self) -> bool:
        """False once another run decides or the handler has sent by itself."""
        return not (self._call.is_abandoned or self._call.has_sent)
