"""What carries messages between the leader and the workers: RabbitMQ, and in tests a fake.

Nothing rests on a broker: a message may be lost, come twice or late. Jobs that no worker names are
handed out again, decisions are repeated until the leader has them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from linedesk.runtime.thread import Component

LEADERS = "leaders"
"""To every leader there is: one, and for a while one that was replaced and does not know it."""
OnMessage = Callable[[bytes], None]


@dataclass(frozen=True)
class BrokerState:
    """How a process is connected, for a person and for the judgement of silence."""

    up_since: float | None
    """Monotonic time since when it both sends and receives; None while it does not."""
    words: str
    """What stands in the way; empty where nothing does."""


class Broker(Component, Protocol):
    """One process's connection. It calls its `on_message` on a thread of its own."""

    @property
    def address(self) -> str:
        """Where others send to reach this process; it changes with each connection."""
        ...

    def send(self, to: str, body: bytes) -> None:
        """Send to an address, or to LEADERS. Never waits and never fails; it may be lost."""
        ...

    def state(self) -> BrokerState:
        """How it is connected; quick, from any thread."""
        ...


class MakeBroker(Protocol):
    """Makes a connection for a leader, which gets what is sent to LEADERS, or for a worker."""

    def __call__(self, on_message: OnMessage, *, leader: bool) -> Broker: ...
