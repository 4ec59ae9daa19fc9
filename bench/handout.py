"""Events per second from recvq to a bot whose handler does nothing, against a bare loop.

Both read the same change stream on a real mongod, by turns: the bare loop only reads, the
dispatcher is the real process, which stands still while the events are stored. Its clock stops when
progress says that all are finished. `ms` is its processor time of an event.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linebot.v3.webhooks import MessageEvent
from pymongo.database import Database
from rich.console import Console

from bench.processes import cpu_seconds, until
from bench.report import Figures, Report, by_turns, server_version
from bench.stack import environ_of, frozen, mongod_and_database, process, store
from bench.webhooks import SENTENCE, text_event
from linedesk import Bot, Talk
from linedesk.setup.collections import create_collections
from linedesk.store.collections import DISPATCHER, MEGABYTE
from linedesk.store.documents import PROGRESS, RECVQ

KEYS = 1_000
LONGEST_SECONDS = 300.0

bot = Bot()


@bot.add(MessageEvent)
def handler(event: MessageEvent, talk: Talk) -> None:
    """Decides nothing."""


@dataclass(frozen=True)
class Queue:
    """One mongod with the dispatcher; the same number of events is stored each time."""

    database: Database[Any]
    dispatcher: int
    events: int

    def bare(self) -> Figures:
        """A loop that only reads; the dispatcher handles them afterwards."""
        watch = self.database[RECVQ].watch(batch_size=1_000)
        with frozen(self.dispatcher), watch as stream:
            last = self._store()
            began, cpu = time.monotonic(), time.process_time()
            for _ in range(self.events):
                stream.next()
            figures = self._figures(began, time.process_time() - cpu)
        self._until_finished(last)
        return figures

    def handled(self) -> Figures:
        """Through the dispatcher."""
        with frozen(self.dispatcher):
            last = self._store()
            began, cpu = time.monotonic(), cpu_seconds(self.dispatcher)
        self._until_finished(last)
        return self._figures(began, cpu_seconds(self.dispatcher) - cpu)

    def _store(self) -> Any:
        made = [text_event(number % KEYS, SENTENCE) for number in range(self.events)]
        return store(self.database, made, Console(quiet=True))

    def _until_finished(self, last: Any) -> None:
        progress = self.database[PROGRESS]

        def reached() -> bool:
            # A heartbeat of the dispatcher may follow the last event.
            after = (progress.find_one({"_id": DISPATCHER}, {"after": 1}) or {}).get("after")
            return after is not None and bool(after >= last)

        until(reached, "all events are finished", seconds=LONGEST_SECONDS)

    def _figures(self, began: float, cpu: float) -> Figures:
        rate = self.events / (time.monotonic() - began)
        return {"events/s": rate, "ms": 1000 * cpu / self.events}


def add_options(parser: argparse.ArgumentParser) -> None:
    """This bench's own."""
    parser.add_argument("--events", type=int, default=60_000)


def run(options: argparse.Namespace, console: Console) -> list[Report]:
    """Both by turns, after a first event that finds the dispatcher leading."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mongod_and_database(Path(folder)) as (mongod, database),
    ):
        create_collections(database, capped_bytes=512 * MEGABYTE)
        settings = {"BOT": "bench.handout:bot", "LOG_LEVEL": "error"}
        environ = environ_of(mongod.uri, **settings)
        with process("dispatcher", environ, stdout=None, stderr=None) as dispatcher:
            Queue(database, dispatcher.pid, 1).handled()
            queue = Queue(database, dispatcher.pid, options.events)
            variants = {"bare loop": queue.bare, "a bot that does nothing": queue.handled}
            rows = by_turns(variants, options.rounds, console)
        versions = {"MongoDB": server_version(mongod.uri)}
    title = f"{options.events:,} stored events, handed out"
    return [Report(title, rows, "bare loop", versions=versions)]
