"""The measurements of the peers: their servers under a load, completed jobs a second, latency."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path

from bench.desks import Desk
from bench.load import SteadySender
from bench.peers import jobs
from bench.peers.names import LACKS, PEERS, measured_for
from bench.peers.servers import ROOT, running
from bench.processes import child
from bench.report import BenchFailed
from bench.stack import python_path
from bench.waiting import listens
from bench.webhooks import SECRET, SENTENCE, USERS, ids_of, request_of, text_event
from linedesk.compose.private_mongod import free_port

Urls = Mapping[str, str]
Drain = Callable[[int, int], Mapping[str, float]]
"""Completes a number of jobs of a number of conversations; its seconds, and with "state" the ms of
processor time of its worker and of its database.
"""
DRAIN_SECONDS = 300.0
WAIT_SECONDS = 10.0
"""For jobs to start, after the last POST."""
WARM_UP = 200
"""POSTs before those that are measured."""


@contextmanager
def enqueue_routes(folder: Path) -> Iterator[dict[str, Desk]]:
    """The server of each peer, one process each, on stores that no worker reads."""
    with _stores("enqueue") as urls, ExitStack() as stack:
        yield {
            name: Desk(stack.enter_context(_route(name, urls, folder)), lacks=LACKS[name])
            for name, _ in measured_for("enqueue")
        }


@contextmanager
def completions(
    folder: Path, *, work: str = "nothing", url: str = ""
) -> Iterator[dict[str, Drain]]:
    """By peer.

    One worker with 20 jobs at a time, which are stored before it starts; from the first start of a
    job until the peer's own store knows all as completed. With `work` "state" each job counts in
    the state of its conversation in the peer's database and posts one reply to `url`; only peers
    whose store is a database are measured so.
    """
    wanted = [name for name, peer in measured_for("complete") if work == "nothing" or peer.records]
    sent = url if work == "state" else ""
    with running({PEERS[name].server for name in wanted}) as urls:
        yield {name: partial(_drain, name, urls, folder, sent) for name in wanted}


@contextmanager
def latency(folder: Path) -> Iterator[dict[str, Callable[[float, int], list[float]]]]:
    """By peer: a function of a rate in POSTs per second and of their number.

    It gives the milliseconds from when each POST was due to be sent until its job started in a
    running worker, in ascending order. A job that has not started 10 s after the last POST counts
    with its wait until then, which is less than it will be.
    """
    with _stores("latency") as urls:
        yield {name: partial(_delays, name, urls, folder) for name, _ in measured_for("latency")}


def _stores(what: str) -> AbstractContextManager[Urls]:
    return running({peer.server for _, peer in measured_for(what)} - {""})


def _environ(name: str, urls: Urls, log: Path, **more: str) -> dict[str, str]:
    """The environment of a peer's process, with the address of its store."""
    peer, number = PEERS[name], list(PEERS).index(name)
    store = urls.get(peer.server, "")
    # A database of its own for each.
    store += {"redis": f"/{number}", "postgresql": f"/bench_{number}"}.get(peer.server, "")
    return {
        **os.environ,
        "PYTHONPATH": python_path(),
        "PEER_STORE": store,
        "PEER_OPTION": peer.option,
        jobs.STARTED: str(log),
        **more,
    }


def _module(module: str, *words: str) -> list[str]:
    return [sys.executable, "-m", f"bench.peers.{module}", *words]


def _new_log(name: str, folder: Path) -> Path:
    log = folder / f"{name}-started.log"
    log.unlink(missing_ok=True)
    return log


@contextmanager
def _route(name: str, urls: Urls, folder: Path) -> Iterator[int]:
    port = free_port()
    environ = _environ(name, urls, _new_log(name, folder), PEER_SECRET=SECRET)
    command = _module("route", PEERS[name].module, str(port))
    output = folder / f"{name}-route.log"
    ready = partial(listens, port)
    with child(f"the route of {name}", command, ready=ready, log=output, env=environ, cwd=ROOT):
        yield port


def _drain(
    name: str, urls: Urls, folder: Path, url: str, number: int, keys: int
) -> Mapping[str, float]:
    environ = _environ(name, urls, _new_log(name, folder), PEER_SEND_URL=url)
    command = _module("drain", PEERS[name].module, str(number), str(keys))
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


def _delays(name: str, urls: Urls, folder: Path, rate: float, events: int) -> list[float]:
    with _route(name, urls, folder) as port, _worker(name, urls, folder):
        log = folder / f"{name}-started.log"
        _sent_and_started(name, port, log, rate, range(WARM_UP))
        return _sent_and_started(name, port, log, rate, range(WARM_UP, WARM_UP + events))


def _sent_and_started(name: str, port: int, log: Path, rate: float, numbers: range) -> list[float]:
    made = [text_event(number % USERS, SENTENCE) for number in numbers]
    due = SteadySender(port).send([request_of(event) for event in made], rate)
    ids = ids_of(made)
    started = _started(name, log, set(ids))
    return sorted((started[id_] - at) * 1000 for id_, at in zip(ids, due, strict=True))


@contextmanager
def _worker(name: str, urls: Urls, folder: Path) -> Iterator[None]:
    """The peer's worker, unless the route's own process runs the jobs."""
    if not PEERS[name].server:
        yield
        return
    environ = _environ(name, urls, folder / f"{name}-started.log")
    command = _module("worker", PEERS[name].module)
    output = folder / f"{name}-worker.log"
    with child(f"the worker of {name}", command, log=output, env=environ, cwd=ROOT):
        yield


def _started(name: str, log: Path, wanted: set[str]) -> dict[str, float]:
    """When each job started; the present time for jobs that wait too long, since the peer cannot
    keep up.

    Raises BenchFailed if jobs stopped starting.
    """
    deadline, still, number = time.monotonic() + WAIT_SECONDS, 0.0, -1
    started: dict[str, float] = {}
    while wanted - started.keys() and time.monotonic() < deadline:
        if len(started) != number:
            number, still = len(started), time.monotonic()
        time.sleep(0.1)
        started = jobs.started(log)
    if wanted - started.keys() and time.monotonic() - still > WAIT_SECONDS / 2:
        raise BenchFailed(f"{name}: {len(wanted - started.keys())} jobs did not start")
    return dict.fromkeys(wanted, time.monotonic()) | started
