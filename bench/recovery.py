"""Recovery: kill -9 under 20 events a second, to the first handler start afterwards.

Four cases:

- the dispatcher alone; it is started again at once
- the dispatcher, with a standby on the same machine
- the dispatcher, frozen instead of killed: a standby cannot see that it is gone and waits for the
  lease, as on another machine
- the primary of a replica set of three, with MongoDB's default time-outs

Seconds count from the kill, for events that were posted after it. A run fails unless all events are
handled in the end.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pymongo
from linebot.v3.webhooks import MessageEvent
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from rich.console import Console

from bench.load import Post, Posted, post_all, steady
from bench.report import Figures, Report, Row, by_turns
from bench.stack import DATABASE, environ_of, process, simulated_line
from bench.started import Started, started_log
from bench.waiting import listens, until
from bench.webhooks import ids_of, text_event
from linedesk import Bot, Talk
from linedesk.compose import children
from linedesk.compose.private_mongod import EmbeddedMongod, free_port, server_version
from linedesk.setup.collections import create_collections
from linedesk.setup.replica_set import add_members, ensure_replica_set
from linedesk.store.client import Client, connect
from linedesk.store.documents import LEASES, RECVQ

RATE = 20.0
KEYS = 100
BEFORE_SECONDS = 2.0
"""Of load before the kill."""
READY_SECONDS = 60.0
HANDLED_SECONDS = 60.0
STANDBY_SECONDS = 3.0
"""The time until a started dispatcher is a standby."""

bot = Bot()
_started = started_log()


@bot.add(MessageEvent)
def handler(event: MessageEvent, talk: Talk) -> None:
    """Only writes down when it starts."""
    _started(talk.event_id)


class Node:
    """One mongod of a replica set."""

    def __init__(self, folder: Path) -> None:
        self._mongod = EmbeddedMongod(folder)
        folder.mkdir()
        self.host = f"127.0.0.1:{self._mongod.port}"
        self.start()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self._process = children.start(
            self._mongod.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(lambda: listens(self._mongod.port), "a mongod listens", seconds=READY_SECONDS)

    def kill(self) -> None:
        """As a crash would."""
        self._process.kill()
        self._process.wait()


class Box:
    """A replica set, a front desk, dispatchers and linesim."""

    def __init__(self, stack: ExitStack, folder: Path, *, nodes: int, dispatchers: int) -> None:
        self.nodes = []
        for place in range(nodes):
            self.nodes.append(Node(folder / f"mongod-{place}"))
            stack.callback(self.nodes[-1].kill)
        hosts = ",".join(node.host for node in self.nodes)
        uri = f"mongodb://{hosts}/?replicaSet=rs0"
        ensure_replica_set(uri)
        self.client: Client = stack.enter_context(connect(uri, app_name="bench"))
        add_members(self.client, uri)
        create_collections(self.client[DATABASE])
        self.version = server_version(uri)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/callback"
        sim = stack.enter_context(simulated_line(port))
        self.log = Started(folder / "started.log")
        self._environ = environ_of(
            uri,
            line=sim.url,
            FRONTDESK_PORT=str(port),
            SPOOL_PATH=str(folder / "spool.db"),
            BOT="bench.recovery:bot",
            STARTED_LOG=str(self.log.path),
        )
        self._stack = stack
        self._start("frontdesk")
        self.dispatchers = [self._start("dispatcher") for _ in range(dispatchers)]
        first = text_event(0)
        self.post([Post(0.0, [first])])
        self.log.wait_for(ids_of([first]), seconds=READY_SECONDS)

    def post(self, posts: list[Post]) -> Posted:
        """Post them, each until it is accepted."""
        return post_all(self.url, posts, redeliver=True)

    def leader(self) -> subprocess.Popen[bytes]:
        """The dispatcher that holds the lease."""
        row = self.client[DATABASE][LEASES].find_one({"_id": "dispatcher"}) or {}
        pid = str(row.get("owner")).split("/")[1]
        return next(process for process in self.dispatchers if str(process.pid) == pid)

    def replace(self, process: subprocess.Popen[bytes]) -> None:
        """Start another dispatcher in its place, as systemd would."""
        self.dispatchers.remove(process)
        self.dispatchers.append(self._start("dispatcher"))

    def primary(self) -> Node:
        """The node that takes writes."""
        host, port = self.client.primary or ("", 0)
        return next(node for node in self.nodes if node.host == f"{host}:{port}")

    def is_whole(self) -> bool:
        """Whether every node is in the set and has its data."""
        try:
            members = self.client.admin.command("replSetGetStatus")["members"]
        except PyMongoError:
            return False
        states = sorted(member["stateStr"] for member in members)
        return states == ["PRIMARY"] + ["SECONDARY"] * (len(self.nodes) - 1)

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        return self._stack.enter_context(process(name, self._environ))


def round_of(box: Box, strike: Callable[[], object], *, seconds: float) -> Figures:
    """Load before and after the strike; raises BenchFailed if an event is not handled."""
    before = int(RATE * BEFORE_SECONDS)
    events = [text_event(n % KEYS) for n in range(before + int(RATE * seconds))]
    # Those that are due after the strike.
    later = ids_of(events)[before + 1 :]
    with ThreadPoolExecutor(2) as pool:
        load = pool.submit(box.post, steady(events, rate=RATE))
        threading.Event().wait(BEFORE_SECONDS)
        struck = time.monotonic()
        strike()
        stored = pool.submit(first_stored, box, later)
        posted = load.result()
        started = box.log.wait_for(ids_of(events), seconds=HANDLED_SECONDS)
    return {
        "first handler s": min(started[id_] for id_ in later) - struck,
        "first POST taken s": min(posted.answered[id_] for id_ in later) - struck,
        "first POST stored s": stored.result() - struck,
    }


def first_stored(box: Box, ids: list[str]) -> float:
    """When one of these events is in recvq; raises BenchFailed."""
    recvq = box.client[DATABASE][RECVQ].with_options(read_concern=ReadConcern("majority"))

    def is_there() -> bool:
        with suppress(PyMongoError), pymongo.timeout(1.0):
            return recvq.find_one({"eventId": {"$in": ids}}, {"_id": 1}) is not None
        return False

    until(is_there, "an event is stored", seconds=READY_SECONDS)
    return time.monotonic()


# The failures. Each one restores the box at its end.


def dispatcher_killed(box: Box) -> Figures:
    """Alone it is started again at once; a standby's place is filled afterwards."""
    leader = box.leader()
    alone = len(box.dispatchers) == 1

    def kill() -> None:
        leader.kill()
        leader.wait()
        if alone:
            box.replace(leader)

    figures = round_of(box, kill, seconds=8.0)
    if not alone:
        box.replace(leader)
        threading.Event().wait(STANDBY_SECONDS)
    return figures


def dispatcher_frozen(box: Box) -> Figures:
    """Its standby waits until the lease has run out."""
    leader = box.leader()
    figures = round_of(box, partial(leader.send_signal, signal.SIGSTOP), seconds=8.0)
    leader.kill()
    leader.wait()
    box.replace(leader)
    threading.Event().wait(STANDBY_SECONDS)
    return figures


def primary_killed(box: Box) -> Figures:
    """It comes back as a secondary."""
    node = box.primary()
    figures = round_of(box, node.kill, seconds=25.0)
    node.start()
    until(box.is_whole, "the killed mongod is a secondary again", seconds=READY_SECONDS)
    return figures


def spread(row: Row) -> Row:
    """The same with the least and the most of its first figure, the same in each round."""
    name = next(iter(row.rounds[0]))
    values = [one[name] for one in row.rounds]
    ends = {"min s": min(values), "max s": max(values)}
    return Row(row.variant, [{**one, **ends} for one in row.rounds], row.case)


def add_options(parser: argparse.ArgumentParser) -> None:
    """None beside those of every bench."""


def run(options: argparse.Namespace, console: Console) -> list[Report]:
    """Each kind on its own box, all rounds in a row."""
    kinds: dict[str, tuple[Callable[[Box], Figures], int, int]] = {
        "dispatcher alone, killed": (dispatcher_killed, 1, 1),
        "dispatcher with a standby, killed": (dispatcher_killed, 1, 2),
        "dispatcher with a standby, frozen": (dispatcher_frozen, 1, 2),
        "primary of three, killed": (primary_killed, 3, 1),
    }
    rows = []
    for name, (strike, nodes, dispatchers) in kinds.items():
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            box = Box(stack, folder, nodes=nodes, dispatchers=dispatchers)
            threading.Event().wait(STANDBY_SECONDS)
            rows += by_turns({name: partial(strike, box)}, options.rounds, console)
            versions = {"MongoDB": box.version}
    title = f"Recovery at {RATE:g} events/s"
    return [Report(title, [spread(row) for row in rows], versions=versions)]
