"""One send of an outbox on its way to LINE, as a state machine. Pure.

The outbox calls every method under its lock. What a method returns is done after the lock is free,
so results can overtake each other: a send is given up before its ticket has reached the gate, or a
turn comes for a send that no longer wants it. Both change nothing here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from jobworker.effects import Send, SendMethod
from jobworker.errors import LineError
from jobworker.line.answer import LineAnswer
from jobworker.line.gate_order import Ticket
from jobworker.sending.delivery import SendOutcome, expired, way_of
from jobworker.sending.settling import next_try_words, words_of
from linedesk.runtime.backoff import pause_seconds
from linedesk.store.errors import StoreUnavailable, WriteRefused


@dataclass(frozen=True)
class SendLimits:
    """How long sends wait for what, and how often they are tried."""

    note_seconds: float = 2.0
    """For writing a try down, since the gate is held meanwhile. It usually takes milliseconds."""
    first_pause_seconds: float = 0.5
    """Before the second try; the pause grows with each further one."""
    longest_pause_seconds: float = 60.0
    store_pause_seconds: float = 5.0
    """At most, between two tries of a write that MongoDB did not confirm."""
    push_seconds: float = 60.0
    """A send without a token is served within this of its recording, as far as the gate allows."""
    most_unanswered: int = 1000
    """Tries of one send without a verdict of LINE's. At a pause of half a minute on average that is
    eight hours, twice LINE's longest outage of 2026; a message on which LINE always fails has to
    end some time."""


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
    """Move the ticket at the gate."""

    ticket: Ticket
    deadline: float


@dataclass(frozen=True)
class Rest:
    """Have the clock wake the send."""

    seconds: float


@dataclass(frozen=True)
class GiveUp:
    """Make a dead letter of the send. Its ticket, if any, is cancelled first."""

    cause: str
    ticket: Ticket | None = None


@dataclass(frozen=True)
class Go:
    """Call LINE, once `note` is written down; None if an earlier try stands there already."""

    way: SendMethod
    note: Send | None


class PendingSend:
    """The first send of an outbox, or one behind it.

    | state | it may begin | more urgent | its turn | its thread is done | given up |
    | --- | --- | --- | --- | --- | --- |
    | IDLE: not the first | WAITING: `first`, Enter | noted | - | - | - |
    | WAITING: at the gate | - | Move | BUSY | - | BUSY: GiveUp with its ticket |
    | BUSY: with a thread | WAITING: `again`, Enter | noted | - | by the next table | noted |
    | RESTING: with the clock | WAITING: `wake`, Enter | noted | - | - | BUSY: GiveUp |
    | GONE | - | - | - | - | - |

    `-`: the call changes nothing. A give-up that was noted counts when the send would become
    WAITING or RESTING: it stays BUSY instead, with GiveUp. Once LINE has the message it has no
    effect.

    | the thread finds | the send becomes |
    | --- | --- |
    | too old, refused for good, or too many tries without a verdict | BUSY with GiveUp, then GONE |
    | the endpoint is held back (429), until a reply becomes a push at the latest | RESTING |
    | the try cannot be written down in time; nothing was called, so it stays fresh here | RESTING |
    | it is not pending any more | GONE |
    | written down, but the lease is stale | WAITING; in memory the try counts as refused |
    | written down, but the process stops | the same, and the try is struck out durably |
    | LINE has it | BUSY until it is out of `pending`, then GONE |
    | again | BUSY until the answer is written down, then RESTING, or WAITING at once |

    While MongoDB does not confirm a write the send stays BUSY: nothing else takes it up.
    """

    def __init__(self, send: Send, deadline: float, limits: SendLimits) -> None:
        self.send = send
        self.deadline = deadline
        """The monotonic time by which it, or a send behind it, should be served."""
        self.state = SendState.IDLE
        self.reason: str | None = None
        """Why it rests, in words for a person; None while it waits for a turn or is called."""
        self.calls = 0
        self.was_tried = False
        """Whether a try before the present one is of unknown outcome."""
        self._limits = limits
        self._ticket: Ticket | None = None
        self._given_up: str | None = None
        self._failures = 0
        self._unanswered = 0

    # By any thread. Only the first of an outbox begins and is given up.

    def first(self, ticket: Ticket) -> Enter | None:
        """It became the first of its outbox."""
        return self._wait(ticket) if self.state is SendState.IDLE else None

    def wake(self, ticket: Ticket) -> Enter | None:
        """Its rest is over; nothing if it was given up meanwhile."""
        return self._wait(ticket) if self.state is SendState.RESTING else None

    def hurry(self, deadline: float) -> Move | None:
        """It, or a send behind it, is due earlier."""
        self.deadline = deadline
        if self.state is SendState.WAITING and self._ticket is not None:
            return Move(self._ticket, deadline)
        return None

    def turn(self, ticket: Ticket) -> bool:
        """A turn came; whether the send still wants it."""
        if self.state is not SendState.WAITING or self._ticket is not ticket:
            return False
        self.state = SendState.BUSY
        return True

    def give_up(self, cause: str) -> GiveUp | None:
        """Have it become a dead letter: now, or once the thread that has it is done."""
        if self._given_up is not None or self.state in (SendState.IDLE, SendState.GONE):
            return None
        self._given_up = cause
        if self.state is SendState.BUSY:
            return None
        waits = self.state is SendState.WAITING
        self.state = SendState.BUSY
        return GiveUp(cause, self._ticket if waits else None)

    # By the thread that has it, in BUSY.

    def plan(self, now: datetime, held_seconds: Callable[[str], float]) -> GiveUp | Rest | Go:
        """What to do with the turn. `held_seconds` says how long an endpoint is held back."""
        if cause := self._given_up or expired(self.send, now):
            return GiveUp(cause)
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

    def called_off(self, go: Go) -> None:
        """Nothing was called, so the try that was written down is none."""
        if go.note is not None:
            self.send = self.send.refused()

    def calling(self) -> None:
        """LINE is called now."""
        self.calls += 1

    def again(self, ticket: Ticket) -> Enter | GiveUp:
        """Wait for another turn at once."""
        if self._given_up is not None:
            return GiveUp(self._given_up)
        return self._wait(ticket)

    def rest(self, seconds: float, reason: str) -> Rest | GiveUp:
        """Wait for the clock."""
        if self._given_up is not None:
            return GiveUp(self._given_up)
        self.state, self.reason = SendState.RESTING, reason
        return Rest(seconds)

    def failed(
        self, outcome: SendOutcome, answer: LineAnswer | LineError, ticket: Ticket
    ) -> Enter | Rest | GiveUp:
        """It has to be tried again, and what the answer changed of the try is durable."""
        self._unanswered += outcome.unanswered
        if self._unanswered >= self._limits.most_unanswered:
            return GiveUp(f"no verdict of LINE's in {self._unanswered} tries")
        self._failures += 1
        seconds = outcome.wait_seconds
        if seconds is None:
            seconds = pause_seconds(
                self._failures,
                first=self._limits.first_pause_seconds,
                most=self._limits.longest_pause_seconds,
            )
        if not seconds:
            return self.again(ticket)
        return self.rest(seconds, next_try_words(words_of(answer), seconds))

    def not_confirmed(self, error: StoreUnavailable) -> float:
        """MongoDB did not confirm a write; how long to wait before it is repeated."""
        self._failures += 1
        refused = isinstance(error, WriteRefused)
        self.reason = str(error) if refused else "MongoDB did not confirm in time"
        return pause_seconds(self._failures, most=self._limits.store_pause_seconds)

    def gone(self) -> None:
        """It left its outbox."""
        self.state = SendState.GONE

    def _wait(self, ticket: Ticket) -> Enter:
        self.state, self.reason, self._ticket = SendState.WAITING, None, ticket
        return Enter(ticket)
