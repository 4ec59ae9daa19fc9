"""How late timers ring, and what waiting ones cost: ten against a hundred thousand.

The real processes on a real mongod. First a dispatcher, with its scheduler inside, and one timer
after the other: from the due time in the row to the start of the handler. Then a scheduler of its
own while one timer a second rings and the others wait: what it uses of memory and processor. Run it
as `python bench/timers.py`.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pymongo.database import Database
from rich.console import Console
from rich.progress import track
from rich.table import Table

from linedesk.compose import children
from linedesk.compose.private_mongod import EmbeddedMongod, server_version
from linedesk.store.client import connect
from linedesk.store.collections import create_collections
from linedesk.store.documents import RECVQ, SCHEDULE, Document
from linedesk.store.timers import timer_id

ROOT = Path(__file__).resolve().parent.parent
LOG_NAME = "STOPWATCH_LOG"
PROMISED_MS = 50.0
# A start loads modules, and looks once at all rows: no part of waiting.
SETTLE_SECONDS = 5.0


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
    key = f"U{number:032x}"
    return {
        "_id": timer_id("main", key, "bench"),
        "channel": "main",
        "key": key,
        "name": "bench",
        "n": 1,
        "runAt": run_at.replace(microsecond=run_at.microsecond // 1000 * 1000),
        "every": None,
        "data": {"seconds": 180},
        "source": {"type": "user", "userId": key},
        "setBy": f"E{number}",
    }


@contextmanager
def running(room: str, uri: str, database: str, **environ: str) -> Iterator[int]:
    """One of linedesk's processes; its pid."""
    settings = {
        **os.environ,
        "LINE_CHANNEL_ACCESS_TOKEN": "bench",
        # Nobody calls LINE here.
        "LINE_API_BASE": "http://127.0.0.1:9",
        "MONGODB_URI": uri,
        "MONGODB_DATABASE": database,
        "PYTHONPATH": f"{ROOT / 'bench'}{os.pathsep}{ROOT}",
        "LOG_LEVEL": "warning",
        **environ,
    }
    process = children.start(
        [sys.executable, "-m", room], env=settings, stdout=subprocess.DEVNULL, stderr=None
    )
    try:
        yield process.pid
    finally:
        children.stop(process, timeout_seconds=20)


def late_ms(database: Database[Any], uri: str, folder: Path, *, timers: int) -> list[float]:
    """Milliseconds from the due time of each timer to the start of its handler, in order."""
    log = folder / "late.log"
    log.touch()
    pause, chance = threading.Event(), random.Random(1)
    with running("dispatcher", uri, database.name, BOT="timers:bot", **{LOG_NAME: str(log)}):
        database[SCHEDULE].insert_one(a_row(0, datetime.now(UTC)))
        while not log.read_text():
            pause.wait(0.1)
        due = datetime.now(UTC) + timedelta(seconds=2)
        rows = []
        for number in range(timers):
            due += timedelta(seconds=chance.uniform(0.01, 0.09))
            rows.append(a_row(number + 1, due))
        database[SCHEDULE].insert_many(rows)
        for number in track(range(timers), "timers, 20 a second"):
            while len(log.read_text().splitlines()) < number + 2:
                pause.wait(0.05)
    return sorted(float(line) for line in log.read_text().splitlines()[1:])


@dataclass(frozen=True)
class Cost:
    """Of a scheduler while it waits: memory in MB, and milliseconds of processor a second."""

    resident_mb: float
    processor_ms: float


def cost(database: Database[Any], uri: str, *, waiting: int, seconds: int) -> Cost:
    """Of a process that has so many timers to wait for, and rings one each second."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    database[SCHEDULE].insert_many(
        [a_row(n, tomorrow + timedelta(seconds=n)) for n in range(waiting)]
    )
    pause = threading.Event()
    with running("linedesk.scheduler", uri, database.name) as pid:
        pause.wait(SETTLE_SECONDS)
        due = datetime.now(UTC) + timedelta(seconds=1)
        soon = [a_row(waiting + n, due + timedelta(seconds=n)) for n in range(seconds)]
        database[SCHEDULE].insert_many(soon)
        before = processor_seconds(pid)
        pause.wait(seconds)
        used = processor_seconds(pid) - before
        resident = resident_mb(pid)
    rang = database[RECVQ].count_documents({})
    if rang < seconds - 1:
        raise SystemExit(f"only {rang} of {seconds} timers rang")
    return Cost(resident, used / seconds * 1000)


def processor_seconds(pid: int) -> float:
    """What a process has used of the processor (proc(5): utime and stime)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """Its resident memory (proc(5): VmRSS)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return float(status.partition("VmRSS:")[2].split()[0]) / 1024


def main() -> None:
    """Measure and print two tables."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--timers", type=int, default=500)
    options.add_argument("--waiting", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=int, default=20, help="of each round")
    chosen = options.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        mongod = stack.enter_context(EmbeddedMongod(folder / "mongod"))
        client = stack.enter_context(connect(mongod.uri, app_name="bench"))
        create_collections(client["late"])
        late = late_ms(client["late"], mongod.uri, folder, timers=chosen.timers)
        costs: dict[int, list[Cost]] = {10: [], chosen.waiting: []}
        for turn in track(range(chosen.rounds), "rounds"):
            for waiting, found in costs.items():
                database = client[f"waiting-{waiting}-{turn}"]
                create_collections(database)
                found.append(cost(database, mongod.uri, waiting=waiting, seconds=chosen.seconds))
                client.drop_database(database.name)
        version = server_version(mongod.uri)
    show(late, costs, version)


def show(late: list[float], costs: dict[int, list[Cost]], version: str) -> None:
    """The figures, as docs/performance.md has them."""
    cuts = statistics.quantiles(late, n=100)
    within = sum(value <= PROMISED_MS for value in late) / len(late)
    first = Table("p50 ms", "p90 ms", "p99 ms", "max ms", f"within {PROMISED_MS:.0f} ms")
    first.title = f"due to handler, {len(late)} timers, MongoDB {version}"
    figures = (cuts[49], cuts[89], cuts[98], late[-1])
    first.add_row(*(f"{value:.1f}" for value in figures), f"{within:.1%}")
    second = Table("timers waiting", "memory MB", "processor ms a second", title="scheduler")
    for waiting, found in costs.items():
        memory = statistics.median(one.resident_mb for one in found)
        processor = statistics.median(one.processor_ms for one in found)
        second.add_row(f"{waiting:,}", f"{memory:.1f}", f"{processor:.1f}")
    few, many = costs.values()
    ratios = [
        [getattr(b, name) / getattr(a, name) for a, b in zip(few, many, strict=True)]
        for name in ("resident_mb", "processor_ms")
    ]
    told = (f"{statistics.median(r):.2f} ({min(r):.2f} to {max(r):.2f})" for r in ratios)
    second.add_row("ratio", *told)
    Console().print(first, second)


if __name__ == "__main__":
    main()
else:
    bot = stopwatch_bot() if LOG_NAME in os.environ else None
