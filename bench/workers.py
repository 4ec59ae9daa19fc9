"""Handlers on the dispatcher's own threads against handlers in worker processes over RabbitMQ.

All variants handle the same stored events, by turns in one run: with the dispatcher's own threads,
and with 1, 2 and 4 worker processes that have as many threads together. One bot's handler sleeps 50
ms, another one's computes for 20 ms. Then the round trip of single jobs, and the number of round
trips a second. The bench starts its own RabbitMQ from Debian's package rabbitmq-server.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from linebot.v3.webhooks import MessageEvent
from rich.console import Console

from bench.handout import THREADS, Bench
from bench.processes import START_SECONDS, child
from bench.report import BenchFailed, Figures, Report, by_turns, percentiles
from bench.stack import python_path
from bench.waiting import until
from bench.webhooks import text_event
from jobworker.remote.amqp import AmqpBroker
from jobworker.remote.leader import Workers
from linedesk import Bot, Talk
from linedesk.compose.private_mongod import EmbeddedMongod, server_version
from linedesk.store.client import connect
from tests.rabbitmq import declare, is_installed, throwaway_rabbitmq

SLEEP_SECONDS, COMPUTE_SECONDS = 0.05, 0.02
SINGLE_JOBS, MANY_JOBS = 500, 6_000
OWN_THREADS = "own threads"

sleeping, computing, idle = Bot(), Bot(), Bot()


@sleeping.add(MessageEvent)
def sleep(event: MessageEvent, talk: Talk) -> None:
    """Sleep like a handler that waits for another service."""
    time.sleep(SLEEP_SECONDS)


@computing.add(MessageEvent)
def compute(event: MessageEvent, talk: Talk) -> None:
    """Use the processor."""
    until = time.thread_time() + COMPUTE_SECONDS
    while time.thread_time() < until:
        sum(range(100))


@idle.add(MessageEvent)
def nothing(event: MessageEvent, talk: Talk) -> None:
    """Decides nothing."""


@contextmanager
def worker_processes(url: str, bot: str, number: int, threads: int) -> Iterator[None]:
    """`number` processes of `linedesk worker`, each with its part of the threads."""
    environ = os.environ | {
        "AMQP_URL": url,
        "BOT": f"bench.workers:{bot}",
        "PYTHONPATH": python_path(),
        "WORKER_THREADS": str(threads // number),
        "LOG_LEVEL": "error",
    }
    command = [sys.executable, "-m", "linedesk", "worker"]
    with ExitStack() as stack:
        for _ in range(number):
            worker = child("a worker", command, env=environ, stdout=None, stderr=None)
            stack.enter_context(worker)
        yield


class WorkerBench(Bench):
    """Drains the same events with handlers in one place or another."""

    @property
    def events(self) -> int:
        """How many each variant handles."""
        return self._events

    def local(self, bot: Bot) -> float:
        """Events per second with the dispatcher's own threads."""
        return self.dispatched(partial(self.desk, bot), after_first=True)

    def remote(self, url: str, bot: str, number: int) -> float:
        """Events per second with `number` processes, which a new leader finds after a second."""
        broker = partial(AmqpBroker, [url], name="bench")
        with worker_processes(url, bot, number, THREADS):
            wait_for_workers(url, number)
            desk = partial(self.desk, None, workers=Workers(broker))
            return self.dispatched(desk, after_first=True)


@contextmanager
def leader(url: str) -> Iterator[Workers]:
    """A leader without a dispatcher."""
    workers = Workers(partial(AmqpBroker, [url], name="bench"))
    workers.begin(1, lambda jobs: None)
    try:
        yield workers
    finally:
        workers.close()


def wait_for_workers(url: str, number: int) -> None:
    """Wait until a temporary leader sees `number` workers."""
    with leader(url) as workers:
        _until(workers, number)


def _until(workers: Workers, number: int) -> None:
    until(
        lambda: sum(row["state"] == "working" for row in workers.rows()) >= number,
        f"{number} workers are there",
        seconds=START_SECONDS,
    )


def relayed(url: str) -> Figures:
    """Jobs a second of many at a time, and milliseconds of single jobs there and back."""
    with worker_processes(url, "idle", 1, THREADS), leader(url) as workers:
        _until(workers, 1)
        rows = workers.rows()
        single = []
        for number in range(SINGLE_JOBS):
            began = time.monotonic()
            _one_job(workers, rows[0]["bot"], number)
            single.append((time.monotonic() - began) * 1000)
        began = time.monotonic()
        with ThreadPoolExecutor(THREADS - 2) as threads:
            jobs = [threads.submit(_one_job, workers, rows[0]["bot"], n) for n in range(MANY_JOBS)]
            for job in jobs:
                job.result()
        rate = MANY_JOBS / (time.monotonic() - began)
    return {"jobs/s": rate, **percentiles(single)}


def _one_job(workers: Workers, version: str, number: int) -> None:
    event = text_event(number % 1000, "今日は" * 5)
    key, event_id = event["source"]["userId"], event["webhookEventId"]
    attempt = workers.take(version=version, key=f"main/{key}", event_id="E", died_with=set())
    moment = "2026-11-23T00:00:00.000Z"
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
        "key": key,
        "eventId": event_id,
        "events": [event],
        "together": False,
        "accepted": moment,
        "replyToken": event["replyToken"],
        "state": None,
        "data": {},
        "friend": True,
        "profile": None,
        "quota": {"limit": None, "used": None, "closed": False},
    }
    workers.run(attempt, job)


def handled(bench: WorkerBench, url: str, bot: str, processes: int) -> Figures:
    """Events a second with `processes` worker processes, or with own threads, and the dispatcher's
    processor time for an event.
    """
    before = time.process_time()
    rate = bench.remote(url, bot, processes) if processes else bench.local(globals()[bot])
    spent = (time.process_time() - before) * 1000 / bench.events
    return {"events/s": rate, "dispatcher's processor ms": spent}


def add_options(parser: argparse.ArgumentParser) -> None:
    """This bench's own."""
    parser.set_defaults(rounds=3)
    parser.add_argument("--events", type=int, default=3_000)


def run(options: argparse.Namespace, console: Console) -> list[Report]:
    """Both tables."""
    if not is_installed():
        raise BenchFailed("RabbitMQ is not installed: apt-get install rabbitmq-server")
    with (
        tempfile.TemporaryDirectory() as folder,
        throwaway_rabbitmq() as rabbitmq,
        EmbeddedMongod(Path(folder)) as mongod,
        connect(mongod.uri, app_name="bench") as client,
    ):
        url = rabbitmq.url
        declare(rabbitmq)
        bench = WorkerBench(mongod.uri, client, options.events, console)
        places = {OWN_THREADS: 0, "1 worker": 1, "2 workers": 2, "4 workers": 4}
        rows = [
            row
            for name, bot in (("sleeps 50 ms", "sleeping"), ("computes 20 ms", "computing"))
            for row in by_turns(
                {place: partial(handled, bench, url, bot, n) for place, n in places.items()},
                options.rounds,
                console,
                case={"handler": name},
            )
        ]
        there_and_back = by_turns({"one worker": partial(relayed, url)}, options.rounds, console)
        versions = {"MongoDB": server_version(mongod.uri)}
    return [
        Report(
            f"{options.events:,} events, {THREADS} threads in all",
            rows,
            OWN_THREADS,
            versions=versions,
        ),
        Report(
            f"jobs there and back, {THREADS - 2} at a time and one at a time",
            there_and_back,
            versions=versions,
        ),
    ]
