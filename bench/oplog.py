"""The costs of an answered message: bytes in the oplog, processor.

The front desk and the dispatcher run as the real processes on a real mongod, the parrot bot answers
every message, and LINE_ACCESS_INTERVAL_MS is 0. First each user writes more often than the
conversation remembers events, then the costs are measured at several steady rates. Writes without
any events are subtracted.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument
from rich.console import Console

from bench.processes import cpu_seconds, until
from bench.report import BenchFailed, Figures, Report, by_turns
from bench.stack import DATABASE, running
from linedesk.store.client import Client
from linedesk.store.documents import CONVERSATIONS, PROGRESS, RECVQ
from linedesk.store.records.effects import WITH_OUTBOX

USERS = 20
# More than a conversation remembers, which is 100: from then on its document does not grow.
TO_FILL = 110
FILL_RATE = 50.0
TEXT = "明日の朝七時半に、駅前のいつもの店で待っています。遅れるときは連絡します。"
SETTLE_SECONDS = 120.0
# The collections that an answered message writes; the rest of the oplog is in the sum only.
NAMED = (CONVERSATIONS, RECVQ, PROGRESS, "calls", "jobs", "status", "other")
AS_STORED: bson.CodecOptions[RawBSONDocument] = bson.CodecOptions(document_class=RawBSONDocument)


@dataclass(frozen=True)
class Cost:
    """The costs of a period at a steady rate."""

    rate: float
    seconds: float
    events: int
    oplog: Mapping[str, int]
    """Bytes in the oplog, by collection."""
    processor: Mapping[str, float]
    """Seconds, by process."""


class House:
    """The processes, and users who write to them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        house = stack.enter_context(running(folder, settings={"LINE_ACCESS_INTERVAL_MS": "0"}))
        self.client: Client = house.database.client
        self.version = house.version
        self._sim, self._pids = house.sim, house.pids
        self._users = [self._sim.add_user(f"客{number}") for number in range(USERS)]
        house.until_taken(self._users[0], "準備")

    def cost(self, rate: float, seconds: float) -> Cost:
        """The costs at `rate` events a second, until all are answered; without events at rate 0."""
        since, before = self._newest(), self._processor()
        began = time.monotonic()
        events = self._send(int(rate * seconds), rate) if rate else 0
        threading.Event().wait(max(0.0, began + seconds - time.monotonic()))
        self.settle()
        after = self._processor()
        return Cost(
            rate,
            time.monotonic() - began,
            events,
            self._oplog(since),
            {name: after[name] - before[name] for name in after},
        )

    def settle(self) -> None:
        """Wait until every message is answered and progress is saved."""
        outboxes = self.client[DATABASE][CONVERSATIONS]
        until(
            lambda: not self._unanswered() and outboxes.find_one(WITH_OUTBOX) is None,
            "all messages are answered",
            seconds=SETTLE_SECONDS,
            every=0.2,
        )
        threading.Event().wait(1.0)

    def _send(self, count: int, rate: float) -> int:
        pause, began = threading.Event(), time.monotonic()
        for number in range(count):
            pause.wait(max(0.0, began + number / rate - time.monotonic()))
            if not self._sim.say(self._users[number % USERS], TEXT).delivered:
                raise BenchFailed("a message was not taken")
        return count

    def _unanswered(self) -> bool:
        told = sum(len(self._sim.answers(user)) for user in self._users)
        return told < self.client[DATABASE][RECVQ].count_documents({"heartbeat": {"$ne": True}})

    def _newest(self) -> Any:
        oplog = self.client.local["oplog.rs"]
        return oplog.find_one({}, {"ts": 1}, sort=[("$natural", -1)])["ts"]  # type: ignore[index]

    def _oplog(self, since: Any) -> Mapping[str, int]:
        sizes: Counter[str] = Counter()
        oplog = self.client.local.get_collection("oplog.rs").with_options(codec_options=AS_STORED)
        for entry in oplog.find({"ts": {"$gt": since}}):
            sizes.update(_sizes(entry))
        return sizes

    def _processor(self) -> dict[str, float]:
        return {name: cpu_seconds(pid) for name, pid in self._pids.items()}


def _sizes(entry: RawBSONDocument) -> Counter[str]:
    """The bytes of an entry by collection; of a transaction, those of each change."""
    sizes: Counter[str] = Counter()
    changes = entry["o"].get("applyOps", ()) if entry["op"] == "c" else (entry,)
    for one in changes:
        database, _, name = str(one["ns"]).partition(".")
        sizes[name if database == DATABASE else "other"] += len(one.raw)
    sizes["other"] += len(entry.raw) - sizes.total()
    return sizes


def figures(cost: Cost, quiet: float) -> Figures:
    """The costs of one event; `quiet` is the bytes of oplog a second without events."""
    events = max(cost.events, 1)
    named = {f"oplog, {name}": cost.oplog.get(name, 0) / events for name in NAMED}
    processor = {f"{name} ms": 1000 * taken / events for name, taken in cost.processor.items()}
    return {"oplog bytes": _per_event(cost, quiet), **named, **processor}


def _per_event(cost: Cost, quiet: float) -> float:
    return (sum(cost.oplog.values()) - quiet * cost.seconds) / max(cost.events, 1)


def add_options(parser: argparse.ArgumentParser) -> None:
    """This bench's own."""
    parser.set_defaults(rounds=1)
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0, 10.0, 50.0])
    parser.add_argument("--seconds", type=float, default=60.0, help="at each rate (%(default)s)")


def run(options: argparse.Namespace, console: Console) -> list[Report]:
    """The costs at each rate."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        house = House(Path(folder), stack)
        house.cost(FILL_RATE, USERS * TO_FILL / FILL_RATE)
        nothing = house.cost(0.0, options.seconds)
        quiet = sum(nothing.oplog.values()) / nothing.seconds

        def measured(rate: float) -> Figures:
            return figures(house.cost(rate, options.seconds), quiet)

        rows = [
            row
            for rate in options.rates
            for row in by_turns(
                {"an answered message": partial(measured, rate)},
                options.rounds,
                console,
                case={"events/s": rate},
            )
        ]
        versions = {"MongoDB": house.version}
    title = f"with no events {quiet:,.0f} oplog bytes a second"
    return [Report(f"what an answered message takes; {title}", rows, versions=versions)]
