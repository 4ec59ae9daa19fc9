"""A backlog: memory of the dispatcher and events a second while it catches up.

The documents wait in recvq when the real dispatcher process starts, as after a stop of some hours.
The handler only writes down when it starts. The rate counts from the first handler to the last one;
the memory is the process's peak (VmHWM), beside that of a start without a backlog.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from linebot.v3.webhooks import MessageEvent
from pymongo.database import Database
from rich.console import Console
from rich.progress import track

from bench.posts import started_log, text_event
from bench.report import BenchFailed, Figures, Report, by_turns
from bench.stack import DATABASE, mongod_and_database, python_path
from linedesk import Bot, Talk
from linedesk.compose import children
from linedesk.compose.private_mongod import EmbeddedMongod, server_version
from linedesk.store.collections import DISPATCHER
from linedesk.store.documents import PROGRESS, RECVQ, make_document
from linedesk.store.insert import insert_documents
from linesim.model.deliveries import Event

KEYS = 1_000
BATCH = 1_000
DOCUMENTS = (1_000, 100_000)
STOP_SECONDS = 30.0
LEAST_PER_SECOND = 50
"""Slower than this is a failure and not a figure."""

bot = Bot()
_started = started_log()


@bot.add(MessageEvent)
def handler(event: MessageEvent, talk: Talk) -> None:
    """Decides nothing."""
    _started(talk.event_id)


def store(database: Database[Any], events: Sequence[Event], console: Console) -> Any:
    """Put the events into recvq, as a front desk would; the `_id` of the last one."""
    for first in track(range(0, len(events), BATCH), "storing", console=console, transient=True):
        now = datetime.now(UTC)
        batch = [
            make_document(event, channel="main", accept_time=now)
            for event in events[first : first + BATCH]
        ]
        insert_documents(database[RECVQ], batch, timeout_seconds=30)
    return batch[-1]["_id"]


@contextmanager
def dispatcher(uri: str, log: Path, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """The real process without anything around it; LINE is never called."""
    environ = {
        **os.environ,
        "LINE_CHANNEL_ACCESS_TOKEN": "unused",
        "LINE_API_BASE": "http://127.0.0.1:9",
        "LINE_API_DATA_BASE": "http://127.0.0.1:9",
        "MONGODB_URI": uri,
        "MONGODB_DATABASE": DATABASE,
        "BOT": "bench.backlog:bot",
        "STARTED_LOG": str(log),
        "PYTHONPATH": python_path(),
        **settings,
    }
    process = children.start(
        [sys.executable, "-m", "dispatcher"],
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        children.stop(process, timeout_seconds=STOP_SECONDS)


def drained(
    mongod: EmbeddedMongod,
    database: Database[Any],
    events: Sequence[Event],
    console: Console,
    **settings: str,
) -> Figures:
    """Start the dispatcher before these events, and stop it once all are finished."""
    last = store(database, events, console)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "started.log"
        settings = {"MONGODB_DATABASE": database.name, **settings}
        with dispatcher(mongod.uri, log, **settings) as process:
            wait_until_finished(
                database, process, last, seconds=30 + len(events) / LEAST_PER_SECOND
            )
            peak = peak_mb(process.pid)
        times = [float(line.split()[1]) for line in log.read_text().splitlines()]
    if len(times) < len(events):
        raise BenchFailed(f"{len(events) - len(times)} events did not reach the handler")
    return {"events/s": (len(times) - 1) / (max(times) - min(times) or 1), "peak MB": peak}


def wait_until_finished(
    database: Database[Any], process: subprocess.Popen[bytes], last: Any, *, seconds: float
) -> None:
    """Until progress says that everything up to this document is; raises BenchFailed."""
    deadline = time.monotonic() + seconds
    while not is_finished(database, last):
        if process.poll() is not None:
            raise BenchFailed(f"the dispatcher ended with {process.returncode}")
        if time.monotonic() > deadline:
            raise BenchFailed(f"the documents were not finished within {seconds:.0f} s")
        time.sleep(0.1)


def is_finished(database: Database[Any], last: Any) -> bool:
    """Whether progress has come to this document."""
    row = database[PROGRESS].find_one({"_id": DISPATCHER}, {"after": 1}) or {}
    return row.get("after") is not None and row["after"] >= last


def peak_mb(pid: int) -> float:
    """The most memory that the process has had (VmHWM of proc(5))."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def add_options(parser: argparse.ArgumentParser) -> None:
    """This bench's own."""
    parser.add_argument(
        "--documents",
        type=int,
        nargs="+",
        default=list(DOCUMENTS),
        help="1000000 takes ten minutes a round",
    )


def run(options: argparse.Namespace, console: Console) -> list[Report]:
    """Each backlog in its turn, on one mongod."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mongod_and_database(Path(folder)) as (mongod, database),
    ):

        def one(documents: int) -> Figures:
            events = [text_event(number % KEYS) for number in range(documents)]
            return drained(mongod, database, events, console)

        # A first run, so that the others go on from progress, as after a stop.
        one(1)
        variants = {f"{count:,} documents": partial(one, count) for count in options.documents}
        rows = by_turns(variants, options.rounds, console)
        versions = {"MongoDB": server_version(mongod.uri)}
    baseline = next(iter(variants))
    return [Report("A backlog is handed out", rows, baseline, versions=versions)]
