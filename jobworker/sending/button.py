"""The button that is shown instead of an answer that is too late for its reply token.

If an event is not decided ten seconds before its token expires, the token is used for a button
template, which is free (SLOW_ANSWERS=button). The answer then waits for a tap, whose token delivers
it (`jobworker.record.waiting_answers`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum
from functools import partial

from jobworker.effects import Call, SendMethod
from jobworker.errors import LineError
from jobworker.line.answer import LineAnswer
from jobworker.line.gate_order import PLACE_SECONDS, Standing
from jobworker.line.side_call import Line, NotCalled, SideCall
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
from linedesk.store.errors import StoreUnavailable
from linedesk.store.limits import TOKEN_LIFE
from linedesk.store.records.answers import AnswerState, can_be_offered, data_of
from linedesk.store.records.calls import TurnClass
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID

log = logging.getLogger(__name__)

PATH = SendMethod.REPLY.path
LABEL = "回答を見る"
# How long before its end the token is used for the button, if the event is not decided.
BEFORE_END_SECONDS = 10.0
# The shortest time since the first handler's begin: most handlers take milliseconds.
AFTER_SECONDS = 1.0
# The pause after a call that got no verdict, or was held back.
AGAIN_SECONDS = 0.5
# How long before its end a token counts as too old to wait for.
RESERVE_SECONDS = 2.0
# For storing the try, since the gate is held meanwhile.
NOTE_SECONDS = 2.0
# For the call. A decision made meanwhile waits until it has ended.
CALL_SECONDS = 4.0


class SlowAnswers(Enum):
    """How an answer is sent after its reply token has expired."""

    PUSH = "push"
    BUTTON = "button"


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


def shown_after(before: ButtonShown, outcome: CallOutcome) -> ButtonShown:
    """Return what is known of the button once a call for it has ended.

    | | |
    | --- | --- |
    | LINE was not called, or not reached | as before: the try is noted, so REFUSED |
    | LINE has accepted a call, or refuses the token because an earlier call has used it | YES |
    | LINE's answer is no verdict | UNKNOWN |
    | LINE refuses for good, and no earlier call is of unknown outcome | REFUSED |
    """
    if outcome.ending is SendVerdict.SENT:
        return ButtonShown.YES
    if outcome.stands or outcome.unproved:
        return ButtonShown.UNKNOWN
    if outcome.ending is SendVerdict.DEAD or outcome.token_used_up:
        return ButtonShown.REFUSED
    return before


def may_be_offered(document: Document) -> bool:
    """Whether a reply to the event reaches its chat, and a tap can name it."""
    event = document["event"]
    is_active = text_of(event, "mode") != "standby"
    has_token = text_of(event, "replyToken") is not None
    return is_active and has_token and can_be_offered(name_of(document))


class Buttons:
    """The buttons of all events."""

    def __init__(self, line: Line, answers: WaitingAnswers, slow_answers: SlowAnswers) -> None:
        self.line = line
        self.answers = answers
        self.young = Overdue(
            AFTER_SECONDS, OfferedButton.begin, later=line.later, monotonic=line.monotonic
        )
        self._is_on = slow_answers is SlowAnswers.BUTTON

    def begin(
        self, document: Document, known: AnswerState | None, *, has_sent: Callable[[], bool]
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


class OfferedButton(SideCall):
    """The button of one event until that is decided. A call under way then has to end before the
    record, which depends on the result.
    """

    def __init__(
        self,
        document: Document,
        known: AnswerState | None,
        all_: Buttons,
        *,
        has_sent: Callable[[], bool],
    ) -> None:
        super().__init__(all_.line, PATH, call_seconds=CALL_SECONDS)
        self.document = document
        self._all = all_
        self._has_sent = has_sent
        self._made = Moment(datetime.now(UTC), boottime())
        self._calls = 0
        # Of the call's thread while there is one.
        self._shown = ButtonShown.UNKNOWN if known is AnswerState.OFFERED else ButtonShown.NO
        if known is AnswerState.SHOWN:
            self._shown = ButtonShown.YES
            self.close()

    def begin(self) -> None:
        """Let the clock wake it when the token is about to expire."""
        seconds = max(self._token_seconds - BEFORE_END_SECONDS, 0.0)
        if self._token_seconds - seconds > RESERVE_SECONDS:
            self._line.later(seconds, self.due)

    def end(self) -> ButtonShown:
        """The event is decided: make no more calls, and wait for one under way.

        Returns the known state of the button; the same a second time.
        """
        self._all.young.end(self)
        return self._shown if self.finish() else ButtonShown.UNKNOWN

    @property
    def _token_seconds(self) -> float:
        """How long the token is valid, by a clock that is never set."""
        until = self.document[ACCEPT_TIME] + TOKEN_LIFE
        return float((until - self._made.now(boottime())).total_seconds())

    @property
    def _again_seconds(self) -> float | None:
        return AGAIN_SECONDS if self._token_seconds > RESERVE_SECONDS else None

    def standing(self) -> Standing:
        """It is an answer with a valid token until that is too old."""
        now = self._line.monotonic()
        return Standing(TurnClass.CHAT, now + PLACE_SECONDS).with_token(
            now + self._token_seconds, reserve_seconds=RESERVE_SECONDS
        )

    def is_wanted(self) -> bool:
        """Store the try, so that a successor knows that the token may be used."""
        if self._token_seconds <= 0 or self._has_sent():
            return False
        try:
            # guard: button-noted-first -> is_noted = True
            is_noted = self._all.answers.offered(self.document, seconds=NOTE_SECONDS)
        except StoreUnavailable as error:
            log.info("no button event_id=%s error=%s", name_of(self.document), error)
            return False
        if is_noted and self._shown is ButtonShown.NO:
            self._shown = ButtonShown.REFUSED
        return is_noted

    def request(self) -> LineAnswer:
        """Show it."""
        self._calls += 1
        name = name_of(self.document)
        return self._line.client.post(
            PATH,
            {"messages": [message_of(name)], "replyToken": self.document["event"]["replyToken"]},
            limit_seconds=CALL_SECONDS,
            key=self.document["key"],
            attempt=self._calls,
            **{EVENT_ID: name},
        )

    def not_called(self, why: NotCalled) -> float | None:
        """It is tried again while the token is good."""
        is_passing = why in (NotCalled.HELD_BACK, NotCalled.NO_TURN)
        return self._again_seconds if is_passing else None

    def answered(self, answer: LineAnswer | LineError) -> float | None:
        """It is tried again until LINE's verdict is known."""
        token = self.document["event"]["replyToken"]
        call = Call(datetime.now(UTC), SendMethod.REPLY, ("button",), token=token)
        was_tried = self._shown is ButtonShown.UNKNOWN
        was_good = self._token_seconds > PROOF_SECONDS
        tried = Tried(call, [1], was_tried=was_tried, token_was_good=was_good)
        # Regardless of the setting for replies: if the button is not proved, the answer is sent
        # anyway.
        outcome = judge(tried, answer, reply_unknown=ReplyUnknown.DROP)
        self._shown = shown_after(self._shown, outcome)
        log.info(
            "button event_id=%s shown=%s answer=%s",
            *(name_of(self.document), self._shown.value, told_of(answer)),
        )
        if self._shown is ButtonShown.YES:
            self.settle()
            self._note_shown()
        is_passing = outcome.ending is SendVerdict.AGAIN and not outcome.token_used_up
        return self._again_seconds if is_passing else None

    def _note_shown(self) -> None:
        """Store it for a successor; this process knows it for its own record."""
        try:
            self._all.answers.shown(self.document)
        except StoreUnavailable as error:
            log.debug("button not recorded event_id=%s error=%s", name_of(self.document), error)
            self._line.later(AGAIN_SECONDS, partial(self._line.step, self._note_shown))
