"""Accepted webhooks per second, by connections and front desk processes, beside simpler routes.

All run by turns beside one mongod; the load comes from a process of its own over keep-alive
connections, as fast as it is answered. Those that are not linedesk write no log lines; linedesk
writes its line for each request. After each load the stored events of linedesk and of the naive
insert are counted.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from pymongo.database import Database
from rich.console import Console

from bench import desks
from bench.desks import CHECKING, INSERT, NAIVE, STORED, Desk
from bench.load import send_as_answered
from bench.report import BenchFailed, Figures, Report, by_turns, server_version
from bench.stack import DATABASE
from linedesk.setup.collections import create_collections
from linedesk.setup.private_mongod import EmbeddedMongod
from linedesk.store.client import connect
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import RECVQ

VARIANTS = (CHECKING, STORED, INSERT)
COUNTED = {STORED: RECVQ, INSERT: NAIVE}
# No dispatcher reads here, and the front desk overwrites nothing that is unread.
RECVQ_BYTES = 8_192 * MEGABYTE
WARM_UP_SECONDS = 1.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """This bench's own."""
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--desks", type=int, nargs="+", default=[1, 2], help="processes")
    parser.add_argument("--seconds", type=float, default=3.0, help="of load, each (%(default)s)")
    parser.add_argument(
        "--only", nargs="+", choices=VARIANTS, default=VARIANTS, help="of linedesk and the routes"
    )


def run(options: argparse.Namespace, console: Console) -> list[Report]:
    """One report for each number of processes."""
    return [
        measured(
            options.only,
            processes,
            options.connections,
            seconds=options.seconds,
            rounds=options.rounds,
            console=console,
        )
        for processes in options.desks
    ]


def measured(
    variants: Sequence[str],
    processes: int,
    connections: Sequence[int],
    *,
    seconds: float,
    rounds: int,
    console: Console,
) -> Report:
    """All variants by turns at each number of connections."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        mongod = stack.enter_context(EmbeddedMongod(folder / "mongod"))
        database = stack.enter_context(connect(mongod.uri, app_name="bench"))[DATABASE]
        create_collections(database, capped_bytes=RECVQ_BYTES)
        started: dict[str, Desk] = {
            variant: stack.enter_context(
                desks.desk(variant, mongod.uri, folder, processes=processes)
            )
            for variant in variants
        }
        for one in started.values():
            send_as_answered(one.port, connections=8, seconds=WARM_UP_SECONDS)
        rows = [
            row
            for number in connections
            for row in by_turns(
                {
                    variant: partial(_load, variant, one, number, seconds, database)
                    for variant, one in started.items()
                },
                rounds,
                console,
                case={"connections": number},
            )
        ]
        versions = {"MongoDB": server_version(mongod.uri)}
    said = "1 process" if processes == 1 else f"{processes} processes on one port"
    return Report(
        f"accepted webhooks, {said}",
        rows,
        CHECKING if CHECKING in started else "",
        lacks={variant: one.lacks for variant, one in started.items()},
        versions=versions,
        settings={"seconds": seconds},
    )


def _load(
    variant: str, one: Desk, connections: int, seconds: float, database: Database[Any]
) -> Figures:
    collection = database[COUNTED[variant]] if variant in COUNTED else None
    before = 0 if collection is None else collection.estimated_document_count()
    answered = send_as_answered(one.port, connections=connections, seconds=seconds)
    if collection is not None:
        stored = collection.estimated_document_count() - before
        if stored != answered.answers:
            raise BenchFailed(f"{answered.answers} were answered 200, and {stored} are stored")
    return answered.figures
