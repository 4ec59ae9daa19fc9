"""FastAPI's BackgroundTasks: a function that runs in the server's process, after the answer.

https://fastapi.tiangolo.com/tutorial/background-tasks/
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import BackgroundTasks

from bench.peers import jobs
from bench.peers.names import Enqueue, Event


def reset() -> None:
    """It has no store."""


@asynccontextmanager
async def enqueuer() -> AsyncIterator[Enqueue]:
    """The tasks go with the answer."""

    async def enqueue(events: Sequence[Event]) -> BackgroundTasks:
        tasks = BackgroundTasks()
        for event in events:
            tasks.add_task(jobs.note, event)
        return tasks

    yield enqueue
