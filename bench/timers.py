"""The delay of timers, and the costs of waiting ones: ten against a hundred thousand.

A real dispatcher on a real mongod. First one timer after the other: from the due time in the row to
the start of the handler. Then one timer a second fires while the others wait: the dispatcher's
memory and processor time.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pymongo.database import Database
from rich.console import Console

from bench.processes import START_SECONDS, cpu_seconds, memory_mb
from bench.report import BenchFailed, Figures, Report, by_turns, percentiles
from bench.stack import environ_of, process, timer_row
from bench.waiting import until
from dispatcher.timers import READ_SECONDS
from linedesk.compose.private_mongod import EmbeddedMongod, server_version
from linedesk.setup.collections import create_collections
from linedesk.store.client import connect
from linedesk.store.documents import RECVQ, SCHEDULE, Document

LOG_NAME = "STOPWATCH_LOG"
PROMISED_MS = 50.0
FEW = 10
# The dispatcher has found rows of other processes by then.
KNOWN_AFTER = timedelta(seconds=READ_SECONDS + 2)
# A start loads modules and reads all rows once, which is not part of waiting.
SETTLE_SECONDS = 5.0
# The time limit for all timers after the last one was due.
LATE_SECONDS = 30.0


def stopwatch_bot() -> object:
    """The bot that the dispatcher runs: it writes down how late its timers are."""
    from linedesk import Bot, Talk, TimerEvent

    bot = Bot()
    log = Path(os.environ[LOG_NAME]).open("a", buffering=1)  # noqa: SIM115  # open as long as the bot

    @bot.timer("bench")
    def note(event: TimerEvent, talk: Talk) -> None:
        late_ms = time.time() * 1000 - talk.raw["timestamp"]
        log.write(f"{late_ms}\n")

    return bot


def a_row(number: int, run_at: datetime) -> Document:
    """A timer as the jobworker sets it, each of a conversation of its own."""
    exact_to_ms = run_at.replace(microsecond=run_at.microsecond // 1000 * 1000)
    return timer_row(f"U{number:032x}", exact_to_ms, data={"seconds": 180})


def running(
    module: str, uri: str, database: str, **settings: str
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """One of linedesk's processes, which never calls LINE."""
    environ = environ_of(uri, MONGODB_DATABASE=database, LOG_LEVEL="warning", **settings)
    return process(module, environ, stderr=None)


def late_ms(database: Database[Any], uri: str, folder: Path, *, timers: int) -> list[float]:
    """Milliseconds from the due time of each timer to the start of its handler, in order."""
    log = folder / f"{database.name}.log"
    log.touch()
    chance = random.Random(1)
    settings = {"BOT": "bench.timers:bot", LOG_NAME: str(log)}
    with running("dispatcher", uri, database.name, **settings) as dispatcher:
        database[SCHEDULE].insert_one(a_row(0, datetime.now(UTC)))
        until(
            log.read_text,
            "a first timer fires",
            seconds=START_SECONDS,
            every=0.1,
            process=dispatcher,
        )
        due = datetime.now(UTC) + KNOWN_AFTER
        rows = []
        for number in range(timers):
            due += timedelta(seconds=chance.uniform(0.01, 0.09))
            rows.append(a_row(number + 1, due))
        database[SCHEDULE].insert_many(rows)
        until(
            lambda: len(log.read_text().splitlines()) > timers,
            "all timers fire",
            seconds=timers * 0.09 + LATE_SECONDS,
            every=0.05,
        )
    return sorted(float(line) for line in log.read_text().splitlines()[1:])


def cost(database: Database[Any], uri: str, *, waiting: int, seconds: int) -> Figures:
    """Memory and processor of a dispatcher with `waiting` timers; one more fires each second."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    database[SCHEDULE].insert_many(
        [a_row(n, tomorrow + timedelta(seconds=n)) for n in range(waiting)]
    )
    pause = threading.Event()
    settings = {"BOT": "bench.timers:bot", LOG_NAME: os.devnull}
    with running("dispatcher", uri, database.name, **settings) as dispatcher:
        pause.wait(SETTLE_SECONDS)
        due = datetime.now(UTC) + KNOWN_AFTER
        soon = [a_row(waiting + n, due + timedelta(seconds=n)) for n in range(seconds)]
        database[SCHEDULE].insert_many(soon)
        pause.wait(KNOWN_AFTER.total_seconds())
        before = cpu_seconds(dispatcher.pid)
        pause.wait(seconds)
        used = cpu_seconds(dispatcher.pid) - before
        resident = memory_mb(dispatcher.pid)
    rang = database[RECVQ].count_documents({"event.type": "timer"})
    if rang < seconds - 1:
        raise BenchFailed(f"only {rang} of {seconds} timers fired")
    return {"memory MB": resident, "processor ms a second": used / seconds * 1000}


def add_options(parser: argparse.ArgumentParser) -> None:
    """This bench's own."""
    parser.set_defaults(rounds=3)
    parser.add_argument("--timers", type=int, default=500)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--seconds", type=int, default=20, help="of each dispatcher (%(default)s)")


def run(options: argparse.Namespace, console: Console) -> list[Report]:
    """Both tables; each measurement has a database of its own."""
    numbers = itertools.count()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        mongod = stack.enter_context(EmbeddedMongod(folder / "mongod"))
        client = stack.enter_context(connect(mongod.uri, app_name="bench"))

        @contextmanager
        def database() -> Iterator[Database[Any]]:
            fresh = client[f"timers-{next(numbers)}"]
            create_collections(fresh)
            yield fresh
            client.drop_database(fresh.name)

        def late() -> Figures:
            with database() as one:
                found = late_ms(one, mongod.uri, folder, timers=options.timers)
            within = sum(value <= PROMISED_MS for value in found) / len(found)
            return {**percentiles(found), f"within {PROMISED_MS:.0f} ms %": 100 * within}

        def costs(waiting: int) -> Figures:
            with database() as one:
                return cost(one, mongod.uri, waiting=waiting, seconds=options.seconds)

        lateness = by_turns({"due to handler": late}, options.rounds, console)
        few, many = (f"{waiting:,} timers wait" for waiting in (FEW, options.waiting))
        variants = {few: lambda: costs(FEW), many: lambda: costs(options.waiting)}
        dispatcher = by_turns(variants, options.rounds, console)
        versions = {"MongoDB": server_version(mongod.uri)}
    return [
        Report(f"how late {options.timers:,} timers are", lateness, versions=versions),
        Report("a dispatcher that fires one a second", dispatcher, few, versions=versions),
    ]


bot = stopwatch_bot() if LOG_NAME in os.environ else None
