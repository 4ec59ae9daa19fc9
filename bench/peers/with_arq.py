"""arq on Redis (https://arq-docs.helpmanual.io/).

Jobs stay in Redis until they have ended ("pessimistic execution"). With the option "poll" the
worker looks for jobs every 10 ms instead of every 0.5 s, its default: a worker takes at most 100
jobs each time, so that the default sets its rate.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from arq.constants import default_queue_name
from redis import Redis

from bench.peers import jobs
from bench.peers.names import Enqueue, Event


async def note(context: dict[str, Any], event: Event) -> None:
    """The job."""
    jobs.note(event)


class WorkerSettings:
    """As its command reads them."""

    functions = (note,)
    redis_settings = RedisSettings.from_dsn(jobs.STORE or "redis://localhost")
    max_jobs = jobs.CONCURRENCY
    poll_delay = 0.01 if jobs.OPTION == "poll" else 0.5


redis = Redis.from_url(jobs.STORE)


def reset() -> None:
    """Empty its database."""
    redis.flushdb()


def fill(events: Sequence[Event]) -> None:
    """Many at once over many connections: it has no call for several."""

    async def store() -> None:
        async with enqueuer() as enqueue:
            for first in range(0, len(events), 100):
                await asyncio.gather(*(enqueue([e]) for e in events[first : first + 100]))

    asyncio.run(store())


def left(jobs: int) -> int:
    """Those in its queue, where jobs stay until they have ended."""
    return int(redis.zcard(default_queue_name))


def worker() -> list[str]:
    """https://arq-docs.helpmanual.io/#simple-usage"""
    return [jobs.script("arq"), "bench.peers.with_arq.WorkerSettings"]


@asynccontextmanager
async def enqueuer() -> AsyncIterator[Enqueue]:
    """A pool of connections."""
    pool = await create_pool(WorkerSettings.redis_settings)

    async def enqueue(events: Sequence[Event]) -> None:
        for event in events:
            await pool.enqueue_job("note", event)

    yield enqueue
    await pool.aclose()
