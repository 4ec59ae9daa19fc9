"""The peers by name: their code, their store, and the guarantees that they lack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from fastapi import BackgroundTasks

Event = Mapping[str, Any]
ALL = frozenset({"enqueue", "complete", "latency"})

REDIS_LACKS = "durable before the answer (Redis can lose the last second)"
AT_LEAST_ONCE = "exactly once (at least once)"
NO_ORDER = "order by key"


@dataclass(frozen=True)
class Peer:
    """One peer in one setup."""

    module: str
    """In this package; keeps to PeerModule."""
    server: str
    """That holds its jobs: redis, postgresql, rabbitmq; '' for none."""
    packages: Sequence[str]
    lacks: Sequence[str]
    option: str = ""
    """The module's option for this setup."""
    measured: frozenset[str] = ALL
    records: bool = False
    """Whether its jobs can record a state in the same database (`work="state"`)."""


PEERS: Mapping[str, Peer] = {
    "FastAPI BackgroundTasks": Peer(
        "with_background_tasks",
        "",
        ["fastapi"],
        ["durable before the answer (a task is lost with its process)", NO_ORDER, "exactly once"],
        measured=frozenset({"enqueue", "latency"}),
    ),
    "RQ": Peer("with_rq", "redis", ["rq"], [REDIS_LACKS, NO_ORDER, AT_LEAST_ONCE]),
    "Celery on Redis": Peer(
        "with_celery", "redis", ["celery"], [REDIS_LACKS, NO_ORDER, AT_LEAST_ONCE]
    ),
    "Celery on RabbitMQ": Peer("with_celery", "rabbitmq", ["celery"], [NO_ORDER, AT_LEAST_ONCE]),
    "Dramatiq on Redis": Peer(
        "with_dramatiq", "redis", ["dramatiq"], [REDIS_LACKS, NO_ORDER, AT_LEAST_ONCE]
    ),
    "Dramatiq on RabbitMQ": Peer(
        "with_dramatiq", "rabbitmq", ["dramatiq"], [NO_ORDER, AT_LEAST_ONCE]
    ),
    "arq": Peer("with_arq", "redis", ["arq"], [REDIS_LACKS, NO_ORDER, AT_LEAST_ONCE]),
    "arq, polling every 10 ms": Peer(
        "with_arq",
        "redis",
        ["arq"],
        [REDIS_LACKS, NO_ORDER, AT_LEAST_ONCE],
        option="poll",
        # Its producer is the same.
        measured=frozenset({"complete", "latency"}),
    ),
    "Procrastinate with locks": Peer(
        "with_procrastinate",
        "postgresql",
        ["procrastinate", "psycopg"],
        [AT_LEAST_ONCE],
        option="lock",
        records=True,
    ),
    "Procrastinate": Peer(
        "with_procrastinate",
        "postgresql",
        ["procrastinate", "psycopg"],
        [NO_ORDER, AT_LEAST_ONCE],
        measured=frozenset({"complete"}),
        records=True,
    ),
    "PgQueuer": Peer(
        "with_pgqueuer",
        "postgresql",
        ["pgqueuer", "asyncpg"],
        [NO_ORDER, AT_LEAST_ONCE],
        records=True,
    ),
}

LACKS: Mapping[str, str] = {name: "; ".join(peer.lacks) for name, peer in PEERS.items()}
"""The guarantees that each lacks, of: durable before the answer, order by key, exactly once."""


class Enqueue(Protocol):
    """Stores one job an event; background tasks are for the answer to carry."""

    async def __call__(self, events: Sequence[Event]) -> BackgroundTasks | None: ...


class PeerModule(Protocol):
    """The functions of a peer's module."""

    def reset(self) -> None:
        """Make its store, empty."""

    def fill(self, events: Sequence[Event]) -> None:
        """Store one job an event, in bulk where it can."""

    def left(self, jobs: int) -> int:
        """The number of jobs that its store does not list as completed."""

    def worker(self) -> list[str]:
        """The command line of one worker with 20 jobs at a time."""

    def enqueuer(self) -> AbstractAsyncContextManager[Enqueue]:
        """Its connections for the route, and the function that stores jobs by them."""


def module_of(peer: str) -> PeerModule:
    """Of a peer by `Peer.module`."""
    return cast(PeerModule, import_module(f"bench.peers.{peer}"))


def measured_for(what: str) -> Iterator[tuple[str, Peer]]:
    """The peers that are measured so."""
    return ((name, peer) for name, peer in PEERS.items() if what in peer.measured)
