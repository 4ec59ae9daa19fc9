"""The protocol at the gate, in one place.

`Line` has what each call of LINE needs: sends use it, in their own order of writes. `SideCall`
makes all other calls. No thread waits for a turn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from typing import Any, TypeGuard

from jobworker.errors import LineError
from jobworker.line.answer import LineAnswer, is_no_verdict
from jobworker.line.client import CALL_SECONDS, LineClient
from jobworker.line.gate import Gate
from jobworker.line.gate_order import Standing, Ticket
from jobworker.line.rate_limits import RateLimits
from jobworker.metrics import WorkerMetrics
from linedesk.store.records.calls import TurnClass

Action = Callable[[], None]


@dataclass(frozen=True)
class Line:
    """The parts that a call of LINE's API needs.

    `step` runs a function on a pool thread, `later` after a time. The gate asks the lease and the
    breaker before each call. The client limits the call's time, notes it in the log of calls,
    counts it, and reports its end to the breaker.
    """

    gate: Gate
    client: LineClient
    rate_limits: RateLimits
    step: Callable[[Action], None]
    later: Callable[[float, Action], None]
    figures: WorkerMetrics = field(default_factory=WorkerMetrics)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    monotonic: Callable[[], float] = time.monotonic

    def in_turn(self, ticket: Ticket, act: Callable[[Ticket], Action | None]) -> None:
        """Run `act` with the ticket's turn; then what it returns, with the gate free for others."""
        with self.gate.holding(ticket):
            follow = act(ticket)
        if follow is not None:
            follow()

    def post(
        self, path: str, body: Any, senders: Sequence[Mapping[str, Any]], **more: Any
    ) -> LineAnswer:
        """Post sends, each of an event and key in `senders`. Raises LineError."""
        first, *others = senders or [{}]
        return self.client.post(path, body, **first, also=others, **more)

    def call(
        self, ticket: Ticket, path: str, request: Callable[[], LineAnswer]
    ) -> LineAnswer | LineError:
        """Make the call of a ticket that may call; an error is a value here."""
        self.gate.begin(ticket)
        answer: LineAnswer | LineError
        try:
            answer = request()
        except LineError as error:
            answer = error
        # Before the gate is free for the next call of the same endpoint.
        self.rate_limits.note(path, answer)
        return answer


def is_verdict(answer: LineAnswer | LineError) -> TypeGuard[LineAnswer]:
    """Whether LINE has decided on the call, and not failed."""
    return isinstance(answer, LineAnswer) and not is_no_verdict(answer.status)


class SideState(Enum):
    """The state of a side call; once it is closed it may still be calling."""

    RESTING = "resting"
    """It waits for the clock."""
    WAITING = "waiting"
    """It waits for a turn at the gate, or is entering it."""
    CALLING = "calling"


class NotCalled(Enum):
    """Why LINE is not called."""

    UNWANTED = "unwanted"
    HELD_BACK = "held back"
    """The endpoint answered 429, or LINE's rate limit is reached."""
    NO_TURN = "no turn"
    """The lease is not fresh, the end of another call has opened the breaker, or the gate is
    closed.
    """
    AWAY = "away"
    """The gate is closed, or LINE is away and the call does not wait for that."""


class SideCall:
    """A call of `path` beside the sends, with as many tries as it asks for; `due` begins each.

    At its turn the endpoint's rate limit, `is_wanted` and the gate are asked, in this order. Then
    comes `request`, and with the gate free `answered`, after a no `not_called`. Both return the
    seconds until the next try; None for none. Any thread may call `due`, `close` and `finish`.
    """

    patient = False
    """Whether it waits while LINE is away."""
    is_read = False
    """Whether an answer that waits for it wants a turn afterwards."""

    def __init__(self, line: Line, path: str, *, call_seconds: float = CALL_SECONDS) -> None:
        self.path = path
        self._line = line
        self._call_seconds = call_seconds
        # The lock of a subclass as well.
        self._changed = threading.Condition()
        # All below under _changed.
        self._state = SideState.RESTING
        self._is_closed = False
        self._ticket: Ticket | None = None

    def standing(self) -> Standing:
        """Return its standing at the gate."""
        return Standing(TurnClass.IDLE, self._line.monotonic())

    def is_wanted(self) -> bool:
        """Whether the call is worth its turn; writes or reads in MongoDB what has to precede it."""
        return True

    def request(self) -> LineAnswer:
        """Call LINE. Raises LineError."""
        raise NotImplementedError

    def answered(self, answer: LineAnswer | LineError) -> float | None:
        """Act on the answer."""
        raise NotImplementedError

    def not_called(self, why: NotCalled) -> float | None:
        """LINE is not called in this turn, or there is none."""
        return 0.0 if why is NotCalled.NO_TURN else None

    # The protocol.

    def due(self) -> None:
        """It is time for a try."""
        if self._go(SideState.RESTING, SideState.WAITING):
            self.enter()

    def enter(self) -> None:
        """Wait for a turn."""
        ticket = Ticket(
            self.standing(),
            patient=self.patient,
            granted=lambda ticket: self._line.in_turn(ticket, self._called),
            refused=lambda _: self._not_called(NotCalled.AWAY),
            is_read=self.is_read,
        )
        with self._changed:
            if self._is_closed:
                return
            self._ticket = ticket
        self._line.gate.enter(ticket)

    def close(self) -> bool:
        """Make no more calls; returns whether that is new. A call under way ends by itself."""
        with self._changed:
            is_new, self._is_closed = not self._is_closed, True
        if self._ticket is not None:
            self._line.gate.cancel(self._ticket)
        return is_new

    def finish(self) -> bool:
        """Make no more calls, and wait for one under way; False if that takes too long."""
        self.close()
        with self._changed:
            # guard: call-ends-first
            return self._changed.wait_for(
                lambda: self._state is not SideState.CALLING, timeout=2 * self._call_seconds
            )

    def settle(self) -> None:
        """Let `finish` go on: the answer of the last call is known."""
        with self._changed:
            self._state, self._is_closed = SideState.RESTING, True
            self._changed.notify_all()

    def _called(self, ticket: Ticket) -> Action | None:
        """With a turn: call if that is still right; returns what follows with the gate free."""
        if self._line.rate_limits.seconds(self.path):
            return partial(self._not_called, NotCalled.HELD_BACK)
        if not self.is_wanted():
            return partial(self._not_called, NotCalled.UNWANTED)
        if not self._line.gate.may_call(ticket):
            return partial(self._not_called, NotCalled.NO_TURN)
        # It may have been closed during the wait for the interval.
        # guard: no-call-once-closed -> self._go(SideState.WAITING, SideState.CALLING)
        if not self._go(SideState.WAITING, SideState.CALLING):
            return None
        return partial(self._settle, self._line.call(ticket, self.path, self.request))

    def _not_called(self, why: NotCalled) -> None:
        seconds = self.not_called(why)
        if seconds is not None and self._go(SideState.WAITING, SideState.RESTING):
            self._again(seconds)
        else:
            self.close()

    def _settle(self, answer: LineAnswer | LineError) -> None:
        seconds = self.answered(answer)
        if seconds is not None and self._go(SideState.CALLING, SideState.RESTING):
            self._again(seconds)
        else:
            self.settle()

    def _again(self, seconds: float) -> None:
        if seconds:
            self._line.later(seconds, self.due)
        else:
            self.due()

    def _go(self, before: SideState, after: SideState) -> bool:
        """Go from one state to another; False if it is in another state, or closed."""
        with self._changed:
            if self._is_closed or self._state is not before:
                return False
            self._state = after
            return True
