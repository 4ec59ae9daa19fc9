"""RQ on Redis.

Jobs are retried when their worker dies (https://python-rq.org/docs/exceptions/). A worker runs one
job at a time, each in a child process of its own; for more at a time the documentation has more
workers (https://python-rq.org/docs/workers/). There is one for each core, since 20 complete fewer
jobs. A script that has imported the jobs' modules starts them, as its performance notes advise.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi.concurrency import run_in_threadpool
from redis import Redis
from rq import Queue, Retry
from rq.registry import FinishedJobRegistry
from rq.worker_pool import WorkerPool

from bench.peers import jobs
from bench.peers.names import Enqueue, Event

redis = Redis.from_url(jobs.STORE)
queue = Queue(connection=redis)


def reset() -> None:
    """Empty its database."""
    redis.flushdb()


def fill(events: Sequence[Event]) -> None:
    """In bulk."""
    for first in range(0, len(events), 1_000):
        some = events[first : first + 1_000]
        queue.enqueue_many(
            [Queue.prepare_data(jobs.note, args=(e,), retry=Retry(max=3)) for e in some]
        )


def left(jobs: int) -> int:
    """Those that are not in the registry of finished jobs."""
    return jobs - int(FinishedJobRegistry(queue=queue).get_job_count(cleanup=False))


def worker() -> list[str]:
    """This module as a script."""
    return [sys.executable, "-m", "bench.peers.with_rq"]


@asynccontextmanager
async def enqueuer() -> AsyncIterator[Enqueue]:
    """Its calls block, so FastAPI's threads make them."""

    def store(events: Sequence[Event]) -> None:
        for event in events:
            queue.enqueue(jobs.note, event, retry=Retry(max=3))

    async def enqueue(events: Sequence[Event]) -> None:
        await run_in_threadpool(store, events)

    yield enqueue


if __name__ == "__main__":
    pool = WorkerPool([queue], connection=redis, num_workers=os.cpu_count() or 1)
    pool.start(logging_level="WARNING")
