"""Connections to a real RabbitMQ whose messages a test sees, drops, doubles, delays, changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pika

from jobworker.remote.amqp import EXCHANGE, AmqpBroker
from jobworker.remote.values import from_line, to_line
from tests.rabbitmq import RabbitMQ

Message = dict[str, Any]
Change = Callable[[Message], Sequence[Message]]


def as_it_is(message: Message) -> Sequence[Message]:
    return [message]


def nothing(message: Message) -> Sequence[Message]:
    return []


def twice(message: Message) -> Sequence[Message]:
    return [message, message]


def without(type_: str, *, times: int | None = None) -> Change:
    """Drops messages of a type, all or the first ones."""
    dropped = 0

    def change(message: Message) -> Sequence[Message]:
        nonlocal dropped
        if message["type"] != type_ or (times is not None and dropped >= times):
            return [message]
        dropped += 1
        return []

    return change


class Lane:
    """One direction. `change` turns a message into those that pass on, by default itself; `seen`
    has all messages that arrived.
    """

    def __init__(self) -> None:
        self.change: Change = as_it_is
        self.seen: list[Message] = []

    def of(self, type_: str) -> list[Message]:
        """The messages of a type."""
        return [one for one in list(self.seen) if one["type"] == type_]

    def carry(self, body: bytes) -> list[bytes]:
        try:
            message = from_line(body)
        except (ValueError, RecursionError):
            return [body]
        self.seen.append(message)
        return [body if one is message else to_line(one) for one in self.change(message)]


class Wire:
    """Makes connections to it: `out` is the direction of their
    messages, `into` that of the messages to them.
    """

    def __init__(self, *nodes: RabbitMQ, url: str | None = None) -> None:
        self._urls = [url] if url else [node.url for node in nodes]
        self.out, self.into = Lane(), Lane()
        self.brokers: list[AmqpBroker] = []

    def __call__(self, on_message: Callable[[bytes], None], *, leader: bool) -> AmqpBroker:
        def arrived(body: bytes) -> None:
            for each in self.into.carry(body):
                on_message(each)

        broker = _Wired(self._urls, arrived, leader=leader, name="test")
        broker.lane = self.out
        self.brokers.append(broker)
        return broker

    def cut(self) -> None:
        """Nothing passes any more, as with a process that is frozen or gone."""
        self.out.change = self.into.change = nothing


class _Wired(AmqpBroker):
    lane: Lane

    def send(self, to: str, body: bytes, *, is_urgent: bool = False) -> None:
        for each in self.lane.carry(body):
            super().send(to, each, is_urgent=is_urgent)


class Stranger:
    """Anything with a connection to RabbitMQ, and its messages."""

    def __init__(self, node: RabbitMQ) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(node.url))
        self._channel = self._connection.channel()

    def __enter__(self) -> Stranger:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def to_leaders(self, body: bytes | Message) -> None:
        self._channel.basic_publish(EXCHANGE, "", _bytes(body))

    def to(self, queue: str, body: bytes | Message) -> None:
        self._channel.basic_publish("", queue, _bytes(body))


def _bytes(body: bytes | Message) -> bytes:
    return body if isinstance(body, bytes) else to_line(body)


class Gate:
    """Where a handler waits until the test lets it continue."""

    def __init__(self) -> None:
        self.reached = threading.Semaphore(0)
        self._open = threading.Event()

    def wait(self) -> None:
        self.reached.release()
        self._open.wait(60)

    def open(self) -> None:
        self._open.set()

    def until_reached(self) -> None:
        assert self.reached.acquire(timeout=15)
