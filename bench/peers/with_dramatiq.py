"""Dramatiq, on Redis or on RabbitMQ.

Messages are acknowledged after their job (https://dramatiq.io/advanced.html#message-persistence).
`confirm_delivery` waits until RabbitMQ has committed a message
(https://dramatiq.io/reference.html#dramatiq.brokers.rabbitmq.RabbitmqBroker); its queues are
durable and its messages persistent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.brokers.redis import RedisBroker
from fastapi.concurrency import run_in_threadpool

from bench.peers import jobs
from bench.peers.names import Enqueue, Event

ON_REDIS = jobs.STORE.startswith("redis:")

broker = (
    RedisBroker(url=jobs.STORE)
    if ON_REDIS
    else RabbitmqBroker(url=jobs.STORE, confirm_delivery=True)
)
dramatiq.set_broker(broker)
note = dramatiq.actor(jobs.note)


def reset() -> None:
    """Empty its queues, which it declares with the first message otherwise."""
    broker.declare_queue(note.queue_name, **({} if ON_REDIS else {"ensure": True}))
    broker.flush_all()


def fill(events: Sequence[Event]) -> None:
    """One by one over one connection."""
    for event in events:
        note.send(event)


def left(jobs: int) -> int:
    """On Redis those that are not acknowledged, on RabbitMQ those in the queue."""
    if ON_REDIS:
        return int(broker.client.hlen(f"{broker.namespace}:{note.queue_name}.msgs"))
    return int(broker.get_queue_message_counts(note.queue_name)[0])


def worker() -> list[str]:
    """https://dramatiq.io/guide.html#workers"""
    number = str(jobs.CONCURRENCY)
    command = [jobs.script("dramatiq"), "bench.peers.with_dramatiq"]
    return [*command, "--processes", "1", "--threads", number]


@asynccontextmanager
async def enqueuer() -> AsyncIterator[Enqueue]:
    """Its calls block, so FastAPI's threads make them."""

    def store(events: Sequence[Event]) -> None:
        for event in events:
            note.send(event)

    async def enqueue(events: Sequence[Event]) -> None:
        await run_in_threadpool(store, events)

    yield enqueue
