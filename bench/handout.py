"""Events per second through the dispatcher, against a bare loop over the same change stream.

All variants drain the same stored events in the same run, by turns: the bare loop, the dispatcher
with a job that does nothing, and the dispatcher with a bot whose handler does nothing.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from bson.timestamp import Timestamp
from linebot.v3.webhooks import MessageEvent
from pymongo.database import Database
from rich.console import Console

from bench.report import Report, by_turns
from bench.stack import DATABASE, NOWHERE, store
from bench.webhooks import SENTENCE, text_event
from dispatcher.conversations.leader import Leader
from dispatcher.conversations.mailbox import Job, JobResult, Wait
from dispatcher.feed.change_stream import ChangeStreamFeed
from dispatcher.feed.rescan import Rescan
from dispatcher.lease import Lease
from dispatcher.process import Dispatcher, DispatcherLimits
from dispatcher.status import StatusReporter
from jobworker.assembly import BotSettings, BotWorker, LineSettings
from jobworker.remote.leader import Workers
from linedesk import Bot, Talk
from linedesk.compose.private_mongod import EmbeddedMongod, server_version
from linedesk.runtime.garbage import spare_the_collector
from linedesk.setup.collections import create_collections
from linedesk.store.client import Client, connect
from linedesk.store.collections import DISPATCHER, MEGABYTE
from linedesk.store.documents import PROGRESS, RECVQ, SCHEMA, Document
from linedesk.store.records.waits import Why

KEYS = 1_000
THREADS = 20


class NoJob:
    """A worker whose jobs do nothing."""

    def take_over(self, epoch: int) -> None:
        """Nothing is left by a predecessor."""

    def decide(self, job: Job) -> JobResult:
        """Decided without effects."""
        return JobResult.DONE

    def did_not_return(self, job: Job, stack: str) -> Wait:
        """No handler that could hang."""
        return Wait.because(Why.DEFERRED)

    def has_room(self) -> bool:
        """There are no outboxes."""
        return True

    def status(self) -> str:
        """Nothing waits."""
        return ""

    def waiting(self) -> list[Document]:
        """Nothing waits."""
        return []

    def workers(self) -> list[Document]:
        """There are no worker processes."""
        return []

    def broker(self) -> str:
        """There is none."""
        return ""

    def give_up_send(self, channel: str, key: str, effect_id: str) -> bool:
        """There are no sends."""
        return False

    def finish(self) -> None:
        """Nothing is left behind."""

    def stop(self) -> None:
        """Nothing is under way."""

    def close(self) -> None:
        """There are no connections."""


no_bot = Bot()


@no_bot.add(MessageEvent)
def no_handler(event: MessageEvent, talk: Talk) -> None:
    """Decides nothing."""


class BeforeAll(Rescan):
    """Makes a dispatcher's leadership begin before the events were stored, as usual."""

    began: Timestamp

    def now(self) -> Timestamp:
        """When the bench began."""
        return self.began


class Bench:
    """One mongod with the events stored, to be drained again and again."""

    def __init__(self, uri: str, client: Client, events: int, console: Console) -> None:
        self._uri = uri
        self._database: Database[Any] = client[DATABASE]
        self._events = events
        create_collections(self._database, capped_bytes=512 * MEGABYTE)
        self._began = Rescan(self._database[RECVQ]).now()
        made = [text_event(number % KEYS, SENTENCE) for number in range(events)]
        self._last = store(self._database, made, console)
        with self._database[RECVQ].watch(start_at_operation_time=self._began) as stream:
            first_change = stream.next()
        self._first = first_change["fullDocument"]["_id"], first_change["_id"]

    def bare(self) -> float:
        """Events per second of a loop that only reads."""
        with self._database[RECVQ].watch(
            start_at_operation_time=self._began, batch_size=1_000
        ) as stream:
            started = time.monotonic()
            for _ in range(self._events):
                stream.next()
            return self._events / (time.monotonic() - started)

    def dispatched(
        self, make_worker: Callable[[Leader], Any], *, after_first: bool = False
    ) -> float:
        """Events per second from the start until progress says that all are finished.

        With `after_first` they count from the first saved progress on. The worker is closed at the
        end: it writes its last rows then.
        """
        self._rewind()
        inbox: SimpleQueue[int | BaseException] = SimpleQueue()
        with connect(self._uri, app_name="bench-feed") as feed_client, ExitStack() as ends:

            def closed_at_end(leader: Leader) -> Any:
                return ends.enter_context(closing(make_worker(leader)))

            recvq = feed_client[DATABASE][RECVQ]
            history = BeforeAll(recvq)
            history.began = self._began
            lease = Lease(self._database, owner=f"bench/{time.monotonic_ns()}/0")
            dispatcher = Dispatcher(
                ChangeStreamFeed(recvq),
                history,
                closed_at_end,
                limits=DispatcherLimits(threads=THREADS),
                lease=lease,
                reporter=StatusReporter(lease, repair=lambda: None),
                inbox=inbox,
            )
            thread = threading.Thread(target=dispatcher.run)
            started = time.monotonic()
            thread.start()
            if after_first:
                self._wait_until(lambda after: after != self._first[0])
                started = time.monotonic()
            self._wait_until(lambda after: after >= self._last)
            seconds = time.monotonic() - started
            inbox.put(15)
            thread.join()
        return self._events / seconds

    def desk(self, bot: Bot | None, leader: Leader, workers: Workers | None = None) -> BotWorker:
        """A worker with this bot; without one its jobs go to other processes."""
        line = LineSettings(NOWHERE, "unused", interval_seconds=0, threads=THREADS)
        return BotWorker(bot, BotSettings(tries=1), line, leader, workers=workers)

    def _rewind(self) -> None:
        id_, token = self._first
        row = {"feed": "changestream", "token": token, "after": id_, "finished": [], "passed": 0}
        self._database[PROGRESS].replace_one(
            {"_id": DISPATCHER},
            {**row, "ring": [None] * 1_000, "epoch": 0, "schema": SCHEMA},
            upsert=True,
        )

    def _wait_until(self, reached: Callable[[Any], bool]) -> None:
        # A heartbeat of the dispatcher may follow the last event.
        while not reached((self._database[PROGRESS].find_one({}, {"after": 1}) or {})["after"]):
            time.sleep(0.02)


def add_options(parser: argparse.ArgumentParser) -> None:
    """This bench's own."""
    parser.add_argument("--events", type=int, default=60_000)


def run(options: argparse.Namespace, console: Console) -> list[Report]:
    """Drain the same events in each way, by turns."""
    # As the dispatcher's process does.
    spare_the_collector()
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedMongod(Path(folder)) as mongod,
        connect(mongod.uri, app_name="bench") as client,
    ):
        bench = Bench(mongod.uri, client, options.events, console)
        variants: dict[str, Callable[[], float]] = {
            "bare loop": bench.bare,
            "dispatcher, no-op job": lambda: bench.dispatched(lambda leader: NoJob()),
            "dispatcher, no-op bot handler": lambda: bench.dispatched(partial(bench.desk, no_bot)),
        }
        measured = {
            name: lambda drain=drain: {"events/s": drain()} for name, drain in variants.items()
        }
        rows = by_turns(measured, options.rounds, console)
        versions = {"MongoDB": server_version(mongod.uri)}
    return [
        Report(
            f"{options.events:,} stored events, handed out", rows, "bare loop", versions=versions
        )
    ]
