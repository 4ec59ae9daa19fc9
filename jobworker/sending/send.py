"""The sends of a conversation: each on its way to LINE as a state machine, in order. Pure.

The state changes under the outbox's lock; what belongs to a try (`send`, `answer`, `calls`) is
changed by the one thread that has the send. What a method returns is done after the lock is free,
so results can overtake each other: a send is given up before its ticket has reached the gate, or a
turn comes for a send that no longer wants it. Both change nothing here.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import reduce
from itertools import islice

from jobworker.effects import Send, SendMethod
from jobworker.errors import LineError, NotSent, OutcomeUnknown
from jobworker.line.answer import LineAnswer
from jobworker.line.gate_order import PLACE_SECONDS, Standing, Ticket, TurnClass
from jobworker.sending.verdict import SendOutcome, expired, way_of
from linedesk.runtime.backoff import pause_seconds
from linedesk.store.errors import StoreUnavailable, WriteRefused
from linedesk.store.limits import TOKEN_LIFE


@dataclass(frozen=True)
class SendLimits:
    """How long sends wait for what, how often they are tried, and how many may wait."""

    note_seconds: float = 2.0
    """For writing a try down, since the gate is held meanwhile. It usually takes milliseconds."""
    first_pause_seconds: float = 0.5
    """Before the second try; the pause grows with each further one."""
    longest_pause_seconds: float = 60.0
    store_pause_seconds: float = 5.0
    """At most, between two tries of a write that MongoDB did not confirm."""
    push_seconds: float = PLACE_SECONDS
    """A send without a token takes its place at the gate as if it had one that lives for so long;
    so does what a conversation still has to send after a call."""
    token_reserve_seconds: float = 3.0
    """So long before its end a reply token counts as too old to wait for: the call has to be
    written down and has to reach LINE."""
    most_unanswered: int = 1000
    """Tries of one send without a verdict of LINE's. At a pause of half a minute on average that is
    eight hours, twice LINE's longest outage of 2026; a message on which LINE always fails has to
    end some time."""
    most_per_conversation: int = 100
    """Sends of one conversation; beyond them its key is set aside."""
    most_in_all: int = 10_000
    """Effects of all outboxes; beyond them reading pauses."""
    most_adopted: int = 50_000
    """Conversations known to have all of their outbox in memory, some megabytes. One that was
    forgotten costs one write more with its next event."""


class SendState(Enum):
    """Where a send is; see the table of `PendingSend`."""

    IDLE = "idle"
    """Another send of its conversation goes first."""
    WAITING = "waiting"
    """Its ticket is at the gate, or on its way there."""
    BUSY = "busy"
    """A thread has it, or comes back to it: everything that it writes or calls happens here."""
    RESTING = "resting"
    """The clock has it."""
    GONE = "gone"
    """It left its outbox."""


@dataclass(frozen=True)
class Enter:
    """Have the ticket enter the gate."""

    ticket: Ticket


@dataclass(frozen=True)
class Move:
    """Let the ticket at the gate stand there as well."""

    ticket: Ticket
    standing: Standing


@dataclass(frozen=True)
class Rest:
    """Have the clock wake the send."""

    seconds: float


@dataclass(frozen=True)
class MakeLetter:
    """Make a dead letter of the send. Its ticket, if any, is cancelled first."""

    cause: str
    ticket: Ticket | None = None


@dataclass(frozen=True)
class Go:
    """Call LINE, once `note` is written down; None if an earlier try stands there already."""

    way: SendMethod
    note: Send | None


@dataclass(frozen=True)
class Moment:
    """One moment by the wall clock and by the time since boot."""

    at: datetime
    boottime: float


NextStep = Enter | Move | Rest | MakeLetter


class PendingSend:
    """The first send of an outbox, or one behind it.

    | state | it may begin | more urgent | its turn | its thread is done | given up |
    | --- | --- | --- | --- | --- | --- |
    | IDLE: not the first | WAITING: `first`, Enter | noted | - | - | - |
    | WAITING: at the gate | - | Move | BUSY | - | BUSY: MakeLetter with its ticket |
    | BUSY: with a thread | WAITING: `again`, Enter | noted | - | by the next table | noted |
    | RESTING: with the clock | WAITING: `wake`, Enter | noted | - | - | BUSY: MakeLetter |
    | GONE | - | - | - | - | - |

    `-`: the call changes nothing. A give-up that was noted counts when the send would become
    WAITING or RESTING: it stays BUSY instead, with MakeLetter. Once LINE has the message it has no
    effect.

    | the thread finds | the send becomes |
    | --- | --- |
    | too old, refused for good, or too many tries in vain | BUSY with MakeLetter, then GONE |
    | the endpoint is held back (429), until a reply becomes a push at the latest | RESTING |
    | the try cannot be written down in time; nothing was called, so it stays fresh here | RESTING |
    | it is not pending any more | GONE |
    | written down, but the lease is stale | WAITING; in memory the try counts as refused |
    | written down, but the process stops | the same, and the try is struck out durably |
    | LINE has it | BUSY until it is out of `pending`, then GONE |
    | again | BUSY until the answer is written down, then RESTING, or WAITING at once |

    While MongoDB does not confirm a write the send stays BUSY: nothing else takes it up.
    """

    def __init__(
        self,
        send: Send,
        standing: Standing,
        *,
        conversation: str,
        limits: SendLimits,
        made: Moment,
    ) -> None:
        self.send = send
        self.conversation = conversation
        self.standing = standing
        """What it is worth at the gate by itself."""
        self.state = SendState.IDLE
        self.reason: str | None = None
        """Why it rests, in words for a person; None while it waits for a turn or is called."""
        self.calls = 0
        self.was_tried = False
        """Whether a try before the present one is of unknown outcome."""
        self.answer: LineAnswer | LineError = OutcomeUnknown("not called")
        """What LINE said last."""
        self._limits = limits
        self._made = made
        self._ticket: Ticket | None = None
        self._given_up: str | None = None
        self._failures = 0
        self._unanswered = 0

    def now(self, boottime: float) -> datetime:
        """The time by a clock that is never set: were it set back, a token that has run out would
        look good, and LINE's refusal of it like a proof that an earlier try has used it.
        """
        # guard: time-since-boot -> return datetime.now(UTC)
        return self._made.at + timedelta(seconds=boottime - self._made.boottime)

    # By any thread. Only the first of an outbox begins and is given up.

    def first(self, ticket: Ticket) -> Enter | None:
        """It became the first of its outbox."""
        return self._wait(ticket) if self.state is SendState.IDLE else None

    def wake(self, make_ticket: Callable[[], Ticket]) -> Enter | None:
        """Its rest is over; nothing if it was given up meanwhile, and may have left its outbox."""
        return self._wait(make_ticket()) if self.state is SendState.RESTING else None

    def hurry(self, standing: Standing) -> Move | None:
        """What stands behind it pulls it along."""
        if self.state is SendState.WAITING and self._ticket is not None:
            return Move(self._ticket, standing)
        return None

    def turn(self, ticket: Ticket) -> bool:
        """A turn came; whether the send still wants it."""
        # guard: given-up-before-its-turn
        if self.state is not SendState.WAITING or self._ticket is not ticket:
            return False
        self.state = SendState.BUSY
        return True

    def give_up(self, cause: str) -> MakeLetter | None:
        """Have it become a dead letter: now, or once the thread that has it is done."""
        if self._given_up is not None or self.state in (SendState.IDLE, SendState.GONE):
            return None
        self._given_up = cause
        # guard: call-under-way-ends-first
        if self.state is SendState.BUSY:
            return None
        waits = self.state is SendState.WAITING
        self.state = SendState.BUSY
        return MakeLetter(cause, self._ticket if waits else None)

    # By the thread that has it, in BUSY.

    def plan(self, now: datetime, held_seconds: Callable[[str], float]) -> MakeLetter | Rest | Go:
        """What to do with the turn. `held_seconds` says how long an endpoint is held back."""
        if cause := self._given_up or expired(self.send, now):
            return MakeLetter(cause)
        way = way_of(self.send, now)
        if seconds := self._held_back(way, now, held_seconds(way.path)):
            reason = next_try_words("LINE answered 429 for all such calls", seconds)
            return self.rest(seconds, reason)
        self.was_tried = self.send.tried_at is not None
        return Go(way, None if self.was_tried else self.send.tried(way, now))

    def _held_back(self, way: SendMethod, now: datetime, seconds: float) -> float:
        """How long to wait for the endpoint, or until a reply travels as a push instead."""
        if (
            way is SendMethod.REPLY
            and self.send.tried_at is None
            and self.send.token_until is not None
        ):
            return min(seconds, (self.send.token_until - now).total_seconds())
        return seconds

    def noted(self, tried: Send) -> None:
        """The try is written down."""
        self.send = tried

    def not_noted(self, error: StoreUnavailable) -> Rest | MakeLetter:
        """The try could not be written down in time."""
        seconds = self.not_confirmed(error)
        return self.rest(seconds, _reason(error))

    def called_off(self, go: Go) -> None:
        """Nothing was called, so the try that was written down is none."""
        if go.note is not None:
            self.send = self.send.refused()

    def calling(self) -> None:
        """LINE is called now."""
        self.calls += 1

    def again(self, ticket: Ticket) -> Enter | MakeLetter:
        """Wait for another turn at once."""
        if self._given_up is not None:
            return MakeLetter(self._given_up)
        return self._wait(ticket)

    def rest(self, seconds: float, reason: str) -> Rest | MakeLetter:
        """Wait for the clock."""
        if self._given_up is not None:
            return MakeLetter(self._given_up)
        self.state, self.reason = SendState.RESTING, reason
        return Rest(seconds)

    def failed(
        self, outcome: SendOutcome, make_ticket: Callable[[], Ticket]
    ) -> Enter | Rest | MakeLetter:
        """It has to be tried again, and what the answer changed of the try is durable."""
        self.send = outcome.send
        if self.send.tried_as is SendMethod.PUSH:
            self.standing = self.standing.without_token()
        self._unanswered += outcome.unanswered
        if self._unanswered >= self._limits.most_unanswered:
            return MakeLetter(f"no verdict of LINE's in {self._unanswered} tries")
        self._failures += 1
        seconds = outcome.wait_seconds
        if seconds is None:
            seconds = pause_seconds(
                self._failures,
                first=self._limits.first_pause_seconds,
                most=self._limits.longest_pause_seconds,
            )
        if not seconds:
            return self.again(make_ticket())
        return self.rest(seconds, next_try_words(words_of(self.answer), seconds))

    def not_confirmed(self, error: StoreUnavailable) -> float:
        """MongoDB did not confirm a write; how long to wait before it is repeated."""
        self._failures += 1
        self.reason = _reason(error)
        return pause_seconds(self._failures, most=self._limits.store_pause_seconds)

    def refused(self, outcome: SendOutcome) -> MakeLetter:
        """LINE refused it for good. The letter says whether an earlier try may have arrived."""
        self.send = outcome.send
        return MakeLetter(outcome.cause)

    def gone(self) -> None:
        """It left its outbox."""
        self.state = SendState.GONE

    def _wait(self, ticket: Ticket) -> Enter:
        self.state, self.reason, self._ticket = SendState.WAITING, None, ticket
        return Enter(ticket)


def standing_of(
    send: Send, conversation: str, limits: SendLimits, *, now: float, at: datetime
) -> Standing:
    """What a send is worth at the gate by itself; `now` is the monotonic time of moment `at`."""
    own_chat = send.way is SendMethod.PUSH and send.to == conversation.partition("/")[2]
    turn_class = TurnClass.CHAT if own_chat else TurnClass.OTHER
    # Nothing is younger than now, whatever a clock said that was set since.
    place = now + min(0.0, (send.at - at).total_seconds()) + limits.push_seconds
    until = send.token_until
    may_reply = send.way is SendMethod.REPLY and send.tried_as is not SendMethod.PUSH
    if not may_reply or not send.token or until is None:
        return Standing(turn_class, place)
    token_end = now + min(until - at, TOKEN_LIFE).total_seconds()
    standing = Standing(turn_class, place)
    return standing.with_token(token_end, reserve_seconds=limits.token_reserve_seconds)


class LineEnds:
    """Where in line the conversations stand for which LINE was called lately.

    Kept apart from their outboxes: the answers to a flood may be decided one by one, each after the
    one before has left.
    """

    def __init__(self, limits: SendLimits) -> None:
        self._limits = limits
        self._ends: OrderedDict[str, float] = OrderedDict()

    def called(self, id_: str, now: float) -> None:
        """LINE was called for it: what it has to send from now on goes to the end of the line."""
        self._ends[id_] = now + self._limits.push_seconds
        self._ends.move_to_end(id_)
        while next(iter(self._ends.values())) < now:
            # It would stand there anyway.
            self._ends.popitem(last=False)

    def of(self, id_: str) -> float:
        """The place before which it does not stand."""
        return self._ends.get(id_, -math.inf)


class ConversationOutbox:
    """One conversation's sends in order; all but the first are idle.

    The first one has the turns of all: it stands at the gate by the best of what they are worth,
    so an answer pulls along what has to go before it. After a call that leaves more behind, the
    conversation goes to the end of the line, as if its token began now: a flood of one
    conversation costs each other one a single turn.
    """

    __slots__ = ("_ends", "_is_unanswered", "_limits", "id", "ids", "sends", "waiters")

    def __init__(self, id_: str, limits: SendLimits, ends: LineEnds) -> None:
        self.id = id_
        self.ids: set[str] = set()
        self.sends: deque[PendingSend] = deque()
        self._limits = limits
        self._ends = ends
        # Whether a call for the first send got no verdict.
        self._is_unanswered = False
        # Jobs of the key that were set aside until there is room.
        self.waiters: list[Callable[[], None]] = []

    def append(self, one: PendingSend) -> Move | None:
        """Put a send behind the others; what follows for the first one."""
        self.ids.add(one.send.id)
        self.sends.append(one)
        first = self.sends[0]
        if first is one or len(self.sends) > self._limits.most_per_conversation:
            return None
        return first.hurry(self._placed(one.standing))

    def pop(self) -> PendingSend:
        """Take the first send out."""
        first = self.sends.popleft()
        self.ids.remove(first.send.id)
        self._is_unanswered = False
        return first

    def called(self, now: float, *, unanswered: bool = False) -> None:
        """LINE was called for it: what is left goes to the end of the line.

        What got no verdict is not worth more than any other push until it has left, or one on which
        LINE always fails would be the breaker's probe again and again.
        """
        self._ends.called(self.id, now)
        self._is_unanswered = self._is_unanswered or unanswered

    def standing(self, now: float) -> Standing:
        """Where it stands at the gate."""
        # What waits behind a full outbox is not decided yet, save what one handler sends.
        ahead = islice(self.sends, self._limits.most_per_conversation)
        worth = (one.standing for one in ahead)
        # A token that is too old is worth no place.
        return self._placed(reduce(Standing.with_other, (one.at(now) for one in worth)))

    def _placed(self, standing: Standing) -> Standing:
        is_full = len(self.sends) >= self._limits.most_per_conversation
        turn_class = TurnClass.OTHER if self._is_unanswered else standing.turn_class
        placed = standing.not_before(self._ends.of(self.id))
        return replace(placed, turn_class=turn_class, is_full=is_full)


def _reason(error: StoreUnavailable) -> str:
    return str(error) if isinstance(error, WriteRefused) else "MongoDB did not confirm in time"


def told_of(answer: LineAnswer | LineError) -> str:
    """What LINE said, for a log line: a status or the kind of failure, never a text."""
    return str(answer.status) if isinstance(answer, LineAnswer) else type(answer).__name__


def words_of(answer: LineAnswer | LineError) -> str:
    """What LINE said, for a person."""
    if isinstance(answer, LineAnswer):
        return f"LINE answered {answer.status}"
    return "no connection to LINE" if isinstance(answer, NotSent) else "LINE did not answer"


def next_try_words(why: str, seconds: float) -> str:
    """Why something rests, and until when, in UTC as in the log."""
    return f"{why}, next try at {datetime.now(UTC) + timedelta(seconds=seconds):%H:%M:%S} UTC"
