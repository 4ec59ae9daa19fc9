"""Handlers on the dispatcher's own threads against handlers in worker processes over RabbitMQ.

All variants handle the same stored events, by turns in one run: with the dispatcher's own threads,
and with 1, 2 and 4 worker processes that have as many threads together. One bot's handler sleeps
50 ms, another one's computes for 20 ms. Then the way of one job there and back, one at a time, and
how many jobs a second go there and back. Run it as `python bench/workers.py AMQP_URL`, with the URL
of a RabbitMQ on this machine that nothing else uses.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from handout import Bench
from linebot.v3.webhooks import MessageEvent
from rich.console import Console
from rich.table import Table

from jobworker.assembly import BotWorker, LineSettings
from jobworker.remote.amqp import AmqpBroker, declare
from jobworker.remote.leader import Workers
from linedesk import Bot, Talk
from linedesk.compose.private_mongod import EmbeddedMongod, server_version
from linedesk.store.client import connect

THREADS = 20
SLEEP_SECONDS, COMPUTE_SECONDS = 0.05, 0.02
SINGLE_JOBS, MANY_JOBS = 500, 6_000

sleeping, computing, idle = Bot(), Bot(), Bot()


@sleeping.add(MessageEvent)
def sleep(event: MessageEvent, talk: Talk) -> None:
    """As one that waits for another service."""
    time.sleep(SLEEP_SECONDS)


@computing.add(MessageEvent)
def compute(event: MessageEvent, talk: Talk) -> None:
    """So much of a processor."""
    until = time.thread_time() + COMPUTE_SECONDS
    while time.thread_time() < until:
        sum(range(100))


@idle.add(MessageEvent)
def nothing(event: MessageEvent, talk: Talk) -> None:
    """Decides nothing."""


@contextmanager
def worker_processes(url: str, bot: str, number: int, threads: int) -> Iterator[None]:
    """So many `linedesk worker`, each with its part of the threads."""
    environ = os.environ | {
        "AMQP_URL": url,
        "BOT": f"workers:{bot}",
        "WORKER_THREADS": str(threads // number),
        "LOG_LEVEL": "error",
    }
    command = [sys.executable, "-m", "linedesk", "worker"]
    folder = Path(__file__).parent
    running = [subprocess.Popen(command, env=environ, cwd=folder) for _ in range(number)]
    try:
        yield
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(30)


class WorkerBench(Bench):
    """Drains the same events with handlers in one place or another."""

    @property
    def events(self) -> int:
        """How many each variant handles."""
        return self._events

    def local(self, bot: Bot) -> float:
        """Events per second with the dispatcher's own threads."""
        return self.drained(partial(self._desk, bot, None))

    def remote(self, url: str, bot: str, number: int) -> float:
        """Events per second with so many processes."""
        broker = partial(AmqpBroker, [url], name="bench")
        with worker_processes(url, bot, number, THREADS):
            wait_for_workers(url, number)
            return self.drained(partial(self._desk, None, broker))

    def drained(self, make_worker: Callable[..., Any]) -> float:
        """Events per second. A leader that has ended must not go on listening to workers, and a
        new one knows them after a second.
        """
        made: list[BotWorker] = []

        def make(**tools: Any) -> BotWorker:
            made.append(make_worker(**tools))
            return made[0]

        try:
            return self.dispatched(make, after_first=True)
        finally:
            made[0].close()

    def _desk(self, bot: Bot | None, connect: Any, **tools: Any) -> BotWorker:
        line = LineSettings("http://127.0.0.1:9", "unused", interval_seconds=0, threads=THREADS)
        return BotWorker(bot, self._database, line, tries=1, connect=connect, **tools)


@contextmanager
def leader(url: str) -> Iterator[Workers]:
    """A leader without a dispatcher."""
    workers = Workers(partial(AmqpBroker, [url], name="bench"), places=lambda jobs: None)
    workers.begin(1)
    try:
        yield workers
    finally:
        workers.close()


def wait_for_workers(url: str, number: int) -> None:
    """Wait until so many workers are there, as a leader that goes again sees it."""
    with leader(url) as workers:
        _until(workers, number)


def _until(workers: Workers, number: int) -> None:
    while sum(row["state"] == "working" for row in workers.rows()) < number:
        time.sleep(0.05)


def relayed(url: str) -> tuple[list[float], float]:
    """Milliseconds of single jobs there and back, and jobs a second of many at a time."""
    with worker_processes(url, "idle", 1, THREADS), leader(url) as workers:
        _until(workers, 1)
        rows = workers.rows()
        single = []
        for number in range(SINGLE_JOBS):
            began = time.monotonic()
            _one_job(workers, rows[0]["bot"], number)
            single.append((time.monotonic() - began) * 1000)
        began = time.monotonic()
        threads = [
            threading.Thread(
                target=lambda: [
                    _one_job(workers, rows[0]["bot"], n) for n in range(MANY_JOBS // (THREADS - 2))
                ]
            )
            for _ in range(THREADS - 2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return single, MANY_JOBS / (time.monotonic() - began)


def _one_job(workers: Workers, version: str, number: int) -> None:
    key = f"main/U{number % 1000:032d}"
    attempt = workers.take(
        version=version, key=key, event_id="E", resume=lambda: None, died_with=set()
    )
    moment = "2026-11-23T00:00:00.000Z"
    event = {
        "type": "message",
        "message": {"type": "text", "id": "1", "quoteToken": "q" * 40, "text": "今日は" * 5},
        "webhookEventId": f"01BENCH{number:019d}",
        "deliveryContext": {"isRedelivery": False},
        "timestamp": 1_700_000_000_000,
        "source": {"type": "user", "userId": key[5:]},
        "replyToken": f"{number:032d}",
        "mode": "active",
    }
    job = {
        "type": "job",
        "contract": 1,
        "attempt": attempt.id,
        "epoch": 1,
        "rule": "0",
        "try": 1,
        "limitSeconds": 60.0,
        "now": moment,
        "channel": "main",
        "key": key[5:],
        "eventId": f"01BENCH{number:019d}",
        "events": [event],
        "together": False,
        "accepted": moment,
        "replyToken": f"{number:032d}",
        "state": None,
        "data": {},
        "friend": True,
        "profile": None,
        "quota": {"limit": None, "used": None, "closed": False},
    }
    workers.run(attempt, job)


def compared(bench: WorkerBench, url: str, rounds: int) -> Iterator[tuple[str, list[str]]]:
    """The rows of the table: events a second, with the ratio to the dispatcher's own threads, and
    the milliseconds of the dispatcher's processor that an event takes.
    """
    for name, bot in (("sleeps 50 ms", "sleeping"), ("computes 20 ms", "computing")):
        found: dict[int, list[tuple[float, float]]] = {}
        for _ in range(rounds):
            for number in (0, 1, 2, 4):
                before = time.process_time()
                rate = bench.remote(url, bot, number) if number else bench.local(globals()[bot])
                spent = (time.process_time() - before) * 1000 / bench.events
                found.setdefault(number, []).append((rate, spent))
        rates = [statistics.median(one[0] for one in ones) for ones in found.values()]
        local, remote = (statistics.median(one[1] for one in found[number]) for number in (0, 4))
        cells = [f"{rate:.0f} ({rate / rates[0]:.2f})" for rate in rates]
        yield name, [*cells, f"{local:.2f}, {remote:.2f}"]


def main() -> None:
    """Measure by turns and print tables."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("url", help="AMQP_URL of a RabbitMQ on this machine")
    options.add_argument("--events", type=int, default=3_000)
    options.add_argument("--rounds", type=int, default=3)
    chosen = options.parse_args()
    console = Console()
    declare([chosen.url])
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedMongod(Path(folder)) as mongod,
        connect(mongod.uri, app_name="bench") as client,
    ):
        bench = WorkerBench(mongod.uri, client, chosen.events)
        table = Table(
            title=f"events a second, {THREADS} threads in all, MongoDB "
            f"{server_version(mongod.uri)}, medians of {chosen.rounds} rounds"
        )
        headings = ("handler", "own threads", "1 worker", "2 workers", "4 workers", "ms an event")
        for heading in headings:
            table.add_column(heading, justify="left" if heading == "handler" else "right")
        for name, cells in compared(bench, chosen.url, chosen.rounds):
            table.add_row(name, *cells)
        console.print(table)
    single, rate = relayed(chosen.url)
    quantiles = statistics.quantiles(single, n=100)
    console.print(
        f"one job there and back: p50 {quantiles[49]:.1f} ms, p99 {quantiles[98]:.1f} ms; "
        f"{rate:.0f} jobs a second with {THREADS - 2} at a time"
    )


if __name__ == "__main__":
    main()
