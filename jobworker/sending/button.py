"""The button that is shown instead of an answer that is too late for its reply token.

If an event is not decided ten seconds before its token expires, the token is used for a button
template, which is free (SLOW_ANSWERS=button). The answer then waits for a tap, whose token delivers
it (`jobworker.record.waiting_answers`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import partial

import pymongo

from jobworker.effects import Call, SendMethod
from jobworker.errors import LineError
from jobworker.line.answer import LineAnswer
from jobworker.line.client import answer_or_error
from jobworker.line.gate import Gate, Turn
from jobworker.line.gate_order import PLACE_SECONDS, Standing, Ticket, TurnClass
from jobworker.line.rate_limits import RateLimits
from jobworker.overdue import Overdue
from jobworker.record.waiting_answers import ButtonShown, WaitingAnswers
from jobworker.sending.conversation_outbox import Moment, told_of
from jobworker.sending.verdict import (
    PROOF_SECONDS,
    CallOutcome,
    ReplyUnknown,
    SendVerdict,
    Tried,
    judge,
)
from linedesk.runtime.clock import boottime
from linedesk.store.documents import Document, name_of, text_of
from linedesk.store.errors import StoreUnavailable, WriteRefused
from linedesk.store.limits import TOKEN_LIFE
from linedesk.store.records.answers import AnswerState, can_be_offered, data_of
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID

log = logging.getLogger(__name__)

PATH = SendMethod.REPLY.path
LABEL = "回答を見る"


class SlowAnswers(Enum):
    """How an answer is sent after its reply token has expired."""

    PUSH = "push"
    BUTTON = "button"


@dataclass(frozen=True)
class ButtonLimits:
    """When the button is shown, and its time limits."""

    before_end_seconds: float = 10.0
    """How long before its end the token is used for the button, if the event is not decided."""
    after_seconds: float = 1.0
    """The shortest time since the first handler's begin: most handlers take milliseconds."""
    again_seconds: float = 0.5
    """The pause after a call that got no verdict, or was held back."""
    reserve_seconds: float = 2.0
    """How long before its end a token counts as too old to wait for."""
    note_seconds: float = 2.0
    """For storing the try, since the gate is held meanwhile."""
    call_seconds: float = 4.0
    """For the call. A decision made meanwhile waits until it has ended."""


LIMITS = ButtonLimits()


def message_of(name: str) -> Document:
    """Return the message with the button of an event's answer.

    LINE's reference, "Buttons template": 160 characters of text, 20 of a label, 300 of data.
    """
    return {
        "type": "template",
        "altText": "回答の準備に時間がかかっています。",
        "template": {
            "type": "buttons",
            "text": (
                f"回答の準備に時間がかかっています。しばらくしてから「{LABEL}」を押してください。"
            ),
            "actions": [
                {"type": "postback", "label": LABEL, "data": data_of(name), "displayText": LABEL}
            ],
        },
    }


class OfferState(Enum):
    """The state of one event's button; see the table of `Offer`."""

    RESTING = "resting"
    """It waits for the clock."""
    WAITING = "waiting"
    """It waits for a turn at the gate, or is entering it."""
    CALLING = "calling"
    """LINE is called."""
    LAST_CALL = "last call"
    """The same, while the event is being decided."""
    OVER = "over"
    """No more calls are made."""


class Offer:
    """The button of one event until that is decided. Pure; its owner has the lock.

    | state | `due` | `turn` | answer: again | answer: any other | `stop` | `end`: decided |
    | --- | --- | --- | --- | --- | --- | --- |
    | RESTING | WAITING | - | - | - | OVER | OVER |
    | WAITING | - | CALLING | - | - | OVER | OVER |
    | CALLING | - | - | RESTING | OVER | - | LAST_CALL |
    | LAST_CALL | - | - | OVER | OVER | - | - |
    | OVER | - | - | - | - | - | - |

    `-`: nothing changes. `due`, `turn` and `answered` return whether the owner goes on. A call that
    is under way as the event is decided has to end before the record, which depends on `shown`:

    | | `shown` |
    | --- | --- |
    | the try is written down | REFUSED in place of NO |
    | LINE was not called, or not reached | as before |
    | LINE has accepted a call, or refuses the token because an earlier call has used it | YES |
    | LINE's answer is no verdict | UNKNOWN |
    | LINE refuses for good, and no earlier call is of unknown outcome | REFUSED |
    """

    def __init__(self, known: AnswerState | None = None) -> None:
        self.state = OfferState.RESTING
        self.shown = ButtonShown.NO
        if known is AnswerState.OFFERED:
            self.shown = ButtonShown.UNKNOWN
        elif known is AnswerState.SHOWN:
            self.shown, self.state = ButtonShown.YES, OfferState.OVER

    def due(self) -> bool:
        """It is time to show the button."""
        return self._go(OfferState.RESTING, OfferState.WAITING)

    def noted(self) -> None:
        """A try is stored in the conversation."""
        if self.shown is ButtonShown.NO:
            self.shown = ButtonShown.REFUSED

    def turn(self) -> bool:
        """The gate gave a turn, and LINE is called now."""
        return self._go(OfferState.WAITING, OfferState.CALLING)

    def held_back(self) -> bool:
        """There was a turn, but LINE cannot be called now."""
        return self._go(OfferState.WAITING, OfferState.RESTING)

    def answered(self, outcome: CallOutcome) -> bool:
        """The call has ended; returns whether there is another try."""
        if outcome.ending is SendVerdict.SENT:
            self.shown = ButtonShown.YES
        elif outcome.stands or outcome.unproved:
            self.shown = ButtonShown.UNKNOWN
        elif outcome.ending is SendVerdict.DEAD or outcome.token_used_up:
            self.shown = ButtonShown.REFUSED
        again = outcome.ending is SendVerdict.AGAIN and not outcome.token_used_up
        goes_on = self._go(OfferState.CALLING, OfferState.RESTING if again else OfferState.OVER)
        self._go(OfferState.LAST_CALL, OfferState.OVER)
        return goes_on and again

    def stop(self) -> None:
        """The button must not be shown any more, for any reason."""
        if self.state in (OfferState.RESTING, OfferState.WAITING):
            self.state = OfferState.OVER

    def end(self) -> None:
        """The event is being decided."""
        self._go(OfferState.CALLING, OfferState.LAST_CALL)
        self.stop()

    def _go(self, before: OfferState, after: OfferState) -> bool:
        if self.state is not before:
            return False
        self.state = after
        return True


def may_be_offered(document: Document) -> bool:
    """Whether a reply to the event reaches its chat, and a tap can name it."""
    event = document["event"]
    is_active = text_of(event, "mode") != "standby"
    has_token = text_of(event, "replyToken") is not None
    return is_active and has_token and can_be_offered(name_of(document))


def no_button(
    _: Document, __: AnswerState | None, *, has_sent: Callable[[], bool]
) -> OfferedButton | None:
    """Replaces `Buttons.begin` if buttons are off."""
    return None


class Buttons:
    """The buttons of all events. `post` calls LINE, `step` runs a function on a pool thread."""

    def __init__(
        self,
        gate: Gate,
        *,
        answers: WaitingAnswers,
        rate_limits: RateLimits,
        post: Callable[..., LineAnswer],
        step: Callable[[Callable[[], None]], None],
        later: Callable[[float, Callable[[], None]], None],
        slow_answers: SlowAnswers = SlowAnswers.BUTTON,
        limits: ButtonLimits = LIMITS,
    ) -> None:
        self.gate = gate
        self.answers = answers
        self.rate_limits = rate_limits
        self.step = step
        self.later = later
        self.limits = limits
        self.young = Overdue(limits.after_seconds, OfferedButton.begin, later=later)
        self._post = post
        self._is_on = slow_answers is SlowAnswers.BUTTON

    def begin(
        self,
        document: Document,
        known: AnswerState | None,
        *,
        has_sent: Callable[[], bool],
    ) -> OfferedButton | None:
        """Note that an event's handler is called for the first time. None if it can have no button.

        `known` is a predecessor's note of it; `has_sent` returns whether the handler has called
        LINE by itself, so that its token may be used.
        """
        if not may_be_offered(document) or (known is None and not self._is_on):
            return None
        offered = OfferedButton(document, known, self, has_sent=has_sent)
        if self._is_on:
            self.young.begin(offered)
        return offered

    def call(self, document: Document, attempt: int) -> LineAnswer:
        """Make the call, under the gate. Raises LineError."""
        name = name_of(document)
        return self._post(
            PATH,
            {"messages": [message_of(name)], "replyToken": document["event"]["replyToken"]},
            limit_seconds=self.limits.call_seconds,
            key=document["key"],
            attempt=attempt,
            **{EVENT_ID: name},
        )


class OfferedButton:
    """The button of one event: carries out `Offer`."""

    def __init__(
        self,
        document: Document,
        known: AnswerState | None,
        all_: Buttons,
        *,
        has_sent: Callable[[], bool],
    ) -> None:
        self.document = document
        self._all = all_
        self._has_sent = has_sent
        self._made = Moment(datetime.now(UTC), boottime())
        self._calls = 0
        self._changed = threading.Condition()
        # Both under _changed.
        self._offer = Offer(known)
        self._ticket: Ticket | None = None

    def begin(self) -> None:
        """Let the clock wake it when the token is about to expire."""
        limits = self._all.limits
        seconds = max(self._token_seconds - limits.before_end_seconds, 0.0)
        if self._token_seconds - seconds > limits.reserve_seconds:
            self._all.later(seconds, self._due)

    def end(self) -> ButtonShown:
        """The event is decided: make no more calls, and wait for one under way.

        Returns the known state of the button; the same a second time.
        """
        self._all.young.end(self)
        with self._changed:
            self._offer.end()
            ticket = self._ticket
        if ticket is not None:
            self._all.gate.cancel(ticket)
        with self._changed:
            # guard: button-before-the-decision
            self._changed.wait_for(
                lambda: self._offer.state is OfferState.OVER,
                timeout=2 * self._all.limits.call_seconds,
            )
            if self._offer.state is not OfferState.OVER:
                return ButtonShown.UNKNOWN
            return self._offer.shown

    @property
    def _token_seconds(self) -> float:
        """How long the token is valid, by a clock that is never set."""
        until = self.document[ACCEPT_TIME] + TOKEN_LIFE
        return float((until - self._made.now(boottime())).total_seconds())

    @property
    def _is_wanted(self) -> bool:
        return self._token_seconds > 0 and not self._has_sent()

    def _stop(self) -> None:
        with self._changed:
            self._offer.stop()

    def _due(self) -> None:
        """On the clock's thread."""
        now, limits = time.monotonic(), self._all.limits
        standing = Standing(TurnClass.CHAT, now + PLACE_SECONDS)
        standing = standing.with_token(
            now + self._token_seconds, reserve_seconds=limits.reserve_seconds
        )
        ticket = Ticket(
            standing, patient=False, granted=self._take_turn, refused=lambda _: self._stop()
        )
        with self._changed:
            if not self._offer.due():
                return
            self._ticket = ticket
        self._all.gate.enter(ticket)

    def _take_turn(self, ticket: Ticket) -> None:
        """On a pool thread: handle a turn at the gate."""
        with self._all.gate.holding(ticket) as turn:
            follow = self._called(turn)
        # The gate is free for others by now.
        if follow is not None:
            follow()

    def _called(self, turn: Turn) -> Callable[[], None] | None:
        """Note the try, and call LINE; returns what follows once the gate is free."""
        if not self._is_wanted:
            return self._stop
        if self._all.rate_limits.seconds(PATH):
            return self._rest
        if not self._is_noted():
            return self._stop
        if not turn.may_call():
            return self._rest
        with self._changed:
            # The event may have been decided during the wait for the interval.
            # guard: no-button-after-the-decision -> self._offer.turn()
            if not self._offer.turn():
                return None
            was_tried = self._offer.shown is ButtonShown.UNKNOWN
        turn.begin()
        answer, outcome = self._call_line(was_tried=was_tried)
        with self._changed:
            again = self._offer.answered(outcome)
            shown = self._offer.shown
            self._changed.notify_all()
        log.info(
            "button event_id=%s shown=%s answer=%s",
            *(name_of(self.document), shown.value, told_of(answer)),
        )
        if shown is ButtonShown.YES:
            return self._note_shown
        return self._later if again else None

    def _call_line(self, *, was_tried: bool) -> tuple[LineAnswer | LineError, CallOutcome]:
        """Return LINE's answer and its meaning."""
        token = self.document["event"]["replyToken"]
        call = Call(datetime.now(UTC), SendMethod.REPLY, ("button",), token=token)
        self._calls += 1
        answer = answer_or_error(partial(self._all.call, self.document, self._calls))
        was_good = self._token_seconds > PROOF_SECONDS
        tried = Tried(call, [1], was_tried=was_tried, token_was_good=was_good)
        self._all.rate_limits.note(PATH, answer)
        # Regardless of the setting for replies: if the button is not proved, the answer is sent
        # anyway.
        return answer, judge(tried, answer, reply_unknown=ReplyUnknown.DROP)

    def _is_noted(self) -> bool:
        """Store the try, so that a successor knows that the token may be used."""
        try:
            with pymongo.timeout(self._all.limits.note_seconds):
                # guard: button-noted-first -> is_noted = True
                is_noted = self._all.answers.offered(self.document)
        except (StoreUnavailable, WriteRefused) as error:
            log.info("no button event_id=%s error=%s", name_of(self.document), error)
            return False
        if is_noted:
            with self._changed:
                self._offer.noted()
        return is_noted

    def _note_shown(self) -> None:
        """Store it for a successor; this process knows it for its own record."""
        try:
            self._all.answers.shown(self.document)
        except StoreUnavailable as error:
            log.info("button not recorded event_id=%s error=%s", name_of(self.document), error)
            self._all.later(
                self._all.limits.again_seconds, partial(self._all.step, self._note_shown)
            )

    def _rest(self) -> None:
        with self._changed:
            if not self._offer.held_back():
                return
        self._later()

    def _later(self) -> None:
        if self._token_seconds > self._all.limits.reserve_seconds:
            self._all.later(self._all.limits.again_seconds, self._due)
        else:
            self._stop()
