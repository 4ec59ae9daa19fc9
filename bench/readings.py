"""How long an operator waits for an answer with a million documents in recvq.

A mongod of its own is filled as a busy week would, then each reading is timed: the overview, the
story of an event by each kind of id, a search, the last calls.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from bson import ObjectId
from pymongo.database import Database
from rich.console import Console
from rich.progress import Progress

from bench.report import Figures, Report, by_turns, percentiles
from linedesk.compose.private_mongod import EmbeddedMongod
from linedesk.console.calls import Wanted, newest_calls
from linedesk.console.conversation import find_conversation, read_conversation
from linedesk.console.dead_letters import Choice, found
from linedesk.console.history import read_history
from linedesk.console.overview import read_overview
from linedesk.console.search import recent, search
from linedesk.console.story import tell
from linedesk.setup.collections import create_collections
from linedesk.store.client import Client, connect
from linedesk.store.documents import CALLS, DEADLETTERS, JOBS, Document
from linedesk.store.records.rows import ROWS, documents_of

BATCH = 10_000
# Rows of a document of `jobs` or `calls`: those of half a second at 50 a second.
TOGETHER = 25
GIGABYTE = 1024**3
USERS = 100_000
TEXT = "明日の朝七時半に、駅前のいつもの店で待っています。遅れるときは連絡します。"
NOW = datetime.now(UTC)
PROMISED_MS = 50.0


def key_of(number: int) -> str:
    """The user of a document."""
    return f"U{number % USERS:032x}"


def a_document(number: int) -> Document:
    """A message as the front desk stores it."""
    at = NOW - timedelta(seconds=number / 10)
    event_id, key = f"01E{number:023d}", key_of(number)
    event = {
        "type": "message",
        "webhookEventId": event_id,
        "deliveryContext": {"isRedelivery": False},
        "timestamp": int(at.timestamp() * 1000),
        "source": {"type": "user", "userId": key},
        "replyToken": f"{number:032x}",
        "mode": "active",
        "message": {"type": "text", "id": f"{number:018d}", "text": TEXT, "quoteToken": "q" * 86},
    }
    document = {"_id": ObjectId(), "eventId": event_id, "channel": "main", "key": key}
    return {**document, "acceptTime": at, "event": event}


def rows_of(collection: str, number: int) -> Document:
    """A row of another collection, as the processes write it."""
    event_id, key = f"01E{number:023d}", key_of(number)
    at = NOW - timedelta(seconds=number / 10)
    whose = {"channel": "main", "key": key}
    if collection == "jobs":
        run = {"ms": 2.0, "eventId": event_id, **whose, "type": "message", "waitedMs": 3.0}
        return {"at": at, **run, "attempt": 1, "outcome": "recorded", "effects": 1, "thread": "w"}
    if collection == "calls":
        call = {"ms": 90.0, "method": "POST", "endpoint": "/v2/bot/message/reply", "status": 200}
        return {"at": at, **call, "requestId": f"r{number}", "eventId": event_id, "key": key}
    if collection == "conversations":
        profile = {"displayName": f"客{number}"}
        return {"_id": f"main/{key}", **whose, "profile": profile, "applied": [], "outbox": {}}
    if collection == "deadletters":
        return {"_id": event_id, **whose, "cause": "handler: ValueError", "lastAt": at}
    if collection == "held":
        return {
            **whose,
            "n": number,
            "why": "slow",
            "since": at,
            "document": a_document(-1 - number),
        }
    return {"at": NOW - timedelta(seconds=10 * number), "queueDocuments": number % 100}


AMOUNTS = {
    "jobs": 300_000,
    "calls": 250_000,
    "conversations": USERS,
    "deadletters": 10_000,
    "held": 10_000,
    "history": 60_000,
}


def fill(database: Database[Any], documents: int) -> None:
    """Fill every collection, the newest last."""
    create_collections(database, capped_bytes=4 * GIGABYTE)
    with Progress() as bar:
        total = documents + sum(AMOUNTS.values())
        task = bar.add_task("filling", total=total)
        for name, rows in _filling(documents):
            batch = list(islice(rows, BATCH))
            while batch:
                database[name].insert_many(batch, ordered=False)
                bar.advance(task, sum(len(one.get(ROWS, "-")) for one in batch))
                batch = list(islice(rows, BATCH))


def _filling(documents: int) -> Iterator[tuple[str, Iterator[Document]]]:
    yield "recvq", (a_document(n) for n in range(documents - 1, -1, -1))
    for name, amount in AMOUNTS.items():
        rows = (rows_of(name, n) for n in range(amount - 1, -1, -1))
        yield name, _together(rows) if name in (JOBS, CALLS) else rows


def _together(rows: Iterator[Document]) -> Iterator[Document]:
    while batch := list(islice(rows, TOGETHER)):
        yield from documents_of(batch)


def readings(database: Database[Any], documents: int) -> dict[str, Callable[[], object]]:
    """The operator's readings, by name."""
    old = documents - 1
    return {
        "overview": lambda: read_overview(database),
        "history, 1 h": lambda: read_history(database, hours=1),
        "history, 24 h": lambda: read_history(database, hours=24),
        "story, new": lambda: tell(database, f"01E{5:023d}"),
        "story, old": lambda: tell(database, f"01E{old:023d}"),
        "story, by message": lambda: tell(database, f"{old:018d}"),
        "story, by request": lambda: tell(database, "r15000"),
        "word, a name": lambda: search(database, "客7", channel="main"),
        "word, an id": lambda: find_conversation(database, key_of(7), channel="main"),
        "conversation": lambda: read_conversation(database, f"main/{key_of(7)}"),
        "conversation, recent": lambda: recent(database, f"main/{key_of(7)}"),
        "calls, newest": lambda: newest_calls(database, Wanted()),
        "calls, failed (none)": lambda: newest_calls(database, Wanted(failed=True)),
        "dead letters": lambda: found(database[DEADLETTERS], Choice(limit=50), newest_first=True),
    }


@contextmanager
def a_million(documents: int) -> Iterator[tuple[Client, Database[Any]]]:
    """A separate mongod with `documents` documents in recvq."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        mongod = stack.enter_context(EmbeddedMongod(folder / "mongod"))
        client = stack.enter_context(connect(mongod.uri, app_name="bench", socket_seconds=600.0))
        fill(client["line_bot"], documents)
        yield client, client["line_bot"]


def timed(reading: Callable[[], object], times: int) -> Figures:
    """The times of `times` readings in a row, without the first, which opens connections."""
    reading()
    took = []
    for _ in range(times):
        began = time.perf_counter()
        reading()
        took.append((time.perf_counter() - began) * 1000)
    return percentiles(took)


def add_options(parser: argparse.ArgumentParser) -> None:
    """This bench's own."""
    parser.set_defaults(rounds=3)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=30, help="in a row, each (%(default)s)")


def run(options: argparse.Namespace, console: Console) -> list[Report]:
    """Each reading so often in a row, by turns."""
    with a_million(options.documents) as (client, database):
        variants = {
            name: partial(timed, reading, options.times)
            for name, reading in readings(database, options.documents).items()
        }
        rows = by_turns(variants, options.rounds, console)
        version = client.server_info()["version"]
    title = (
        f"{options.documents:,} documents in recvq; overview is promised in {PROMISED_MS:.0f} ms"
    )
    return [Report(title, rows, versions={"MongoDB": version})]
