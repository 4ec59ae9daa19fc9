"""The sends of a conversation, with one call to LINE at a time, as a state machine. Pure.

The state changes under the outbox's lock. The fields of a call (`call`, `answer`, `calls`) are
changed by the one thread that has it. Results of methods are carried out after the lock is free, so
they can overtake each other. A send may be given up before its ticket has reached the gate, or an
unwanted turn may come. Both change nothing here.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from functools import partial, reduce
from itertools import islice, takewhile

import bson

from dispatcher.conversations.conversations import Conversation
from jobworker.effects import Call, Send, SendMethod
from jobworker.errors import LineError, NotSent, OutcomeUnknown
from jobworker.line.answer import LineAnswer
from jobworker.line.gate_order import PLACE_SECONDS, Standing, Ticket
from jobworker.sending.late_replies import LateReplies
from jobworker.sending.verdict import (
    PROOF_SECONDS,
    CallOutcome,
    ReplyUnknown,
    Tried,
    expired,
    judge,
    outlived,
)
from linedesk.runtime.backoff import growing_seconds, pause_seconds
from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable, WriteRefused
from linedesk.store.limits import A_DAY, MOST_MESSAGES, MOST_USERS, TOKEN_LIFE, USER, day_of
from linedesk.store.records.calls import TurnClass
from linedesk.store.records.letters import LATE, NO_VERDICT, QUOTA, Cause
from linedesk.store.records.waits import Why, reason


@dataclass(frozen=True)
class SendLimits:
    """The time limits of sends, the number of tries, how many may wait, and what may be paid."""

    note_seconds: float = 2.0
    """For storing a try, since the gate is held meanwhile. It usually takes milliseconds."""
    first_pause_seconds: float = 0.5
    """The pause before the second try; it grows with each further one."""
    longest_pause_seconds: float = 60.0
    first_quota_seconds: float = 60.0
    """The pause before a push that met the monthly limit is tried again; by then the month is
    read.
    """
    longest_quota_seconds: float = 3600.0
    store_pause_seconds: float = 5.0
    """The longest pause between two tries of a write that MongoDB did not confirm."""
    push_seconds: float = PLACE_SECONDS
    """A send without a token is placed at the gate as if its token lived this long; so are the
    remaining sends of a conversation after a call.
    """
    token_reserve_seconds: float = 3.0
    """How long before its end a reply token counts as too old to wait for: the call has to be
    stored and has to reach LINE.
    """
    most_unanswered: int = 1000
    """Tries of one call without a verdict of LINE. At an average pause of half a minute that is
    eight hours, twice LINE's longest outage of 2026. A message on which LINE always fails has to
    end at some point.
    """
    most_per_conversation: int = 100
    """Sends of one conversation; above the limit its key is deferred."""
    most_bytes_per_conversation: int = 2 * 1024 * 1024
    """Their size as BSON; above the limit the key is deferred as well."""
    most_in_all: int = 10_000
    """Effects of all outboxes; above the limit reading pauses."""
    most_bytes_in_all: int = 64 * 1024 * 1024
    """Size of the sends of all outboxes; above the limit reading pauses."""
    reply_unknown: ReplyUnknown = ReplyUnknown.PUSH
    late_replies_a_day: int = A_DAY
    """Paid calls a day for late replies of one conversation."""


LIMITS = SendLimits()
# A call that is stored and not made is stored anew after that: its time counts as that of its try.
STORED_FOR = timedelta(minutes=1)


class CallState(Enum):
    """The state of the next call; see the table of `Caller`."""

    IDLE = "idle"
    WAITING = "waiting"
    """Its ticket is at the gate, or entering it."""
    BUSY = "busy"
    """A thread has it, or returns to it: all writes and calls happen in this state."""
    RESTING = "resting"


@dataclass(frozen=True)
class Enter:
    """Let the ticket enter the gate."""

    ticket: Ticket


@dataclass(frozen=True)
class Move:
    """Give the ticket at the gate this standing as well."""

    ticket: Ticket
    standing: Standing


@dataclass(frozen=True)
class Rest:
    """Let the clock wake it."""

    seconds: float


@dataclass(frozen=True)
class MakeLetters:
    """Make dead letters of the sends at these places. The ticket, if any, is cancelled first."""

    cause: Cause
    places: Sequence[str]
    ticket: Ticket | None = None


@dataclass(frozen=True)
class PutBack:
    """Let the answer at this place wait for another tap: the token of the last one has expired."""

    place: str


@dataclass(frozen=True)
class Go:
    """Call LINE after storing the call, unless it is stored; `is_new` means that it was not made
    yet.
    """

    call: Call
    is_new: bool
    late_on: str = ""
    """The day for which it counts as a late reply, which costs a push."""


@dataclass(frozen=True)
class Budget:
    """The rest of the month's quota, and how much of it late replies have used today."""

    late: LateReplies
    is_closed: bool = False
    """Whether LINE refuses pushes."""
    left: int | None = None
    """How many people can still be reached; None if unknown or unlimited."""
    people: int = 1
    """How many people a push to the conversation reaches, as far as known."""


NO_LIMIT = Budget(LateReplies())


@dataclass(frozen=True)
class Moment:
    """One moment by the wall clock and by the time since boot."""

    at: datetime
    boottime: float

    def now(self, boottime: float) -> datetime:
        """The time by a clock that is never set. If the clock were set back, an expired token would
        look valid, and LINE's refusal of it would look like a proof that an earlier try has used
        it.
        """
        # guard: time-since-boot -> return self.at
        return self.at + timedelta(seconds=boottime - self.boottime)


NextStep = Enter | Move | Rest | MakeLetters | PutBack


@dataclass(frozen=True)
class Request:
    """The content of a call."""

    body: Document
    sends: Sequence[tuple[str, Send]]
    """Its sends that are in memory, each with its chat."""


class Caller(ABC):
    """Calls LINE, one call at a time: the outbox of a conversation, or a batch of several.

    | state | there is something to send | more urgent | its turn | given up |
    | --- | --- | --- | --- | --- |
    | IDLE | WAITING: `begin`, Enter | - | - | - |
    | WAITING: at the gate | - | Move | BUSY | BUSY: MakeLetters with its ticket |
    | BUSY: with a thread | - | - | - | later |
    | RESTING: with the clock | - | - | - | BUSY: MakeLetters |

    RESTING becomes WAITING by `wake` and, if it rests for the quota, by `month_closed`; BUSY does
    by `again`. All Enter. `-`: the state stays. `later`: it applies when BUSY would become WAITING
    or RESTING, which stays BUSY instead, with MakeLetters. Once LINE has the message it has no
    effect.

    | the thread finds | the caller becomes |
    | --- | --- |
    | too old, refused for good, or too many failed tries | BUSY with MakeLetters, then as below |
    | an answer requested by a tap whose token has expired | BUSY with PutBack, then as below |
    | the endpoint is held back (429), until a reply becomes a push at the latest | RESTING |
    | the call cannot be stored in time; LINE was not called, so it is new again | RESTING |
    | its first send has left the outbox | as below |
    | stored, but the lease is stale | WAITING; it was not made, and stays stored |
    | stored, but the process stops | the same; the end of the stop removes the call |
    | LINE has it | BUSY until it is out of the outbox, then as below |
    | again | BUSY until the answer's changes are durable, then RESTING, or WAITING at once |

    As below: WAITING with the remaining sends, else IDLE. While MongoDB does not confirm a write it
    stays BUSY, and no other thread takes it.

    | `call` in MongoDB | `is_tried` | the next call |
    | --- | --- | --- |
    | none | no | is stored first |
    | stored and not made | no | is this one; a new one if it is old or would carry others by now |
    | LINE may have it | yes | is the same again, whatever waits |

    A call that is stored with its record, or whose turn is called off, is stored and not made. LINE
    may have it as soon as it is made. A verdict unsets it, and so does the end of its sends.
    """

    def __init__(self, name: str, limits: SendLimits, granted: Callable[[Ticket], None]) -> None:
        self.name = name
        """For log lines."""
        self.state = CallState.IDLE
        self.reason: Document | None = None
        """Why it rests, for operators; None while it waits for a turn or is called."""
        self.call: Call | None = None
        """The call that is stored in MongoDB."""
        self.is_tried = False
        """Whether it was made, and its outcome is unknown."""
        self.calls = 0
        """How many times LINE was called since a send left."""
        self.given_up_for: Cause | None = None
        """Why it was given up, if it was and a thread still has it."""
        self.answer: LineAnswer | LineError = OutcomeUnknown("not called")
        """LINE's last answer."""
        self._limits = limits
        self._granted = granted
        self._ticket: Ticket | None = None
        self._rest: Rest | None = None
        self._failures = 0
        self._unanswered = 0
        self._over_quota = 0

    @abstractmethod
    def standing(self, now: float) -> Standing:
        """Return its standing at the gate; `now` is the monotonic time."""

    @abstractmethod
    def given_up_places(self) -> Sequence[str]:
        """Return the sends that become dead letters if it is given up now."""

    @abstractmethod
    def plan(
        self, boottime: float, held_seconds: Callable[[str], float], budget: Budget = NO_LIMIT
    ) -> MakeLetters | PutBack | Rest | Go:
        """Return what to do with the turn. `held_seconds` returns how long an endpoint is held
        back.
        """

    @abstractmethod
    def request(self, call: Call) -> Request:
        """Return the content of a call of it."""

    @abstractmethod
    def judged(self, go: Go, boottime: float) -> CallOutcome:
        """Return the meaning of LINE's answer to that call, which has come now."""

    @property
    def unknown_call(self) -> Call | None:
        """The call that LINE may have."""
        return self.call if self.is_tried else None

    # Called by any thread.

    def begin(self, now: float) -> Enter | None:
        """There is something to send."""
        return self._wait(now) if self.state is CallState.IDLE else None

    def wake(self, rest: Rest, now: float) -> Enter | None:
        """End that rest; ignored if it was given up meanwhile, even if it rests again."""
        rests = self.state is CallState.RESTING and self._rest is rest
        return self._wait(now) if rests else None

    def turn(self, ticket: Ticket) -> bool:
        """Handle a turn; returns whether it is still wanted."""
        # guard: given-up-before-its-turn
        if self.state is not CallState.WAITING or self._ticket is not ticket:
            return False
        self.state = CallState.BUSY
        return True

    def waits_for(self, at_gate: Callable[[TurnClass], Document]) -> Document:
        """Return for operators why its next call is not made yet; `at_gate` gives the reason by
        class.
        """
        if self.state is CallState.WAITING and self._ticket is not None:
            return at_gate(self._ticket.turn_class)
        return self.reason or reason(Why.SENDING)

    def take_along(self) -> Ticket | None:
        """Let its sends be part of a batch: a thread has it until `again`. Returns the ticket to
        cancel.
        """
        self.state = CallState.BUSY
        return self._ticket

    def month_closed(self, now: float) -> Enter | None:
        """The month is known to be used up: a call that rests until that is known can continue."""
        rests = self.state is CallState.RESTING and self._over_quota > 0
        return self._wait(now) if rests else None

    def give_up(self, cause: Cause) -> MakeLetters | None:
        """Make its next call dead letters: now, or once its present thread is done."""
        if self.given_up_for is not None or self.state is CallState.IDLE:
            return None
        self.given_up_for = cause
        # guard: call-under-way-ends-first
        if self.state is CallState.BUSY:
            return None
        ticket = self._ticket if self.state is CallState.WAITING else None
        self.state = CallState.BUSY
        return MakeLetters(cause, self.given_up_places(), ticket)

    # Called by the thread that has it, in BUSY.

    def begin_call(self) -> None:
        """LINE is called now."""
        self.calls += 1
        self.is_tried = True

    def not_stored(self, error: StoreUnavailable) -> Rest | MakeLetters:
        """The call could not be stored in time; it may be stored in place of another one."""
        self.call = None
        seconds = self.not_confirmed(error)
        return self.rest(seconds, _why(error))

    def again(self, now: float) -> Enter | MakeLetters:
        """Wait for another turn at once."""
        if self.given_up_for is not None:
            return MakeLetters(self.given_up_for, self.given_up_places())
        return self._wait(now)

    def rest(self, seconds: float, why: Document) -> Rest | MakeLetters:
        """Wait for the clock."""
        if self.given_up_for is not None:
            return MakeLetters(self.given_up_for, self.given_up_places())
        self.state, self.reason, self._rest = CallState.RESTING, why, Rest(seconds)
        return self._rest

    def failed(self, outcome: CallOutcome, now: float) -> Enter | Rest | MakeLetters:
        """It has to be tried again, and the answer's changes are durable."""
        self._unanswered += outcome.unanswered
        if self._unanswered >= self._limits.most_unanswered:
            cause = Cause(NO_VERDICT, {"tries": self._unanswered})
            return MakeLetters(cause, self.given_up_places())
        self._failures += 1
        seconds = outcome.wait_seconds
        if outcome.cause == QUOTA and seconds is None:
            self._over_quota += 1
            seconds = growing_seconds(
                self._over_quota,
                first=self._limits.first_quota_seconds,
                most=self._limits.longest_quota_seconds,
            )
        if seconds is None:
            seconds = pause_seconds(
                self._failures,
                first=self._limits.first_pause_seconds,
                most=self._limits.longest_pause_seconds,
            )
        if not seconds:
            return self.again(now)
        return self.rest(seconds, self._answered(seconds, is_over_quota=outcome.cause == QUOTA))

    def _answered(self, seconds: float, *, is_over_quota: bool) -> Document:
        """LINE's last answer, as the reason to wait so long."""
        if isinstance(self.answer, LineAnswer):
            why = Why.MONTHS_LIMIT if is_over_quota else Why.LINE_ANSWERED
            return reason(why, seconds, status=self.answer.status)
        is_away = isinstance(self.answer, NotSent)
        return reason(Why.NO_CONNECTION if is_away else Why.NO_ANSWER, seconds)

    def not_confirmed(self, error: StoreUnavailable) -> float:
        """MongoDB did not confirm a write; returns the pause before it is repeated."""
        self._failures += 1
        self.reason = _why(error)
        return pause_seconds(self._failures, most=self._limits.store_pause_seconds)

    def _wait(self, now: float) -> Enter:
        self.state, self.reason = CallState.WAITING, None
        self._ticket = Ticket(self.standing(now), granted=self._granted)
        return Enter(self._ticket)


def _is_late(send: Send) -> bool:
    """Whether it was meant as a reply and is not worth a push when late."""
    return send.way is SendMethod.REPLY and not send.may_be_late and send.answer_to is None


def _same_for_all(run: Sequence[PendingSend]) -> bytes | None:
    """Return a digest of their messages; None if they quote a message or mention people of one
    chat.
    """
    messages = [message for one in run for message in one.send.messages]
    try:
        text = json.dumps(messages, sort_keys=True)
    except (TypeError, ValueError):
        return None
    if '"quoteToken"' in text or '"mention' in text:
        return None
    return hashlib.blake2b(text.encode()).digest()


def standing_of(
    send: Send, conversation: str, limits: SendLimits, *, now: float, at: datetime
) -> Standing:
    """Return the standing of a single send; `now` is the monotonic time of moment `at`."""
    own_chat = send.way is SendMethod.PUSH and send.to == conversation.partition("/")[2]
    # An answer with an expired token needs a turn and no call: it then waits for another tap.
    is_early = own_chat or send.answer_to is not None
    turn_class = TurnClass.CHAT if is_early else TurnClass.OTHER
    # Its place is never later than now, even if the clock was set.
    place = now + min(0.0, (send.at - at).total_seconds()) + limits.push_seconds
    until = send.token_until
    if send.way is not SendMethod.REPLY or not send.token or until is None:
        return Standing(turn_class, place)
    token_end = now + min(until - at, TOKEN_LIFE).total_seconds()
    standing = Standing(turn_class, place)
    return standing.with_token(token_end, reserve_seconds=limits.token_reserve_seconds)


@dataclass(eq=False, slots=True)
class PendingSend:
    """One send of an outbox, with this process's knowledge of it."""

    place: str
    send: Send
    standing: Standing
    """Its own standing at the gate."""
    made: Moment
    size: int = 0
    """Its size as BSON."""

    def token_lives(self, boottime: float) -> bool:
        """Whether its reply token is valid long enough for a call that begins now."""
        until = self.send.token_until
        may_reply = self.send.way is SendMethod.REPLY and self.send.token is not None
        return may_reply and until is not None and self.made.now(boottime) < until

    def is_alone(self, boottime: float) -> bool:
        """Whether it can be in no call for several users."""
        send = self.send
        is_bound = _is_late(send) or send.until is not None or send.answer_to is not None
        return is_bound or expired(send, self.made.now(boottime)) is not None

    def travels_to(self, chat: str) -> bool:
        """Whether it goes to the conversation's own chat, as a reply or a push.

        The replay of a try of unknown outcome is sent alone: it is that call again.
        """
        if self.send.tried_at is not None:
            return False
        way = self.send.way
        return way is SendMethod.REPLY or (way is SendMethod.PUSH and self.send.to == chat)


class ConversationOutbox(Caller):
    """One conversation's sends in order, and the call that carries the first of them.

    The end of its line, and the day of its late replies, are facts of the conversation and outlast
    the outbox: the answers to a flood may be decided one by one, each after the previous one has
    left.

    Sends to the conversation's own chat share a call as far as LINE allows, on the newest valid
    reply token, otherwise as a push. No send waits for others.

    The conversation has the best standing of its sends at the gate, so an answer speeds up the
    sends before it. After a call that leaves sends behind, it goes to the end of the line as if its
    token began now. A flood of one conversation therefore costs each other one a single turn.
    """

    def __init__(
        self,
        conversation: Conversation,
        limits: SendLimits,
        granted: Callable[[ConversationOutbox, Ticket], None],
    ) -> None:
        super().__init__(f"conversation={conversation.id}", limits, partial(granted, self))
        self.conversation = conversation
        self.id: str = conversation.id
        self.chat = self.id.partition("/")[2]
        """The id of its user, group or room at LINE."""
        self.places: set[str] = set()
        # A list, since others append while its thread reads the first ones.
        self.sends: list[PendingSend] = []
        self.size = 0
        self.most_users = MOST_USERS
        """How many conversations may share its next call; 1 if LINE would not report an error in
        it.
        """
        self.batch: Caller | None = None
        """The batch that has its first sends (`jobworker.sending.batch`)."""
        # Jobs of the key that are deferred until there is room.
        self.waiters: list[Callable[[], None]] = []
        # How many sends the next call may carry.
        self._most_together = MOST_MESSAGES
        # The result of `body` for the first sends; None if it has to be computed again.
        self._body: tuple[bytes | None] | None = None
        # Whether a call for the first send got no verdict.
        self._is_unanswered = False

    @property
    def is_full(self) -> bool:
        """Whether its key is deferred until sends have left."""
        return (
            len(self.sends) >= self._limits.most_per_conversation
            or self.size >= self._limits.most_bytes_per_conversation
        )

    def pending(self, place: str, effect: Document, made: Moment) -> PendingSend:
        """Return a recorded send, which this process knows since `made`. Raises KeyError, TypeError
        or ValueError if it was edited by hand.
        """
        send = Send.from_document(effect)
        standing = standing_of(send, self.id, self._limits, now=time.monotonic(), at=made.at)
        return PendingSend(place, send, standing, made, len(bson.encode(effect)))

    def append(self, one: PendingSend) -> Move | None:
        """Add a send behind the others; returns what follows for the ticket at the gate."""
        self.places.add(one.place)
        self.sends.append(one)
        self.size += one.size
        self._body = None
        is_seen = len(self.sends) <= self._limits.most_per_conversation
        if self.state is not CallState.WAITING or self._ticket is None or not is_seen:
            return None
        return Move(self._ticket, self._placed(one.standing))

    def remove(self, places: Sequence[str]) -> None:
        """These sends have left the outbox: the counts of the others begin again."""
        gone = set(places)
        self.size -= sum(one.size for one in self.sends if one.place in gone)
        self.sends = [one for one in self.sends if one.place not in gone]
        self.places -= gone
        self._body = None
        self._is_unanswered = False
        self._most_together, self.most_users = MOST_MESSAGES, MOST_USERS
        self.call, self.is_tried, self.calls = None, False, 0
        self.given_up_for = None
        self._failures, self._unanswered, self._over_quota = 0, 0, 0
        self.state = CallState.IDLE

    def called(self, now: float, *, unanswered: bool = False) -> None:
        """LINE was called for it: its remaining sends go to the end of the line.

        A send without a verdict has the standing of any other push until it has left. Otherwise a
        send on which LINE always fails would repeatedly be the breaker's probe.
        """
        self.conversation.line_end = now + self._limits.push_seconds
        self._is_unanswered = self._is_unanswered or unanswered

    def members(self, call: Call) -> list[PendingSend]:
        """The sends that a call carries."""
        wanted = set(call.members)
        return [one for one in self.sends if one.place in wanted]

    def given_up_places(self) -> Sequence[str]:
        """The first send; in a call of unknown outcome, all of its members."""
        unknown = self.unknown_call
        return (self.sends[0].place,) if unknown is None else unknown.members

    def waits_for(self, at_gate: Callable[[TurnClass], Document]) -> Document:
        return super().waits_for(at_gate) if self.batch is None else self.batch.waits_for(at_gate)

    # Called by the thread that has it.

    def plan(
        self, boottime: float, held_seconds: Callable[[str], float], budget: Budget = NO_LIMIT
    ) -> MakeLetters | PutBack | Rest | Go:
        first, unknown = self.sends[0], self.unknown_call
        now = first.made.now(boottime)
        if unknown is None:
            cause = self.given_up_for or expired(first.send, now)
            go = self._new_call(boottime, now)
        else:
            cause = self.given_up_for or outlived(unknown.at, now)
            # guard: same-key-again -> go = self._new_call(boottime, now)
            go = Go(unknown, is_new=False)
        if cause:
            return MakeLetters(cause, self.given_up_places())
        if go.is_new and go.call.way is not SendMethod.REPLY:
            # guard: an-answer-is-no-push -> never
            if first.send.answer_to is not None:
                return PutBack(first.place)
            if budget.is_closed:
                return MakeLetters(QUOTA, go.call.members)
            # The first send pays for those behind it.
            if _is_late(self.members(go.call)[0].send):
                day = day_of(now).isoformat()
                is_used_up = self.conversation.late_on == day
                if is_used_up or not budget.late.may_cost(day, budget.left, budget.people):
                    return MakeLetters(LATE, self._late_places(boottime))
                go = replace(go, late_on=day)
        if seconds := self._held_back(go, boottime, held_seconds(go.call.way.path)):
            return self.rest(seconds, reason(Why.RATE_LIMITED, seconds))
        return go

    def _late_places(self, boottime: float) -> list[str]:
        """The first sends, as far as they are replies without a valid token."""
        late = takewhile(
            lambda one: _is_late(one.send) and not one.token_lives(boottime), self.sends
        )
        return [one.place for one in late]

    def together(self, boottime: float | None = None) -> list[PendingSend]:
        """The first sends, as far as they share one call."""
        run: list[PendingSend] = []
        room = MOST_MESSAGES
        for one in islice(self.sends, self._most_together):
            room -= len(one.send.messages)
            is_over = boottime is not None and expired(one.send, one.made.now(boottime)) is not None
            if run and (room < 0 or is_over or not one.travels_to(self.chat)):
                break
            run.append(one)
            if not one.travels_to(self.chat):
                break
        return run

    @property
    def body(self) -> bytes | None:
        """A digest of the next call's messages; None if they are for this chat only."""
        if self._body is None:
            self._body = (_same_for_all(self.together()),)
        return self._body[0]

    def may_share(self, boottime: float) -> bool:
        """Whether its next call may also be for other users: a push to its own user that LINE
        accepts in a multicast, without a free answer behind it.
        """
        return (
            self.call is None
            and self.chat.startswith(USER)
            and self.sends[0].travels_to(self.chat)
            and not any(one.is_alone(boottime) for one in self.together())
            and self.body is not None
            and not any(one.token_lives(boottime) for one in self.sends)
        )

    def _new_call(self, boottime: float, now: datetime) -> Go:
        """The next call: the one that is stored already, if it would be the same."""
        call, stored = self._next_call(boottime, now), self.call
        if stored is not None and now - stored.at <= STORED_FOR:
            call = stored if stored.is_same(replace(call, key=stored.key)) else call
        return Go(call, is_new=True)

    def _next_call(self, boottime: float, now: datetime) -> Call:
        run = self.together(boottime)
        places = tuple(one.place for one in run)
        living = [one.send for one in run if one.token_lives(boottime)]
        if living:
            # The other tokens may serve later sends, if LINE accepts none of this call.
            newest = max(living, key=lambda send: send.token_from or send.at)
            return Call(now, SendMethod.REPLY, places, token=newest.token)
        pushes = takewhile(lambda one: one.send.answer_to is None, run)
        run = list(pushes) or run[:1]
        places = tuple(one.place for one in run)
        first = run[0].send
        # A key belongs to one body.
        key = (first.retry_key if len(run) == 1 else None) or str(uuid.uuid4())
        way = SendMethod.PUSH if first.way is SendMethod.REPLY else first.way
        return Call(first.tried_at or now, way, places, key=key)

    def request(self, call: Call) -> Request:
        sends = [one.send for one in self.members(call)]
        body: Document = {"messages": [one for send in sends for one in send.messages]}
        if call.way is SendMethod.REPLY:
            body["replyToken"] = call.token
        else:
            body["to"] = sends[0].to
        return Request(body, [(self.chat, send) for send in sends])

    def judged(self, go: Go, boottime: float) -> CallOutcome:
        reply_unknown = self._limits.reply_unknown
        return judge(self.tried(go, boottime), self.answer, reply_unknown=reply_unknown)

    def tried(self, go: Go, boottime: float) -> Tried:
        """Return the known facts of a call that is answered now."""
        call = go.call
        members = self.members(call)
        to = members[0].send.to
        return Tried(
            call,
            [len(one.send.messages) for one in members],
            was_tried=not go.is_new or members[0].send.tried_at is not None,
            to_user=call.way is SendMethod.PUSH and str(to).startswith(USER),
            token_was_good=any(
                one.send.token == call.token and one.token_lives(boottime + PROOF_SECONDS)
                for one in members
            ),
        )

    def used_up(self, call: Call) -> list[str]:
        """The places of the sends whose token a call has."""
        return [one.place for one in self.sends if call.token and one.send.token == call.token]

    def apply(self, call: Call, outcome: CallOutcome) -> None:
        """The answer's changes are durable, and the call has to be tried again."""
        self.is_tried = outcome.stands
        if not outcome.stands:
            self.call = None
        if outcome.narrower:
            self._most_together = max(1, len(call.members) // 2)
            self._body = None
        if outcome.token_used_up:
            for one in self.sends:
                if one.send.token == call.token:
                    one.send = replace(one.send, token=None)
                    one.standing = one.standing.without_token()

    def standing(self, now: float) -> Standing:
        # Sends behind a full outbox are not decided yet, except those of one handler.
        ahead = islice(self.sends, self._limits.most_per_conversation)
        worth = (one.standing for one in ahead)
        # An expired token gives no better place.
        return self._placed(reduce(Standing.with_other, (one.at(now) for one in worth)))

    def _placed(self, standing: Standing) -> Standing:
        turn_class = TurnClass.OTHER if self._is_unanswered else standing.turn_class
        placed = standing.not_before(self.conversation.line_end)
        return replace(placed, turn_class=turn_class, is_full=self.is_full)

    def _held_back(self, go: Go, boottime: float, seconds: float) -> float:
        """Return how long to wait for the endpoint, or until a reply is sent as a push instead."""
        if not go.is_new or go.call.way is not SendMethod.REPLY:
            return seconds
        ends = [
            (one.send.token_until - one.made.now(boottime)).total_seconds()
            for one in self.members(go.call)
            if one.send.token == go.call.token and one.send.token_until is not None
        ]
        return min([seconds, *ends])


def _why(error: StoreUnavailable) -> Document:
    if isinstance(error, WriteRefused):
        return reason(Why.WRITE_REFUSED, **error.about)
    return reason(Why.NOT_CONFIRMED)


def told_of(answer: LineAnswer | LineError) -> str:
    """LINE's answer for a log line: a status or the kind of failure, never a text."""
    return str(answer.status) if isinstance(answer, LineAnswer) else type(answer).__name__
