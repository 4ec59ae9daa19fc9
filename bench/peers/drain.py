"""Task queues on PostgreSQL beside linedesk: one worker with 20 jobs at a time.

Each job counts in the state of its conversation in the same database, and posts one reply. All jobs
are stored before the worker starts. The clock runs from the first start of a job until the store
knows all as completed. A process of its own does it: `python -m bench.peers.drain MODULE JOBS KEYS`
prints the figures as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import Protocol, cast

from bench.peers import jobs, postgresql
from bench.peers.jobs import Event
from bench.processes import child, cpu_seconds, to_its_end, until
from bench.report import BenchFailed
from bench.stack import ROOT, python_path
from bench.webhooks import SENTENCE, text_event

Drain = Callable[[int, int], Mapping[str, float]]
"""Completes a number of jobs of a number of conversations; its seconds, and the ms of processor
time of its worker and of its database.
"""
DRAIN_SECONDS = 300.0
PACKAGES = ("procrastinate", "pgqueuer", "asyncpg", "psycopg")
REQUIREMENTS = ROOT / "requirements" / "bench.txt"


@dataclass(frozen=True)
class Peer:
    """One peer in one setup."""

    module: str
    """In this package; keeps to PeerModule."""
    option: str = ""
    """The module's option for this setup."""
    lacks: str = ""
    """The guarantees that it does not give, beside those that all of them lack."""


PEERS: Mapping[str, Peer] = {
    "Procrastinate with locks": Peer("with_procrastinate", option="lock"),
    "Procrastinate": Peer("with_procrastinate", lacks="order by key"),
    "PgQueuer": Peer("with_pgqueuer", lacks="order by key"),
}


class PeerModule(Protocol):
    """The functions of a peer's module."""

    def reset(self) -> None:
        """Make its store, empty."""

    def fill(self, events: Sequence[Event]) -> None:
        """Store one job an event, in bulk where it can."""

    def left(self, jobs: int) -> int:
        """The number of jobs that its store does not list as completed."""

    def worker(self) -> list[str]:
        """The command line of one worker with 20 jobs at a time, of its own documentation."""


@contextmanager
def completions(folder: Path, *, url: str) -> Iterator[dict[str, Drain]]:
    """By peer, with replies to `url`. Installs what is missing. Raises BenchFailed."""
    ensure_packages()
    with postgresql.running() as server:
        yield {name: partial(_drained, name, server, folder, url) for name in PEERS}


def ensure_packages() -> None:
    """Install requirements/bench.txt, by its hashes, if one is missing. Raises BenchFailed."""
    installed = {one.name.lower() for one in metadata.distributions()}
    missing = [name for name in PACKAGES if name not in installed]
    if not missing:
        return
    print(f"installing {', '.join(missing)} (requirements/bench.txt)")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--require-hashes", "--only-binary", ":all:", "--requirement", str(REQUIREMENTS)]
    to_its_end(command, f"installing {', '.join(missing)}")


def versions() -> dict[str, str]:
    """Of the packages and of PostgreSQL, for reports."""
    return {name: metadata.version(name) for name in PACKAGES} | {
        "PostgreSQL": postgresql.version()
    }


def _drained(
    name: str, server: str, folder: Path, url: str, number: int, keys: int
) -> Mapping[str, float]:
    peer, log = PEERS[name], folder / f"{name}-started.log"
    log.unlink(missing_ok=True)
    environ = {
        **os.environ,
        "PYTHONPATH": python_path(),
        # A database of its own for each.
        "PEER_STORE": f"{server}/bench_{list(PEERS).index(name)}",
        "PEER_OPTION": peer.option,
        "PEER_SEND_URL": url,
        jobs.STARTED: str(log),
    }
    command = [sys.executable, "-m", "bench.peers.drain", peer.module, str(number), str(keys)]
    try:
        done = subprocess.run(
            command,
            env=environ,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=DRAIN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchFailed(f"{name} did not complete its jobs in {DRAIN_SECONDS:.0f} s") from error
    if done.returncode:
        raise BenchFailed(f"completing the jobs of {name}: {done.stderr[-1000:]}")
    used: Mapping[str, float] = json.loads(done.stdout)
    return used


def main(module: str, number: str, keys: str) -> None:
    """Store, complete and print."""
    peer = cast(PeerModule, import_module(f"bench.peers.{module}"))
    log, wanted = Path(os.environ[jobs.STARTED]), int(number)
    peer.reset()
    peer.fill([text_event(n % int(keys), SENTENCE) for n in range(wanted)])
    with child("the worker", peer.worker(), stdout=sys.stderr, stderr=None) as worker:
        waits = partial(until, seconds=DRAIN_SECONDS, process=worker)
        waits(lambda: jobs.starts(log), "a job starts", every=0.002)
        began, before = time.monotonic(), _used(worker.pid)
        waits(lambda: len(jobs.starts(log)) >= wanted and not peer.left(wanted), "all jobs end")
        began = min([began, *map(float, jobs.starts(log))])
        seconds, after = time.monotonic() - began, _used(worker.pid)
    # The broker has returned unacknowledged jobs to the queue by now.
    if peer.left(wanted):
        raise SystemExit("jobs were left over")
    print(json.dumps({"seconds": seconds} | {name: after[name] - before[name] for name in before}))


def _used(worker: int) -> dict[str, float]:
    database = cpu_seconds(postgresql.server(jobs.STORE), children=True)
    return {"worker ms": 1000 * cpu_seconds(worker), "database ms": 1000 * database}


if __name__ == "__main__":
    main(*sys.argv[1:])
