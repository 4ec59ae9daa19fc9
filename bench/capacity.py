"""What an event costs on its whole way: bytes in recvq, on the disk and in the oplog, and processor.

The front desk and the dispatcher run as the real processes on a real mongod, the parrot bot answers
every message, and nobody waits for LINE_ACCESS_INTERVAL_MS. First each user writes more often than
his conversation remembers events, then the costs are measured at several steady rates. Run it as
`python bench/capacity.py`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument
from rich.console import Console
from rich.progress import track
from rich.table import Table

import linesim
from linedesk import children
from linedesk.embedded import EmbeddedMongod, free_port, server_version
from recvq.collections import create_collections
from recvq.connect import Client, connect
from recvq.documents import CONVERSATIONS, RECVQ

ROOT = Path(__file__).resolve().parent.parent
DATABASE = "line_bot"
USERS = 20
# More than a conversation remembers, which is 100: from then on its document does not grow.
TO_FILL = 110
TEXT = "明日の朝七時半に、駅前のいつもの店で待っています。遅れるときは連絡します。"
SETTLE_SECONDS = 120.0
TICKS = os.sysconf("SC_CLK_TCK")
RAW = bson.CodecOptions(document_class=RawBSONDocument)


@dataclass(frozen=True)
class Cost:
    """What a while at a steady rate took."""

    rate: float
    seconds: float
    events: int
    oplog: Mapping[str, int]
    """Bytes in the oplog, by collection."""
    processor: Mapping[str, float]
    """Seconds, by process."""


class House:
    """The processes, and people who write to them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        mongod = stack.enter_context(EmbeddedMongod(folder / "mongod"))
        self.client: Client = stack.enter_context(connect(mongod.uri, app_name="bench"))
        self.version = server_version(mongod.uri)
        create_collections(self.client[DATABASE])
        self._sim = stack.enter_context(linesim.running(rate_limits=False))
        port = free_port()
        self._sim.webhook_url = f"http://127.0.0.1:{port}/callback"
        environ = {
            **os.environ,
            "LINE_CHANNEL_SECRET": self._sim.secret,
            "LINE_CHANNEL_ACCESS_TOKEN": self._sim.token,
            "LINE_API_BASE": self._sim.url,
            "LINE_API_DATA_BASE": self._sim.url,
            "LINE_ACCESS_INTERVAL_MS": "0",
            "MONGODB_URI": mongod.uri,
            "FRONTDESK_PORT": str(port),
            "SPOOL_PATH": str(folder / "spool.db"),
            "PYTHONPATH": str(ROOT),
        }
        self._pids = {"mongod": mongod.pid or 0}
        for name in ("frontdesk", "dispatcher"):
            process = children.start(
                [sys.executable, "-m", name],
                env=environ,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(children.stop, process, timeout_seconds=10)
            self._pids[name] = process.pid
        self._users = [self._sim.add_user(f"客{number}") for number in range(USERS)]
        while not self._sim.say(self._users[0], "準備").delivered:
            threading.Event().wait(0.1)

    def cost(self, rate: float, seconds: float) -> Cost:
        """Of so many events a second, until all are answered; of none, with the rate 0."""
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
        """Until every message is answered, and that is saved."""
        deadline = time.monotonic() + SETTLE_SECONDS
        outboxes = self.client[DATABASE][CONVERSATIONS]
        pause = threading.Event()
        while self._unanswered() or outboxes.find_one({"pending.0": {"$exists": True}}):
            if time.monotonic() > deadline:
                raise SystemExit("some messages were not answered")
            pause.wait(0.2)
        pause.wait(1.0)

    def stats(self, name: str) -> Mapping[str, Any]:
        """collStats, once all is on the disk."""
        self.client.admin.command("fsync")
        return self.client[DATABASE].command("collStats", name)

    def _send(self, count: int, rate: float) -> int:
        pause, began = threading.Event(), time.monotonic()
        for number in track(range(count), f"{rate:g} events/s"):
            pause.wait(max(0.0, began + number / rate - time.monotonic()))
            if not self._sim.say(self._users[number % USERS], TEXT).delivered:
                raise SystemExit("a message was not taken")
        return count

    def _unanswered(self) -> bool:
        told = sum(len(self._sim.answers(user)) for user in self._users)
        return told < self.client[DATABASE][RECVQ].count_documents({"heartbeat": {"$ne": True}})

    def _newest(self) -> Any:
        oplog = self.client.local["oplog.rs"]
        return oplog.find_one({}, {"ts": 1}, sort=[("$natural", -1)])["ts"]  # type: ignore[index]

    def _oplog(self, since: Any) -> Mapping[str, int]:
        sizes: Counter[str] = Counter()
        oplog = self.client.local.get_collection("oplog.rs", codec_options=RAW)
        for entry in oplog.find({"ts": {"$gt": since}}):
            sizes[_collection(entry)] += len(entry.raw)
        return sizes

    def _processor(self) -> dict[str, float]:
        return {name: _cpu_seconds(pid) for name, pid in self._pids.items()}


def _collection(entry: Mapping[str, Any]) -> str:
    """Of a transaction, or of several inserts in one, that of the first write."""
    if entry["op"] == "c":
        operations = entry["o"].get("applyOps")
        return _collection(operations[0]) if operations else "other"
    database, _, name = str(entry["ns"]).partition(".")
    return name if database == DATABASE else "other"


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def measure(
    folder: Path, rates: Sequence[float], seconds: float
) -> tuple[list[Cost], dict[str, Any]]:
    """The costs at each rate, and of nothing, and the sizes of what is stored."""
    with ExitStack() as stack:
        house = House(folder, stack)
        first = house.cost(50.0, USERS * TO_FILL / 50.0)
        costs = [house.cost(rate, seconds) for rate in (0.0, *rates)]
        sizes: dict[str, Any] = {"version": house.version, "first": first}
        for name in (RECVQ, CONVERSATIONS):
            sizes[name] = dict(house.stats(name))
    return costs, sizes


def show(costs: Sequence[Cost], sizes: Mapping[str, Any], console: Console) -> None:
    """The tables for docs/performance.md."""
    idle = costs[0]
    quiet = sum(idle.oplog.values()) / idle.seconds
    table = Table("events/s", "oplog bytes an event", "of it", "processor ms an event",
                  title=f"MongoDB {sizes['version']}; with no events {quiet:,.0f} bytes a second")
    for cost in costs[1:]:
        table.add_row(f"{cost.rate:g}", f"{_per_event(cost, quiet):,.0f}", *_parts(cost))
    console.print(table)
    recvq, conversation = sizes[RECVQ], sizes[CONVERSATIONS]
    console.print(
        f"recvq: {recvq['avgObjSize']:,} bytes a document, on the disk "
        f"{recvq['storageSize'] / recvq['count']:,.0f} and its indexes "
        f"{recvq['totalIndexSize'] / recvq['count']:,.0f}; "
        f"a conversation that is full: {conversation['avgObjSize']:,} bytes"
    )


def _per_event(cost: Cost, quiet: float) -> float:
    return (sum(cost.oplog.values()) - quiet * cost.seconds) / max(cost.events, 1)


def _parts(cost: Cost) -> Iterator[str]:
    each = sorted(cost.oplog.items(), key=lambda pair: -pair[1])
    yield ", ".join(f"{name} {size / cost.events:,.0f}" for name, size in each)
    yield ", ".join(
        f"{name} {seconds * 1000 / cost.events:.1f}" for name, seconds in cost.processor.items()
    )


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rates", type=float, nargs="+", default=[1.0, 10.0, 50.0])
    options.add_argument("--seconds", type=float, default=60.0, help="at each rate")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        costs, sizes = measure(Path(folder), chosen.rates, chosen.seconds)
    console = Console(width=160)
    first = sizes.pop("first")
    show(costs, sizes, console)
    console.print("while conversations fill:", dict(first.oplog), first.events, first.seconds)


if __name__ == "__main__":
    main()
