"""What an event costs on its whole way: bytes in recvq, on the disk and in the oplog, processor.

The front desk and the dispatcher run as the real processes on a real mongod, the parrot bot answers
every message, and nobody waits for LINE_ACCESS_INTERVAL_MS. First each user writes more often than
his conversation remembers events, then the costs are measured at several steady rates. Run it as
`python bench/capacity.py`.
"""

from __future__ import annotations

import argparse
import os
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
from stack import DATABASE, running

from linedesk.store.client import Client
from linedesk.store.documents import CONVERSATIONS, RECVQ
from linedesk.store.records.effects import WITH_EFFECTS

USERS = 20
# More than a conversation remembers, which is 100: from then on its document does not grow.
TO_FILL = 110
FILL_RATE = 50.0
TEXT = "明日の朝七時半に、駅前のいつもの店で待っています。遅れるときは連絡します。"
SETTLE_SECONDS = 120.0
TICKS = os.sysconf("SC_CLK_TCK")
GIGABYTE = 1024**3
# For which the last table reckons how many hours they reach.
RATES = (1, 5, 10, 50, 100)
RECVQ_GIGABYTES = (1, 4, 16)
OPLOG_GIGABYTES = (3, 10, 30)
AS_STORED: bson.CodecOptions[RawBSONDocument] = bson.CodecOptions(document_class=RawBSONDocument)


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
        house = stack.enter_context(running(folder, LINE_ACCESS_INTERVAL_MS="0"))
        self.client: Client = house.database.client
        self.version = house.version
        self._sim, self._pids = house.sim, house.pids
        self._users = [self._sim.add_user(f"客{number}") for number in range(USERS)]
        house.until_taken(self._users[0], "準備")

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
        while self._unanswered() or outboxes.find_one(WITH_EFFECTS):
            if time.monotonic() > deadline:
                raise SystemExit("some messages were not answered")
            pause.wait(0.2)
        pause.wait(1.0)

    def stats(self, database: str, name: str) -> Mapping[str, Any]:
        """collStats, once all is on the disk."""
        self.client.admin.command("fsync")
        return self.client[database].command("collStats", name)

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
        oplog = self.client.local.get_collection("oplog.rs").with_options(codec_options=AS_STORED)
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
        house.cost(FILL_RATE, USERS * TO_FILL / FILL_RATE)
        costs = [house.cost(rate, seconds) for rate in (0.0, *rates)]
        sizes: dict[str, Any] = {"version": house.version}
        for name in (RECVQ, CONVERSATIONS):
            sizes[name] = house.stats(DATABASE, name)
        sizes["oplog"] = house.stats("local", "oplog.rs")
    return costs, sizes


def show(costs: Sequence[Cost], sizes: Mapping[str, Any], console: Console) -> None:
    """The tables for docs/performance.md."""
    quiet = sum(costs[0].oplog.values()) / costs[0].seconds
    title = f"MongoDB {sizes['version']}; with no events {quiet:,.0f} oplog bytes a second"
    columns = ("events/s", "oplog bytes an event", "of it", "processor ms an event")
    table = Table(*columns, title=title)
    for cost in costs[1:]:
        table.add_row(f"{cost.rate:g}", f"{_per_event(cost, quiet):,.0f}", *_parts(cost))
    console.print(table)
    for name in (RECVQ, CONVERSATIONS, "oplog"):
        console.print(f"{name}: {_on_disk(sizes[name])}")
    console.print(_hours(_per_event(costs[-1], quiet), quiet, sizes[RECVQ]["avgObjSize"]))


def _per_event(cost: Cost, quiet: float) -> float:
    return (sum(cost.oplog.values()) - quiet * cost.seconds) / max(cost.events, 1)


def _parts(cost: Cost) -> Iterator[str]:
    each = sorted(cost.oplog.items(), key=lambda pair: -pair[1])
    yield ", ".join(f"{name} {size / cost.events:,.0f}" for name, size in each)
    yield ", ".join(
        f"{name} {seconds * 1000 / cost.events:.1f}" for name, seconds in cost.processor.items()
    )


def _on_disk(stats: Mapping[str, Any]) -> str:
    count = stats["count"]
    return (
        f"{stats['size'] / count:,.0f} bytes a document, on the disk "
        f"{stats['storageSize'] / count:,.0f} and {stats['totalIndexSize'] / count:,.0f} of indexes"
    )


def _hours(oplog_bytes: float, quiet: float, recvq_bytes: float) -> Table:
    """How long recvq and oplog reach back, reckoned from what one event takes."""
    recvq = [f"recvq {size} GB" for size in RECVQ_GIGABYTES]
    oplog = [f"oplog {size} GB" for size in OPLOG_GIGABYTES]
    table = Table("events/s", *recvq, *oplog, title="hours")
    for rate in RATES:
        spans = [size * GIGABYTE / (rate * recvq_bytes) for size in RECVQ_GIGABYTES]
        spans += [size * GIGABYTE / (rate * oplog_bytes + quiet) for size in OPLOG_GIGABYTES]
        table.add_row(str(rate), *(f"{seconds / 3600:,.1f}" for seconds in spans))
    return table


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rates", type=float, nargs="+", default=[1.0, 10.0, 50.0])
    options.add_argument("--seconds", type=float, default=60.0, help="at each rate")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        costs, sizes = measure(Path(folder), chosen.rates, chosen.seconds)
    show(costs, sizes, Console(width=150))


if __name__ == "__main__":
    main()
