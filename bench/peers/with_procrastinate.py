"""Procrastinate on PostgreSQL.

With the option "lock" jobs of one user run one after the other, in their order
(https://procrastinate.readthedocs.io/en/stable/howto/advanced/locks.html). The pool has one
connection more than there are jobs at a time, which is advised for short ones
(https://procrastinate.readthedocs.io/en/stable/discussions.html). Jobs of a worker that died run
again by the periodic task that the documentation has for it
(https://procrastinate.readthedocs.io/en/stable/howto/production/retry_stalled_jobs.html).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from procrastinate import App, PsycopgConnector

from bench.peers import jobs
from bench.peers.jobs import STORE, Event
from bench.peers.postgresql import new_database, number_in

UPSERT = """
INSERT INTO bench_state VALUES (%(key)s, 1)
ON CONFLICT (key) DO UPDATE SET messages = bench_state.messages + 1 RETURNING messages
"""

app = App(connector=PsycopgConnector(conninfo=STORE, max_size=jobs.CONCURRENCY + 1))


async def count(key: str) -> int:
    """Count in the state of a conversation, over the connections of its own pool."""
    row = await app.connector.execute_query_one_async(UPSERT, key=key)
    return int(row["messages"])


async def do(event: Event) -> None:
    """The job."""
    await jobs.work(event, count)


async def retry_stalled_jobs(context: Any, timestamp: int) -> None:
    """As in the documentation."""
    for job in await app.job_manager.get_stalled_jobs():
        await app.job_manager.retry_job(job)


app.task(name="do")(do)
app.periodic(cron="*/10 * * * *")(
    app.task(queueing_lock="retry_stalled_jobs", pass_context=True)(retry_stalled_jobs)
)


def reset() -> None:
    """A new database with its schema."""
    new_database(STORE)

    async def apply() -> None:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            await app.connector.execute_query_async(jobs.STATE_TABLE)

    asyncio.run(apply())


def fill(events: Sequence[Event]) -> None:
    """In bulk: by SQL, since its call for several jobs gives all the same lock."""
    with psycopg.connect(STORE) as connection, connection.cursor() as cursor:
        cursor.executemany(
            "SELECT procrastinate_defer_jobs_v1(ARRAY[ROW("
            "'default', 'do', 0, %s, NULL, %s, NULL)::procrastinate_job_to_defer_v1])",
            [
                (
                    event["source"]["userId"] if jobs.OPTION == "lock" else None,
                    psycopg.types.json.Jsonb({"event": event}),
                )
                for event in events
            ],
        )


def left(jobs: int) -> int:
    """Those that have not succeeded."""
    return jobs - number_in(
        STORE, "procrastinate_jobs WHERE status = 'succeeded' AND task_name = 'do'"
    )


def worker() -> list[str]:
    """https://procrastinate.readthedocs.io/en/stable/howto/basics/worker.html"""
    command = [
        str(Path(sys.executable).parent / "procrastinate"),
        "--app",
        "bench.peers.with_procrastinate.app",
        "--log-level",
        "warning",
    ]
    return [*command, "worker", "--concurrency", str(jobs.CONCURRENCY)]
