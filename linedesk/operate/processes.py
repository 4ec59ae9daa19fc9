"""Rows of `status` put together: the running processes, and the figures of each role.

This module measures nothing: each number comes from a row. Pure but for `present_leader`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

from pymongo.database import Database

from linedesk.operate.reading import reported
from linedesk.operate.text import known
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import ngettext
from linedesk.runtime.status_row import (
    BROKER,
    BROKER_WHY,
    PER_SECOND,
    SILENT,
    STARTED_AT,
    WHY,
    WORKERS,
    WORKING,
)
from linedesk.store.documents import STATUS, Document
from linedesk.store.records.events import EVENT_ID

# An older row belongs to a process that hangs, is disconnected or has ended.
FRESH_SECONDS = 10.0
# The state and the words of an older row are no longer shown as the present.
LATE_SECONDS = 3.0

FRONTDESK, DISPATCHER = "frontdesk", "dispatcher"
ROLES = (FRONTDESK, DISPATCHER)
ENDED = "ended"
# Figures that each of several front desks reports of the same thing: a spool on a host, recvq.
LARGEST = (
    *("spoolDocuments", "spoolBytes", "spoolOldestSeconds", "spoolMaxBytes"),
    *("recvqUnreadShare", "recvqClosed"),
)
SMALLEST = ("certificateEndsSeconds", "spoolAvailable")

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Process:
    """One process, according to its row."""

    role: str
    host: str
    pid: int
    version: str
    state: str
    """starting, working, standby, waiting, stopping, ended, or silent once its row is late."""
    why: Any
    """Why a dispatcher waits, as `known` takes it; None once its row is late."""
    started_at: datetime | None
    at: datetime | None
    silent_seconds: float
    """Since its row was written."""
    is_fresh: bool
    """False where it is gone, or hangs, or has ended."""


@dataclass(frozen=True)
class ProcessRow:
    """The figures of a role: of its one process, or of several together."""

    figures: Document = field(default_factory=dict)
    per_second: Document = field(default_factory=dict)
    lately: Document = field(default_factory=dict)

    def number(self, *path: str) -> float | None:
        """Return one figure, its labels behind its name; None where no row has it."""
        return number_at(self.figures, path)

    def rate(self, *path: str) -> float | None:
        """Return a rate per second of all labels together; None where no row has it."""
        found = at_path(self.per_second, path)
        return None if found is None else total(found)


def process_of(row: Row, *, now: datetime) -> Process:
    """Return a row as a process; a row made by hand may lack any field."""
    at = row.get("at")
    silent = max(0.0, (now - at).total_seconds()) if isinstance(at, datetime) else float("inf")
    started, state = row.get(STARTED_AT), str(row.get("state", "-"))
    why = row.get(WHY)
    if silent > LATE_SECONDS and state != ENDED:
        state, why = SILENT, None
    return Process(
        role=str(row.get("role", "-")),
        host=str(row.get("host", "-")),
        pid=row["pid"] if isinstance(row.get("pid"), int) else 0,
        version=str(row.get("version", "-")),
        state=state,
        why=why,
        started_at=started if isinstance(started, datetime) else None,
        at=at if isinstance(at, datetime) else None,
        silent_seconds=silent,
        is_fresh=silent <= FRESH_SECONDS and state != ENDED,
    )


def listed(row: Row, name: str) -> list[Document]:
    """Return the rows within a row: threads, waiting, paused."""
    found = row.get(name)
    rows = found if isinstance(found, list) else []
    return [dict(one) for one in rows if isinstance(one, Mapping)]


def that_count(processes: Sequence[Process]) -> list[Process]:
    """Return the processes that run or should run.

    Processes that have ended, or were replaced by a later start, do not count. Where no process of
    a role is left, the one that reported last represents it.
    """
    counted = [one for one in processes if one.is_fresh or not _is_over(one, processes)]
    for role in ROLES:
        known = [one for one in processes if one.role == role and one.at is not None]
        if known and not any(one.role == role for one in counted):
            counted.append(min(known, key=lambda one: one.silent_seconds))
    return sorted(counted, key=lambda one: (_place(one.role), one.host, one.pid))


LATELY_SECONDS = 3600.0


def killed(processes: Sequence[Process]) -> list[Process]:
    """Return the processes that ended within an hour without reporting it, and were started again;
    the latest first.
    """
    silent = [
        one for one in processes if one.state == SILENT and one.silent_seconds <= LATELY_SECONDS
    ]
    over = [one for one in silent if _is_over(one, processes)]
    return sorted(over, key=lambda one: one.silent_seconds)


def _is_over(one: Process, processes: Sequence[Process]) -> bool:
    """Return whether it reported its end, or another was started on its host after its last row."""
    if one.state == ENDED or one.at is None:
        return True
    same = [other for other in processes if (other.role, other.host) == (one.role, one.host)]
    return any(
        other.is_fresh and other.started_at is not None and other.started_at >= one.at
        for other in same
    )


def _place(role: str) -> int:
    return ROLES.index(role) if role in ROLES else len(ROLES)


def leading(rows: Iterable[Row]) -> Row | None:
    """Return the row of the dispatcher that holds the lease, of two the later epoch."""
    holders = [row for row in rows if row.get("role") == DISPATCHER and _leads(row)]
    return max(holders, key=lambda row: row.get("epoch") or 0, default=None)


def present_leader(database: Database[Any]) -> Mapping[str, Any] | None:
    """Return the leader's row; None where the last leader has ended or is silent."""
    now = datetime.now(UTC)
    rows = reported(database, STATUS).find({"role": DISPATCHER})
    return leading(row for row in rows if process_of(row, now=now).is_fresh)


def _leads(row: Row) -> bool:
    return number_at(row.get("figures") or {}, ("leading",)) == 1


def combined(rows: Sequence[Row]) -> ProcessRow:
    """Return the figures of several rows of a role together.

    Figures are sums; for a shared thing the extreme counts, and for latencies the worst.
    """
    figures, rates, lately = (
        [row[part] for row in rows if isinstance(row.get(part), Mapping)]
        for part in ("figures", PER_SECOND, "lately")
    )
    return ProcessRow(
        _together(figures, _of_figures), _together(rates, _of_figures), _together(lately, _worst)
    )


Rule = Callable[[str], Callable[[list[float]], float]]


def _of_figures(name: str) -> Callable[[list[float]], float]:
    return max if name in LARGEST else min if name in SMALLEST else sum


def _worst(name: str) -> Callable[[list[float]], float]:
    return sum if name in ("count", "sum") else max


def _together(documents: Sequence[Row], rule: Rule) -> Document:
    """Return each value of the documents by the rule of its name, at any depth."""
    found: Document = {}
    for name in dict.fromkeys(name for one in documents for name in one):
        values = [one[name] for one in documents if name in one]
        numbers = [value for value in values if isinstance(value, (int, float))]
        if all(isinstance(value, Mapping) for value in values):
            found[name] = _together(values, rule)
        else:
            found[name] = rule(name)(numbers) if numbers else None
    return found


def at_path(document: Row, path: Sequence[str]) -> Any:
    """Return the value at a path of names; None where there is none."""
    found: Any = document
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def number_at(document: Row, path: Sequence[str]) -> float | None:
    """Return the number at a path of names; None where there is none."""
    found = at_path(document, path)
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    return found if is_number else None


def total(value: Any) -> float:
    """Return a number, or the sum of the numbers of all labels."""
    if isinstance(value, Mapping):
        return sum(total(inner) for inner in value.values())
    return value if isinstance(value, (int, float)) else 0.0


# Worker processes have no MongoDB: the leader writes their rows.


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
    """The jobs that it has now."""
    state: str
    """working, stopping, or the code of why it gets no jobs."""
    about: Document
    """The values of that code."""
    silent_seconds: float | None

    @property
    def is_working(self) -> bool:
        """Return whether it gets jobs."""
        return self.state == WORKING

    def words(self) -> str:
        """Return its state for a person."""
        return known({**self.about, "code": self.state})


@dataclass(frozen=True)
class WorkersView:
    """All worker processes, and the connection to RabbitMQ."""

    broker: Document | None
    """Why the dispatcher cannot use RabbitMQ, as `known` takes it; None where it can."""
    processes: list[WorkerView]
    jobs: list[Document]
    """Their jobs: worker, channel, key, eventId, since; the longest first."""
    lost: float
    """Jobs that were handed out again since the dispatcher's start."""

    @property
    def working(self) -> list[WorkerView]:
        """The processes that get jobs."""
        return [one for one in self.processes if one.is_working]

    @property
    def threads(self) -> int:
        """How many jobs they can run at a time."""
        return sum(one.threads for one in self.working)

    def words(self) -> str:
        """Return a summary in one line."""
        told = [
            _("{count} of {all} get jobs").format(count=len(self.working), all=len(self.processes)),
            _("{count} threads").format(count=f"{self.threads:,}"),
            ngettext("{count} job out", "{count} jobs out", len(self.jobs)).format(
                count=f"{len(self.jobs):,}"
            ),
        ]
        if self.lost:
            told.append(_("{count} handed out again").format(count=f"{self.lost:,.0f}"))
        away = known(self.broker) if self.broker else _("RabbitMQ is connected")
        return _("{workers}; {connection}").format(workers=_(", ").join(told), connection=away)


def workers_of(row: Row, figures: ProcessRow) -> WorkersView | None:
    """Return the workers in the leader's row; None where handlers run on its own threads."""
    broker = row.get(BROKER)
    if not isinstance(broker, str):
        return None
    rows = listed(row, WORKERS)
    jobs = [_job(one, str(worker.get("name"))) for worker in rows for one in listed(worker, "jobs")]
    return WorkersView(
        broker={"code": broker, WHY: row.get(BROKER_WHY)} if broker else None,
        processes=[_worker(one) for one in rows],
        jobs=sorted((one for one in jobs if one["since"] is not None), key=itemgetter("since")),
        lost=figures.number("workerJobsLost") or 0.0,
    )


def _job(row: Mapping[str, Any], worker: str) -> Document:
    channel, _, key = str(row.get("key") or "").partition("/")
    since = row.get("since")
    return {
        "worker": worker,
        "channel": channel,
        "key": key,
        EVENT_ID: row.get(EVENT_ID),
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
        about={name: row.get(name) for name in ("refused", "contract", "needed")},
        silent_seconds=float(silent) if isinstance(silent, (int, float)) else None,
    )


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
