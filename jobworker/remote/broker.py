"""What carries messages between the leader and the workers, and one that does so in memory.

Nothing rests on a broker: a message may be lost, come twice or late. Jobs that no worker names are
handed out again, decisions are repeated until the leader has them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Protocol

from linedesk.runtime.thread import BackgroundThread, Component

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


class MemoryHub:
    """A broker within one process, for tests: it can be away, and lose and double messages.

    `mangle` gets each message's address and body and returns the bodies that arrive.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._brokers: dict[str, MemoryBroker] = {}
        self._made = 0
        self.mangle: Callable[[str, bytes], list[bytes]] = lambda to, body: [body]
        self.is_away = False

    def connect(self, on_message: OnMessage, *, leader: bool) -> MemoryBroker:
        """A connection to it."""
        with self._lock:
            self._made += 1
            broker = MemoryBroker(self, f"memory.{self._made}", on_message, leader=leader)
            self._brokers[broker.address] = broker
            return broker

    def deliver(self, to: str, body: bytes) -> None:
        """Bring a message to whom it is for."""
        if self.is_away:
            return
        with self._lock:
            found = [
                one
                for address, one in self._brokers.items()
                if address == to or (to == LEADERS and one.leader)
            ]
        for broker in found:
            for each in self.mangle(to, body):
                broker.arrived.put(each)

    def forget(self, address: str) -> None:
        """A connection has ended."""
        with self._lock:
            self._brokers.pop(address, None)


class MemoryBroker(BackgroundThread):
    """See `Broker`."""

    def __init__(
        self, hub: MemoryHub, address: str, on_message: OnMessage, *, leader: bool
    ) -> None:
        super().__init__(f"broker-{address}", self._run)
        self._hub = hub
        self._address = address
        self._on_message = on_message
        self._since = time.monotonic()
        self.leader = leader
        self.arrived: SimpleQueue[bytes | None] = SimpleQueue()

    @property
    def address(self) -> str:
        return self._address

    def send(self, to: str, body: bytes) -> None:
        self._hub.deliver(to, body)

    def state(self) -> BrokerState:
        if self._hub.is_away:
            return BrokerState(None, "the broker is away")
        return BrokerState(self._since, "")

    def stop(self) -> None:
        super().stop()
        self._hub.forget(self._address)
        self.arrived.put(None)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                body = self.arrived.get(timeout=1.0)
            except Empty:
                continue
            if body is not None:
                self._on_message(body)
