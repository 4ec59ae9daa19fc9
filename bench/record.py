"""Events per second through a bot that records something each time: state and one send.

The dispatcher is the real process with 20 threads on a real mongod; LINE is a server that takes
every call at once. The events are stored beforehand, as many of each conversation as of any other,
and it ends when all are recorded, every answer has reached LINE, and no outbox holds anything.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import urllib3
from linebot.v3.webhooks import MessageEvent
from pymongo.database import Database
from rich.console import Console

from bench.free_line import free_line
from bench.processes import cpu_seconds
from bench.report import BenchFailed, Figures, Report, by_turns
from bench.stack import environ_of, mongod_and_database, process
from bench.waiting import until
from bench.webhooks import SENTENCE, text_event
from linedesk import Bot, Talk
from linedesk.compose.private_mongod import server_version
from linedesk.store.collections import MEGABYTE, create_collections
from linedesk.store.documents import CONVERSATIONS, RECVQ, Document, make_document
from linedesk.store.insert import insert_documents
from linedesk.store.records.effects import WITH_OUTBOX

THREADS = 20
CONCURRENCY = 10
LONGEST_SECONDS = 300.0

NAIVE, LINEDESK = "threads that write and call", "linedesk"
LACKS = {NAIVE: "that anything survives a crash, order by key, exactly once", LINEDESK: ""}

bot = Bot()


@bot.add(MessageEvent)
def count(event: MessageEvent, talk: Talk) -> None:
    """Counts the messages of its user, and answers with their number."""
    talk.data["messages"] = talk.data.get("messages", 0) + 1
    talk.reply(f"{talk.data['messages']} 通目のメッセージです。")


class Stack:
    """One mongod, a free LINE and the real dispatcher, for all rounds."""

    def __init__(
        self, database: Database[Any], line: str, log: Path, *, dispatcher: int, mongod: int
    ) -> None:
        self._database = database
        self.line = line
        self._log = log.open("rb")
        self._sent = 0
        self._pids = {"dispatcher": dispatcher, "mongod": mongod}
        self._http = urllib3.PoolManager(maxsize=THREADS)

    def recorded(self, events: int, conversations: int) -> Figures:
        """Through linedesk: from storing the events until nothing of them waits."""
        before, processor = self.sent(), self._processor()
        documents = self._documents(events, conversations)
        began = time.monotonic()
        for first in range(0, events, 1_000):
            part = documents[first : first + 1_000]
            insert_documents(self._database[RECVQ], part, timeout_seconds=10)
        outboxes = self._database[CONVERSATIONS]
        until(
            lambda: self.sent() >= before + events and outboxes.find_one(WITH_OUTBOX) is None,
            f"{events} events are answered",
            seconds=LONGEST_SECONDS,
        )
        seconds = time.monotonic() - began
        if (extra := self.sent() - before - events) > 0:
            raise BenchFailed(f"{extra} answers too many")
        spent = {name: at - processor[name] for name, at in self._processor().items()}
        per_event = {f"{name} ms/event": ms * 1000 / events for name, ms in spent.items()}
        return {"events/s": events / seconds, **per_event}

    def naive(self, events: int, conversations: int) -> Figures:
        """The same work with no promise: each thread writes the state durably and calls LINE."""
        states = self._database["naive"]
        documents = iter(self._documents(events, conversations))
        lock = threading.Lock()

        def work() -> None:
            while True:
                with lock:
                    document = next(documents, None)
                if document is None:
                    return
                key, token = document["key"], document["event"]["replyToken"]
                row: Any = states.find_one_and_update(
                    {"_id": key}, {"$inc": {"messages": 1}}, upsert=True, return_document=True
                )
                text = f"{row['messages']} 通目のメッセージです。"
                body = {"replyToken": token, "messages": [{"type": "text", "text": text}]}
                answer = self._http.request("POST", f"{self.line}/v2/bot/message/reply", json=body)
                if answer.status != 200:
                    raise BenchFailed(f"LINE answered {answer.status}")

        before = self.sent()
        began = time.monotonic()
        with ThreadPoolExecutor(THREADS) as pool:
            for done in [pool.submit(work) for _ in range(THREADS)]:
                done.result()
        seconds = time.monotonic() - began
        if self.sent() != before + events:
            raise BenchFailed("not every call reached LINE")
        return {"events/s": events / seconds}

    def sent(self) -> int:
        """How many messages LINE has got: a line of its log each."""
        self._sent += self._log.read().count(b"\n")
        return self._sent

    def _documents(self, events: int, conversations: int) -> list[Document]:
        now = datetime.now(UTC)
        return [
            make_document(event, channel="main", accept_time=now)
            for event in (text_event(n % conversations, SENTENCE) for n in range(events))
        ]

    def _processor(self) -> dict[str, float]:
        return {name: cpu_seconds(pid) for name, pid in self._pids.items()}


@contextmanager
def running(folder: Path) -> Iterator[tuple[Stack, dict[str, str]]]:
    """The stack, and the versions of its parts."""
    log = folder / "line.log"
    log.touch()
    with mongod_and_database(folder) as (mongod, database), free_line(log) as line:
        create_collections(database, capped_bytes=512 * MEGABYTE)
        environ = environ_of(
            mongod.uri,
            line=line,
            LINE_ACCESS_INTERVAL_MS="0",
            LINE_CONCURRENCY=str(CONCURRENCY),
            DISPATCHER_THREADS=str(THREADS),
            BOT="bench.record:bot",
            LOG_LEVEL="warning",
        )
        with process("dispatcher", environ, stdout=None, stderr=None) as dispatcher:
            yield (
                Stack(database, line, log, dispatcher=dispatcher.pid, mongod=mongod.pid or 0),
                {"MongoDB": server_version(mongod.uri)},
            )


def add_options(parser: argparse.ArgumentParser) -> None:
    """This bench's own."""
    parser.add_argument("--events", type=int, default=4_000, help="a round")
    parser.add_argument("--conversations", type=int, default=1_000)
    parser.add_argument("--no-peers", action="store_true", help="without other task queues")


def run(options: argparse.Namespace, console: Console) -> list[Report]:
    """Linedesk beside threads with no promise and beside other task queues."""
    return [
        measured(
            options.events,
            options.conversations,
            rounds=options.rounds,
            console=console,
            peers=not options.no_peers,
        )
    ]


def measured(
    events: int, conversations: int, *, rounds: int, console: Console, peers: bool
) -> Report:
    """All ways by turns, after a round in which each conversation gets its first event."""
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        stack, found = ends.enter_context(running(folder))
        stack.recorded(conversations, conversations)
        variants: dict[str, Callable[[], Figures]] = {
            NAIVE: lambda: stack.naive(events, conversations),
            LINEDESK: lambda: stack.recorded(events, conversations),
        }
        lacks = dict(LACKS)
        if peers:
            # Here, since other runs install none of them.
            from bench.peers import measure, names, servers

            url = f"{stack.line}/v2/bot/message/push"
            drains = ends.enter_context(measure.completions(folder, work="state", url=url))
            for name, drain in drains.items():
                variants[name] = partial(_drained, drain, events, conversations)
                lacks[name] = names.LACKS[name]
            found |= servers.versions()
        rows = by_turns(variants, rounds, console)
    title = f"{events:,} events of {conversations:,} conversations, state and one send each"
    settings = {"threads": THREADS, "LINE_CONCURRENCY": CONCURRENCY}
    return Report(title, rows, NAIVE, lacks=lacks, versions=found, settings=settings)


def _drained(drain: Callable[[int, int], float], events: int, conversations: int) -> Figures:
    return {"events/s": drain(events, conversations)}
