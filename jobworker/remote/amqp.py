"""RabbitMQ as the broker: one connection sends, another one receives.

Correctness does not depend on it: a message may be lost, repeated or late. Jobs that no worker
names are handed out again, and decisions are repeated until the leader has them.

Two connections, since RabbitMQ stops reading from a publishing one while it is short of memory or
disk (https://www.rabbitmq.com/docs/alarms). Queues are exclusive and vanish with their connection,
messages are transient, and none is acknowledged. No text of a user therefore outlives its job
there.

A worker sends to the exchange `linedesk.leaders`, which delivers a copy to each leader's queue. A
leader sends through the default exchange to the queue that a worker names.
"""

from __future__ import annotations

import itertools
import logging
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, PriorityQueue
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.exceptions import AMQPError, ProbableAccessDeniedError, ProbableAuthenticationError

from jobworker.remote.job import LEADERS, MOST_BYTES
from linedesk.runtime.backoff import growing_seconds
from linedesk.runtime.thread import JOIN_SECONDS, BackgroundThread

log = logging.getLogger(__name__)

EXCHANGE = "linedesk.leaders"
LEADER_QUEUE, WORKER_QUEUE = "linedesk.leader.", "linedesk.worker."
HEARTBEAT_SECONDS = 10
# A TCP connection, and the protocol's greeting.
CONNECT_SECONDS = 5.0
# A connection waits this long while RabbitMQ blocks it; then another one is tried.
BLOCKED_SECONDS = 60.0
LOOK_SECONDS = 1.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 5.0
# Messages that wait longer are repeated by their sender in any case.
STALE_SECONDS = 3.0
# Urgent messages may be as many again.
MOST_WAITING = 10_000
# A stop sends waiting messages for this long.
LAST_SECONDS = 1.0
# The limits of a queue whose reader does not read: number and age of messages.
QUEUE_LIMITS = {
    "x-message-ttl": 60_000,
    "x-max-length-bytes": 256 * 1024 * 1024,
    "x-overflow": "drop-head",
}
# Anyone with a worker's credential can send to leaders. RabbitMQ delivers a message to a reader
# that is ready without asking for its queue's length; only `reject-publish` is checked before.
LEADER_LIMITS = QUEUE_LIMITS | {
    "x-max-length-bytes": MOST_BYTES,
    "x-overflow": "reject-publish",
}
# A server that accepts the connection and does not answer raises no AMQPError.
LOST = (AMQPError, AMQPConnectorException, OSError)


class AmqpBroker:
    """One process's connection; `urls` are RabbitMQ's nodes, tried in turn.

    It calls `on_message` on a thread of its own.
    """

    def __init__(
        self, urls: Sequence[str], on_message: Callable[[bytes], None], *, leader: bool, name: str
    ) -> None:
        self._receiver = _Receiver(urls, on_message, leader=leader, name=name)
        self._sender = _Sender(urls, name=name)
        self._links: tuple[_Link, ...] = (self._receiver, self._sender)

    @property
    def address(self) -> str:
        """The address at which others reach this process; it changes with each connection."""
        return self._receiver.queue

    def send(self, to: str, body: bytes, *, is_urgent: bool = False) -> None:
        """Send to an address, or to LEADERS. Never waits and never fails; the message may be
        lost. Urgent ones are sent first, and others never take their room.
        """
        self._sender.put(to, body, is_urgent=is_urgent)

    def up_since(self) -> float | None:
        """Return the monotonic time since when it sends and receives; None while it does not."""
        since = [link.up_since for link in self._links]
        return None if None in since else max(filter(None, since))

    def trouble(self) -> str:
        """Return the code of the trouble with the connection; empty if there is none."""
        found = next((link.trouble for link in self._links if link.trouble), "")
        return found or ("broker_connecting" if self.up_since() is None else "")

    def why(self) -> str:
        """Return the reason of the trouble: an error, or RabbitMQ's words."""
        return next((link.why for link in self._links if link.trouble), "")

    def start(self) -> None:
        for link in self._links:
            link.thread.start()

    def stop(self) -> None:
        for link in self._links:
            link.stop()

    def join(self, timeout_seconds: float = JOIN_SECONDS) -> bool:
        ended = [link.thread.join(timeout_seconds) for link in self._links]
        return all(ended)

    def stalled(self) -> str | None:
        return next((told for link in self._links if (told := link.thread.stalled())), None)


class _Link:
    """One connection, opened again whenever it is lost."""

    def __init__(self, urls: Sequence[str], *, name: str, kind: str) -> None:
        self.thread = BackgroundThread(f"amqp-{kind}", self._run)
        self._kind = kind
        self._turns = itertools.cycle([parameters(url, f"{name} {kind}") for url in urls])
        self._connection: pika.BlockingConnection | None = None
        self.up_since: float | None = None
        self.trouble = ""
        self.why = ""
        self.is_blocked = False

    def stop(self) -> None:
        """End it soon; from any thread."""
        self.thread.stop()
        connection = self._connection
        if connection is not None:
            # Wakes it from its wait; it may be closed already.
            with suppress(*LOST):
                connection.add_callback_threadsafe(lambda: None)

    def _run(self) -> None:
        failures = 0
        while not self.thread.stop_asked.is_set():
            self.thread.activity.busy()
            began = time.monotonic()
            try:
                self._connected(next(self._turns))
            except LOST as error:
                if not self.thread.stop_asked.is_set():
                    self._lost(error)
            self.up_since = None
            failures = 1 if time.monotonic() - began > LONGEST_PAUSE_SECONDS else failures + 1
            self.thread.activity.idle()
            pause = growing_seconds(failures, first=FIRST_PAUSE_SECONDS, most=LONGEST_PAUSE_SECONDS)
            self.thread.stop_asked.wait(pause)

    def _connected(self, parameters: pika.URLParameters) -> None:
        connection = self._connection = pika.BlockingConnection(parameters)
        try:
            connection.add_on_connection_blocked_callback(self._blocked)
            connection.add_on_connection_unblocked_callback(self._unblocked)
            channel = connection.channel()
            self._prepare(channel)
            if self.trouble:
                log.info("RabbitMQ is connected again connection=%s", self._kind)
            self.trouble, self.is_blocked, self.up_since = "", False, time.monotonic()
            while not self.thread.stop_asked.is_set():
                self.thread.activity.busy()
                self._serve(connection, channel)
            self._finish(connection, channel)
        finally:
            with suppress(*LOST):
                connection.close()

    def _lost(self, error: BaseException) -> None:
        why = told(error)
        if (self.trouble, self.why) != ("broker_lost", why):
            log.warning("no connection to RabbitMQ: %s connection=%s", why, self._kind)
        self.trouble, self.why = "broker_lost", why

    def _blocked(self, _: Any, frame: Any) -> None:
        self.is_blocked = True
        self.trouble, self.why = "broker_blocked", str(frame.method.reason)
        log.warning("RabbitMQ takes nothing: %s", self.why)

    def _unblocked(self, *_: Any) -> None:
        self.is_blocked, self.trouble = False, ""
        log.info("RabbitMQ accepts messages again connection=%s", self._kind)

    def _prepare(self, channel: BlockingChannel) -> None:
        """Before the first `_serve` of a connection."""

    def _serve(self, connection: pika.BlockingConnection, channel: BlockingChannel) -> None:
        raise NotImplementedError

    def _finish(self, connection: pika.BlockingConnection, channel: BlockingChannel) -> None:
        """Called after the last `_serve` if a stop ends it; quick."""


class _Receiver(_Link):
    def __init__(
        self, urls: Sequence[str], on_message: Callable[[bytes], None], *, leader: bool, name: str
    ) -> None:
        super().__init__(urls, name=name, kind="receiving")
        self._on_message = on_message
        self._leader = leader
        self.queue = ""

    def _prepare(self, channel: BlockingChannel) -> None:
        # A new name each time: the former queue exists until RabbitMQ notices the loss of its
        # connection.
        prefix = LEADER_QUEUE if self._leader else WORKER_QUEUE
        queue = f"{prefix}{uuid.uuid4().hex}"
        limits = LEADER_LIMITS if self._leader else QUEUE_LIMITS
        channel.queue_declare(queue, exclusive=True, auto_delete=True, arguments=limits)
        if self._leader:
            channel.exchange_declare(EXCHANGE, "fanout", durable=True)
            channel.queue_bind(queue, EXCHANGE)
        channel.add_on_cancel_callback(_cancelled)
        channel.basic_consume(queue, self._arrived, auto_ack=True, exclusive=True)
        self.queue = queue

    def _arrived(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._on_message(body)

    def _serve(self, connection: pika.BlockingConnection, channel: BlockingChannel) -> None:
        connection.process_data_events(time_limit=LOOK_SECONDS)


class _Sender(_Link):
    def __init__(self, urls: Sequence[str], *, name: str) -> None:
        super().__init__(urls, name=name, kind="sending")
        # Urgent ones first, then in the order of their numbers.
        self._waiting = PriorityQueue[tuple[bool, int, float, str, bytes]]()
        self._numbers = itertools.count()
        self._look_at = 0.0

    def put(self, to: str, body: bytes, *, is_urgent: bool) -> None:
        """Send it soon; it is dropped if too many messages wait."""
        if self._waiting.qsize() < MOST_WAITING * (1 + is_urgent):
            number = next(self._numbers)
            self._waiting.put((not is_urgent, number, time.monotonic(), to, body))

    def stop(self) -> None:
        super().stop()
        # Wakes it from its wait; too old to be sent.
        self._waiting.put((True, next(self._numbers), 0.0, "", b""))

    def _serve(self, connection: pika.BlockingConnection, channel: BlockingChannel) -> None:
        # Reports of RabbitMQ are received only in here.
        if self.is_blocked:
            connection.process_data_events(LOOK_SECONDS)
            return
        # guard: hears-that-it-is-blocked -> never
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_SECONDS
            connection.process_data_events(0)
        try:
            item = self._waiting.get(timeout=LOOK_SECONDS)
        except Empty:
            return
        self._publish(channel, *item[2:])

    def _finish(self, connection: pika.BlockingConnection, channel: BlockingChannel) -> None:
        """Send messages from before the stop: a worker's last message says that it leaves."""
        deadline = time.monotonic() + LAST_SECONDS
        with suppress(Empty):
            while not self.is_blocked and time.monotonic() < deadline:
                self._publish(channel, *self._waiting.get_nowait()[2:])

    def _publish(self, channel: BlockingChannel, since: float, to: str, body: bytes) -> None:
        if time.monotonic() - since > STALE_SECONDS:
            return
        exchange, key = (EXCHANGE, "") if to == LEADERS else ("", to)
        # Transient, which is the default of both delivery mode and this queue.
        channel.basic_publish(exchange, key, body)


def _cancelled(_: Any) -> None:
    raise pika.exceptions.ConsumerCancelled("RabbitMQ ended the queue")


def parameters(url: str, name: str) -> pika.URLParameters:
    parameters = pika.URLParameters(url)
    parameters.heartbeat = HEARTBEAT_SECONDS
    parameters.socket_timeout = CONNECT_SECONDS
    parameters.stack_timeout = 2 * CONNECT_SECONDS
    parameters.blocked_connection_timeout = BLOCKED_SECONDS
    parameters.client_properties = {"connection_name": f"linedesk {name}"}
    return parameters


def told(error: BaseException) -> str:
    """Return the class and the server's answer, without an address's password."""
    inner = error.args[0] if error.args else None
    cause = getattr(inner, "exception", None) or error
    text = getattr(cause, "reply_text", "") or getattr(cause, "strerror", "") or ""
    if isinstance(cause, (ProbableAccessDeniedError, ProbableAuthenticationError)):
        # For these errors pika has the server's answer as text.
        text = inner
    return f"{type(cause).__name__}{': ' + str(text)[:200] if text else ''}"
