"""Other task queues alone: stored jobs, completed jobs and latency, and the guarantees that each
lacks.

Each is set up as its own documentation advises (bench/peers/). Stored: `POST /callback` of the
same FastAPI route, which stores one job before it answers. Completed: jobs that do nothing, by one
worker with 20 at a time, until the store knows them as completed. Latency: from when a POST is due
until its job starts.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from rich.console import Console

from bench.desks import Desk
from bench.load import send_as_answered
from bench.peers import measure
from bench.peers.names import LACKS
from bench.peers.servers import versions
from bench.report import Figures, Report, Row, by_turns, percentiles

WARM_UP_SECONDS = 1.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """This bench's own."""
    parser.set_defaults(rounds=3)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=3.0, help="of load, each (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2_000, help="to complete (%(default)s)")
    parser.add_argument("--keys", type=int, default=1_000, help="conversations (%(default)s)")
    parser.add_argument("--rate", type=float, default=100.0, help="POSTs/s (%(default)s)")
    parser.add_argument("--events", type=int, default=500, help="at this rate (%(default)s)")


def run(options: argparse.Namespace, console: Console) -> list[Report]:
    """One report for each of the three."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with measure.enqueue_routes(folder) as desks:
            for desk in desks.values():
                send_as_answered(desk.port, connections=8, seconds=WARM_UP_SECONDS)
            stored = by_turns(
                {n: partial(_stored, desk, options) for n, desk in desks.items()},
                options.rounds,
                console,
            )
        with measure.completions(folder) as drains:
            completed = by_turns(
                {n: partial(_completed, drain, options) for n, drain in drains.items()},
                options.rounds,
                console,
            )
        with measure.latency(folder) as delays:
            waited = by_turns(
                {n: partial(_waited, delay, options) for n, delay in delays.items()},
                options.rounds,
                console,
            )
    return [
        _report(f"stored by a route, {options.connections} connections", stored),
        _report(f"{options.jobs:,} jobs completed, {options.keys:,} conversations", completed),
        _report(f"POST to the start of its job, {options.rate:.0f} POSTs/s", waited),
    ]


def _stored(desk: Desk, options: argparse.Namespace) -> Figures:
    answered = send_as_answered(desk.port, connections=options.connections, seconds=options.seconds)
    return answered.figures


def _completed(drain: measure.Drain, options: argparse.Namespace) -> Figures:
    return {"jobs/s": options.jobs / drain(options.jobs, options.keys)["seconds"]}


def _waited(delay: Callable[[float, int], list[float]], options: argparse.Namespace) -> Figures:
    return percentiles(delay(options.rate, options.events))


def _report(title: str, rows: Iterable[Row]) -> Report:
    return Report(title, list(rows), lacks=LACKS, versions=versions())
