"""A broker within one process: it can be away, and lose and double messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from jobworker.remote.broker import LEADERS, OnMessage
from linedesk.runtime.thread import BackgroundThread


class MemoryHub:
    """The medium of all connections.

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
    """As `AmqpBroker`."""

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

    def send(self, to: str, body: bytes, *, is_urgent: bool = False) -> None:
        self._hub.deliver(to, body)

    def up_since(self) -> float | None:
        return None if self._hub.is_away else self._since

    def trouble(self) -> str:
        return "the broker is away" if self._hub.is_away else ""

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
