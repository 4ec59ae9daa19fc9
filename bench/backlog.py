"""A backlog: memory of the dispatcher and events a second while it catches up.

The documents wait in recvq when the real dispatcher process starts, as after a stop of some hours.
The handler only writes down when it starts. The rate counts from the first handler to the last one;
the memory is the process's peak (VmHWM), beside that of a start without a backlog.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from linebot.v3.webhooks import MessageEvent
from pymongo.database import Database
from rich.console import Console

from bench.processes import memory_mb
from bench.report import BenchFailed, Figures, Report, by_turns
from bench.stack import environ_of, mongod_and_database, process, store
from bench.started import LOG_NAME, Started, started_log
from bench.waiting import until
from bench.webhooks import text_event
from linedesk import Bot, Talk
from linedesk.compose.private_mongod import EmbeddedMongod, server_version
from linedesk.store.collections import DISPATCHER
from linedesk.store.documents import PROGRESS
from linesim.model.deliveries import Event

KEYS = 1_000
DOCUMENTS = (1_000, 100_000)
LEAST_PER_SECOND = 50
"""Slower than this is a failure and not a figure."""

bot = Bot()
_started = started_log()


@bot.add(MessageEvent)
def handler(event: MessageEvent, talk: Talk) -> None:
    """Decides nothing."""
    _started(talk.event_id)


def drained(
    mongod: EmbeddedMongod,
    database: Database[Any],
    events: Sequence[Event],
    console: Console,
    bot: str,
) -> Figures:
    """Start the dispatcher before these events, and stop it once all are finished."""
    last = store(database, events, console)
    with tempfile.TemporaryDirectory() as folder:
        log = Started(Path(folder) / "started.log")
        settings = {"MONGODB_DATABASE": database.name, "BOT": bot, LOG_NAME: str(log.path)}
        with process("dispatcher", environ_of(mongod.uri, **settings)) as dispatcher:
            until(
                lambda: is_finished(database, last),
                "the documents are finished",
                seconds=30 + len(events) / LEAST_PER_SECOND,
                every=0.1,
                process=dispatcher,
            )
            peak = memory_mb(dispatcher.pid, peak=True)
        times = log.read().values()
    if len(times) < len(events):
        raise BenchFailed(f"{len(events) - len(times)} events did not reach the handler")
    return {"events/s": (len(times) - 1) / (max(times) - min(times) or 1), "peak MB": peak}


def is_finished(database: Database[Any], last: Any) -> bool:
    """Whether progress has reached this document."""
    row = database[PROGRESS].find_one({"_id": DISPATCHER}, {"after": 1}) or {}
    return row.get("after") is not None and row["after"] >= last


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
            return drained(mongod, database, events, console, "bench.backlog:bot")

        # A first run, so that the others continue from saved progress, as after a stop.
        one(1)
        variants = {f"{count:,} documents": partial(one, count) for count in options.documents}
        rows = by_turns(variants, options.rounds, console)
        versions = {"MongoDB": server_version(mongod.uri)}
    baseline = next(iter(variants))
    return [Report("A backlog is handed out", rows, baseline, versions=versions)]
