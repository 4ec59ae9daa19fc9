"""Celery with its pool of threads, on Redis or on RabbitMQ.

Late acknowledgement, so that a job whose worker dies runs again
(https://docs.celeryq.dev/en/stable/userguide/tasks.html#Task.acks_late), and no results
(https://docs.celeryq.dev/en/stable/userguide/tasks.html#ignore-results-you-don-t-want). Its queues
and messages in RabbitMQ are persistent by default; `confirm_publish` waits until RabbitMQ has
confirmed a message, which it does once the message is on disk
(https://www.rabbitmq.com/docs/confirms#when-publishes-are-confirmed).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from celery import Celery
from fastapi.concurrency import run_in_threadpool

from bench.peers import jobs
from bench.peers.names import Enqueue, Event

ON_REDIS = jobs.STORE.startswith("redis:")

app = Celery("bench", broker=jobs.STORE)
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    broker_transport_options={} if ON_REDIS else {"confirm_publish": True},
    broker_connection_retry_on_startup=True,
)
note = app.task(name="note")(jobs.note)


def reset() -> None:
    """Empty its queue."""
    app.control.purge()


def fill(events: Sequence[Event]) -> None:
    """One by one over one connection."""
    with app.producer_pool.acquire(block=True) as producer:
        for event in events:
            note.apply_async((event,), producer=producer)


def left(jobs: int) -> int:
    """Those in the queue and, on Redis, those that are not acknowledged."""
    with app.connection_for_read() as connection:
        channel = connection.default_channel
        if ON_REDIS:
            return int(channel.client.llen("celery")) + int(channel.client.hlen("unacked"))
        return int(channel.queue_declare("celery", passive=True).message_count)


def worker() -> list[str]:
    """https://docs.celeryq.dev/en/stable/userguide/concurrency/index.html"""
    number = str(jobs.CONCURRENCY)
    command = [jobs.script("celery"), "-A", "bench.peers.with_celery", "worker"]
    return [*command, "--pool", "threads", "--concurrency", number, "--loglevel", "WARNING"]


@asynccontextmanager
async def enqueuer() -> AsyncIterator[Enqueue]:
    """Its calls block, so FastAPI's threads make them."""

    def store(events: Sequence[Event]) -> None:
        for event in events:
            note.delay(event)

    async def enqueue(events: Sequence[Event]) -> None:
        await run_in_threadpool(store, events)

    yield enqueue
