"""The worker processes of a dispatcher with DISPATCHER_WORKERS=amqp, as the leader's row has them.

Workers have no MongoDB: the leader writes what it knows of them. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from linedesk.console.processes import ProcessRow, Row, listed
from linedesk.runtime.status_row import BROKER, WORKERS
from linedesk.store.documents import Document

WORKING, STOPPING = "working", "stopping"


@dataclass(frozen=True)
class WorkerView:
    """One worker process."""

    name: str
    """Its host and its process id."""
    release: str
    bot: str
    """The version of its bot."""
    threads: int
    jobs: int
    """Those that it has."""
    state: str
    """working, stopping, or why it gets no jobs."""
    silent_seconds: float | None

    @property
    def is_working(self) -> bool:
        """Whether it gets jobs."""
        return self.state == WORKING


@dataclass(frozen=True)
class WorkersView:
    """All of them, and what is between them and the dispatcher."""

    broker: str
    """What stands between the dispatcher and RabbitMQ; empty where nothing does."""
    processes: list[WorkerView]
    jobs: list[Document]
    """What they have: worker, channel, key, eventId, since; the longest first."""
    lost: float
    """Jobs that were handed out again since the dispatcher's start."""

    @property
    def working(self) -> list[WorkerView]:
        """Those that get jobs."""
        return [one for one in self.processes if one.is_working]

    @property
    def threads(self) -> int:
        """How many jobs they can have at a time."""
        return sum(one.threads for one in self.working)

    def words(self) -> str:
        """All of it in a line."""
        away = self.broker or "RabbitMQ is connected"
        told = f"{len(self.working)} of {len(self.processes)} get jobs, {self.threads:,} threads"
        lost = f", {self.lost:,.0f} handed out again" if self.lost else ""
        out = "1 job out" if len(self.jobs) == 1 else f"{len(self.jobs):,} jobs out"
        return f"{told}, {out}{lost}; {away}"


def workers_of(row: Row, figures: ProcessRow) -> WorkersView | None:
    """By the row of the dispatcher that leads; None where handlers run on its own threads."""
    broker = row.get(BROKER)
    if not isinstance(broker, str):
        return None
    rows = listed(row, WORKERS)
    jobs = [_job(one, str(worker.get("name"))) for worker in rows for one in listed(worker, "jobs")]
    return WorkersView(
        broker=broker,
        processes=[_worker(one) for one in rows],
        jobs=sorted((one for one in jobs if one["since"] is not None), key=_since),
        lost=figures.number("workerJobsLost") or 0.0,
    )


def _since(job: Document) -> datetime:
    since: datetime = job["since"]
    return since


def _job(row: Mapping[str, Any], worker: str) -> Document:
    channel, _, key = str(row.get("key") or "").partition("/")
    since = row.get("since")
    return {
        "worker": worker,
        "channel": channel,
        "key": key,
        "eventId": row.get("eventId"),
        "since": since if isinstance(since, datetime) else None,
    }


def _worker(row: Mapping[str, Any]) -> WorkerView:
    silent = row.get("silentSeconds")
    return WorkerView(
        name=str(row.get("name") or "-"),
        release=str(row.get("release") or "-"),
        bot=str(row.get("bot") or "-"),
        threads=_whole(row.get("threads")),
        jobs=_whole(row.get("out")),
        state=str(row.get("state") or "-"),
        silent_seconds=float(silent) if isinstance(silent, (int, float)) else None,
    )


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
