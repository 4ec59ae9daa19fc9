"""PgQueuer on PostgreSQL.

By its own checklist (https://pgqueuer.readthedocs.io/en/latest/guides/performance-tuning/): a pool
of connections for producers and one connection for the worker, its settings of autovacuum, its
durable tables, and its defaults otherwise. With 20 jobs at a time it takes 10 at once, the most
that it allows.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer, Queries, run
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver

from bench.peers import jobs
from bench.peers.jobs import STORE, Event
from bench.peers.postgresql import new_database, number_in

UPSERT = """
INSERT INTO bench_state VALUES ($1, 1)
ON CONFLICT (key) DO UPDATE SET messages = bench_state.messages + 1 RETURNING messages
"""


@asynccontextmanager
async def main() -> AsyncIterator[PgQueuer]:
    """The job and its connections."""
    connection = await asyncpg.connect(STORE)
    pgq = PgQueuer(AsyncpgDriver(connection))
    async with asyncpg.create_pool(STORE, min_size=1, max_size=jobs.CONCURRENCY) as pool:

        def count(key: str) -> Awaitable[int]:
            counted: Awaitable[int] = pool.fetchval(UPSERT, key)
            return counted

        async def do(job: Any) -> None:
            await jobs.work(json.loads(job.payload), count)

        pgq.entrypoint("do")(do)
        yield pgq


def reset() -> None:
    """A new database with its schema."""
    new_database(STORE)

    async def install() -> None:
        connection = await asyncpg.connect(STORE)
        queries = Queries(AsyncpgDriver(connection))
        await queries.install()
        await queries.optimize_autovacuum()
        await connection.execute(jobs.STATE_TABLE)
        await connection.close()

    asyncio.run(install())


def fill(events: Sequence[Event]) -> None:
    """In bulk."""

    async def store() -> None:
        async with asyncpg.create_pool(STORE, min_size=5, max_size=20) as pool:
            queries = Queries(AsyncpgPoolDriver(pool))
            for first in range(0, len(events), 1_000):
                payloads = [json.dumps(one).encode() for one in events[first : first + 1_000]]
                await queries.enqueue(["do"] * len(payloads), payloads, [0] * len(payloads))

    asyncio.run(store())


def left(jobs: int) -> int:
    """Those that its log has not as successful."""
    return jobs - number_in(STORE, "pgqueuer_log WHERE status = 'successful'")


def worker() -> list[str]:
    """This module as a script, as in https://pgqueuer.readthedocs.io/en/latest/guides/programmatic-run/"""
    return [sys.executable, "-m", "bench.peers.with_pgqueuer"]


if __name__ == "__main__":
    # As `pgq run` does, which does not start with typer 0.29.
    uvloop.run(run(main, batch_size=jobs.CONCURRENCY // 2, max_concurrent_tasks=jobs.CONCURRENCY))
