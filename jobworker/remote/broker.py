"""Carries messages between the leader and the workers: RabbitMQ, and in tests a fake.

Correctness does not depend on a broker: a message may be lost, repeated or late. Jobs that no
worker names are handed out again, and decisions are repeated until the leader has them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from linedesk.runtime.thread import Component

LEADERS = "leaders"
"""To every leader: usually one, and for a while also a replaced one that has not noticed it."""
MOST_BYTES = 16 * 1024 * 1024
"""The size of a message to leaders; larger ones are not delivered."""
OnMessage = Callable[[bytes], None]


@dataclass(frozen=True)
class BrokerState:
    """How a process is connected, for operators and for judging silence."""

    up_since: float | None
    """Monotonic time since when it both sends and receives; None while it does not."""
    words: str
    """The trouble with the connection; empty if there is none."""


class Broker(Component, Protocol):
    """One process's connection. It calls its `on_message` on a thread of its own."""

    @property
    def address(self) -> str:
        """The address at which others reach this process; it changes with each connection."""
        ...

    def send(self, to: str, body: bytes, *, is_urgent: bool = False) -> None:
        """Send to an address, or to LEADERS. Never waits and never fails; the message may be
        lost. Urgent ones are sent first, and others never take their room.
        """
        ...

    def state(self) -> BrokerState:
        """Return how it is connected; quick, from any thread."""
        ...


class MakeBroker(Protocol):
    """Makes a connection for a leader, which receives messages to LEADERS, or for a worker."""

    def __call__(self, on_message: OnMessage, *, leader: bool) -> Broker: ...
