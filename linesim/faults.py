"""Planned faults: what LINE's side does instead of answering the next calls of an endpoint as
usual.

Each fault says whether the call is accepted all the same, which is what makes an outcome unknown to
the caller.
"""

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ANY = "*"


@dataclass(frozen=True)
class Status:
    """Answer with this status and body; LINE's 500 body unless another is given."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Close:
    """Close the connection without a byte of answer."""


@dataclass(frozen=True)
class Late:
    """Answer as usual, this many seconds late."""

    seconds: float


@dataclass(frozen=True)
class Cut:
    """Answer as usual, but close the connection after so many bytes of the body."""

    after_bytes: int


@dataclass(frozen=True)
class Drip:
    """Answer as usual, but the body in pieces of so many bytes, with a pause after each."""

    piece_bytes: int
    seconds: float


Outcome = Status | Close | Late | Cut | Drip


@dataclass
class Fault:
    """`accept`: LINE does what the call asks, and then the outcome happens; else the outcome comes
    first.

    A late answer does what the call asks either way: `accept` says whether before or after the
    wait.
    """

    outcome: Outcome
    accept: bool
    times: int


class Faults:
    """The plan per endpoint name (`*` for all of them), in order. Whoever calls holds the
    simulator's lock.
    """

    def __init__(self) -> None:
        self._plans: dict[str, deque[Fault]] = defaultdict(deque)

    def plan(self, endpoint: str, outcome: Outcome, *, accept: bool, times: int) -> None:
        if times > 0:
            self._plans[endpoint].append(Fault(outcome, accept, times))

    def take(self, endpoint: str) -> Fault | None:
        """The fault that this call meets, used up by one; a plan for the endpoint itself goes
        before one for all.
        """
        for name in (endpoint, ANY):
            if plan := self._plans[name]:
                fault = plan[0]
                fault.times -= 1
                if fault.times == 0:
                    plan.popleft()
                return fault
        return None

    def clear(self) -> None:
        self._plans.clear()
