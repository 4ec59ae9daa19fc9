"""Events per second through a bot that records something each time: state and one send.

The dispatcher is the real process with 20 threads on a real mongod; LINE is a server that takes
every call at once. Each variant reads its events from its store, where they are before the clock
starts, counts in the conversation's state, and replies with the number. The clock stops when all
events are recorded and completed and all replies have reached LINE. The costs are those of an
event: milliseconds of processor of the worker (dispatcher, threads or peer) and of the database,
commands and journal syncs of MongoDB, bytes of the oplog.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import urllib3
from linebot.v3.webhooks import MessageEvent
from pymongo.database import Database
from rich.console import Console

from bench.free_line import free_line
from bench.peers import drain
from bench.peers.jobs import ANSWER, reply
from bench.processes import cpu_seconds, until
from bench.report import BenchFailed, Figures, Report, by_turns, server_version
from bench.stack import environ_of, frozen, mongod_and_database, process, store
from bench.webhooks import SENTENCE, text_event
from linedesk import Bot, Talk
from linedesk.setup.collections import create_collections
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import CONVERSATIONS, RECVQ
from linedesk.store.records.effects import WITH_OUTBOX

THREADS = 20
CONCURRENCY = 10
LONGEST_SECONDS = 300.0

NAIVE, LINEDESK = "threads that write and call", "linedesk"
PROCESSOR, WORKER, DATABASE = "processor ms", "worker ms", "database ms"
CALLS = "a durable note before the call; exactly one call and one change of state an event"
LACKS = {NAIVE: f"that an event survives a crash; order by key; {CALLS}", LINEDESK: ""}

bot = Bot()


@bot.add(MessageEvent)
def count(event: MessageEvent, talk: Talk) -> None:
    """Counts the messages of its user, and answers with their number."""
    talk.data["messages"] = talk.data.get("messages", 0) + 1
    talk.reply(ANSWER.format(talk.data["messages"]))


class Stack:
    """One mongod, a free LINE and the real dispatcher, for all rounds."""

    def __init__(
        self, database: Database[Any], line: str, log: Path, *, dispatcher: int, mongod: int
    ) -> None:
        self._database = database
        self.url = f"{line}/v2/bot/message/reply"
        self._log = log.open("rb")
        self._sent = 0
        self._dispatcher, self._mongod = dispatcher, mongod
        self._http = urllib3.PoolManager(maxsize=THREADS)

    def figures(self, way: drain.Drain, events: int, conversations: int) -> Figures:
        """One variant's of an event. Raises BenchFailed unless LINE got one message for each."""
        before, used = self.sent(), dict(way(events, conversations))
        if (sent := self.sent() - before) != events:
            raise BenchFailed(f"{sent} messages reached LINE for {events} events")
        rate = events / used.pop("seconds")
        costs = {name: total / events for name, total in used.items()}
        return {"events/s": rate, PROCESSOR: costs[WORKER] + costs[DATABASE], **costs}

    def recorded(self, events: int, conversations: int) -> Mapping[str, float]:
        """Through linedesk: from the stored events until nothing waits."""
        outboxes, wanted = self._database[CONVERSATIONS], self.sent() + events
        with frozen(self._dispatcher):
            self._store(RECVQ, events, conversations)
            before = self._used(self._dispatcher)
        until(
            lambda: self.sent() >= wanted and outboxes.find_one(WITH_OUTBOX) is None,
            f"{events} events are answered",
            seconds=LONGEST_SECONDS,
        )
        return _since(before, self._used(self._dispatcher))

    def naive(self, events: int, conversations: int) -> Mapping[str, float]:
        """The same work with no promise: each thread writes the state durably and calls LINE."""
        states, waiting = self._database["naive"], self._database["waiting"]
        lock = threading.Lock()

        def work() -> None:
            while True:
                with lock:
                    document = next(documents, None)
                if document is None:
                    return
                row: Any = states.find_one_and_update(
                    {"_id": document["key"]},
                    {"$inc": {"messages": 1}},
                    upsert=True,
                    return_document=True,
                )
                body = reply(document["event"], row["messages"])
                answer = self._http.request("POST", self.url, json=body)
                if answer.status != 200:
                    raise BenchFailed(f"LINE answered {answer.status}")

        # The dispatcher's change stream would have mongod look at each of these writes.
        with frozen(self._dispatcher), ThreadPoolExecutor(THREADS) as pool:
            waiting.drop()
            self._store(waiting.name, events, conversations)
            before = self._used(os.getpid())
            documents = waiting.find()
            for done in [pool.submit(work) for _ in range(THREADS)]:
                done.result()
            return _since(before, self._used(os.getpid()))

    def sent(self) -> int:
        """How many messages LINE has got: a line of its log each."""
        self._sent += self._log.read().count(b"\n")
        return self._sent

    def _store(self, name: str, events: int, conversations: int) -> None:
        made = [text_event(n % conversations, SENTENCE) for n in range(events)]
        store(self._database, made, Console(quiet=True), into=name)

    def _used(self, worker: int) -> Mapping[str, float]:
        """Totals so far."""
        client = self._database.client
        status = client.admin.command("serverStatus")
        commands = status["metrics"]["commands"]
        return {
            "seconds": time.monotonic(),
            WORKER: 1000 * cpu_seconds(worker),
            DATABASE: 1000 * cpu_seconds(self._mongod),
            # Without the drivers' own looks at the server.
            "commands": sum(
                one["total"] for name, one in commands.items() if name not in ("hello", "<UNKNOWN>")
            ),
            "journal syncs": status["wiredTiger"]["log"]["log sync operations"],
            "oplog bytes": client["local"].command("collStats", "oplog.rs")["size"],
        }


def _since(before: Mapping[str, float], now: Mapping[str, float]) -> Mapping[str, float]:
    return {name: total - before[name] for name, total in now.items()}


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
            LOG_LEVEL="error",
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
        ways: dict[str, drain.Drain] = {NAIVE: stack.naive, LINEDESK: stack.recorded}
        lacks = dict(LACKS)
        if peers:
            ways |= ends.enter_context(drain.completions(folder, url=stack.url))
            lacks |= {
                name: "; ".join(filter(None, (peer.lacks, CALLS)))
                for name, peer in drain.PEERS.items()
            }
            found |= drain.versions()
        variants = {
            name: partial(stack.figures, way, events, conversations) for name, way in ways.items()
        }
        rows = by_turns(variants, rounds, console)
    title = f"{events:,} events of {conversations:,} conversations, state and one send each"
    settings = {"threads": THREADS, "LINE_CONCURRENCY": CONCURRENCY}
    return Report(title, rows, NAIVE, lacks=lacks, versions=found, settings=settings)
