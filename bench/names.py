"""The time of a search in 100,000 conversations, and the size of their names' index.

A mongod of its own is filled with users and groups, and their names are made searchable as a
dispatcher does it.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from pymongo.database import Database
from rich.console import Console

from bench.report import BenchFailed, Figures, Report, Row, by_turns, percentiles
from dispatcher.commit.committer import Committer
from dispatcher.commit.progress import Progress
from dispatcher.commit.tracker import ProgressTracker
from dispatcher.pool.mailboxes import Mailboxes
from dispatcher.pool.saver import Saver
from jobworker.record.looks import NameParts
from linedesk.compose.private_mongod import EmbeddedMongod, server_version
from linedesk.console.search import search
from linedesk.setup.collections import create_collections
from linedesk.store.client import connect
from linedesk.store.documents import CONVERSATIONS, Document
from linedesk.store.records.conversations import NAME_PARTS

BATCH = 10_000
TIMES = 20
FAMILIES = [
    "佐藤",
    "鈴木",
    "高橋",
    "田中",
    "伊藤",
    "渡辺",
    "山本",
    "中村",
    "小林",
    "加藤",
    "Sato",
    "Suzuki",
    "Tanaka",
    "ワタナベ",
]
GIVEN = [
    "花子",
    "太郎",
    "さくら",
    "陽菜",
    "蓮",
    "湊",
    "結衣",
    "美咲",
    "大翔",
    "Hanako",
    "Taro",
    "ゆい",
    "ハナ",
    "🌸",
]
WORDS = ["佐藤花子", "ﾊﾅ", "sato", "さくら", "99999", "z", "藤", "いない名前", "nobodyatall"]


def conversations(count: int) -> Iterator[Document]:
    """One in fifty is a group of twenty."""
    dice = random.Random(16)
    for n in range(count):
        is_group = n % 50 == 0
        key = f"{'C' if is_group else 'U'}{dice.getrandbits(128):032x}"
        row: Document = {"_id": f"main/{key}", "channel": "main", "key": key, "n": 1}
        row |= {"kind": "group" if is_group else "user", "at": datetime.now(UTC) - timedelta(n)}
        row["profile"] = {"displayName": name(dice, n)}
        if is_group:
            row["members"] = {f"U{m:032x}": {"displayName": name(dice, n + m)} for m in range(20)}
        yield row


def name(dice: random.Random, n: int) -> str:
    return f"{dice.choice(FAMILIES)}{dice.choice(GIVEN)}{n if n % 3 == 0 else ''}"


def fill(database: Database[Any], count: int) -> float:
    """Returns how many seconds it took to make the names searchable."""
    rows = list(conversations(count))
    for start in range(0, count, BATCH):
        database[CONVERSATIONS].insert_many(rows[start : start + BATCH], ordered=False)
    return make_searchable(database)


def make_searchable(database: Database[Any]) -> float:
    """As a dispatcher does it; returns how many seconds it took."""
    committer = Committer(database)
    progress = Progress(committer, feed="bench", epoch=1)
    progress.take_over()
    committer.lead(Saver(Mailboxes(ProgressTracker()), progress))
    began = time.monotonic()
    while database[CONVERSATIONS].find_one({NAME_PARTS: {"$exists": False}}, {"_id": 1}):
        NameParts(committer).look()
    return time.monotonic() - began


def timed(database: Database[Any], word: str) -> Figures:
    """The times of `TIMES` searches in a row."""
    milliseconds = []
    for _ in range(TIMES):
        began = time.perf_counter()
        found = search(database, word, channel="main")
        milliseconds.append((time.perf_counter() - began) * 1000)
    return {**percentiles(milliseconds), "found": len(found)}


def add_options(parser: argparse.ArgumentParser) -> None:
    """This bench's own."""
    parser.set_defaults(rounds=3)
    parser.add_argument("--conversations", type=int, default=100_000)


def run(options: argparse.Namespace, console: Console) -> list[Report]:
    """Fill, then search by turns."""
    count = options.conversations
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(EmbeddedMongod(folder))
        client = stack.enter_context(connect(server.uri, app_name="bench"))
        database = client["bench"]
        create_collections(database)
        seconds = fill(database, count)
        one = database[CONVERSATIONS].find_one(sort=[("_id", 1)])
        if one is None:
            raise BenchFailed("filling: there are no conversations")
        words = [*WORDS, one["key"][:8], f"{one['key'][:8]}…{one['key'][-6:]}"]
        variants = {word: partial(timed, database, word) for word in words}
        rows = by_turns(variants, options.rounds, console)
        stats = database.command("collStats", CONVERSATIONS)
        versions = {"MongoDB": server_version(server.uri)}
    made = {
        "seconds": seconds,
        "index MB": stats["indexSizes"][NAME_PARTS] / 1e6,
        "documents MB": stats["size"] / 1e6,
    }
    return [
        Report(f"a search in {count:,} conversations", rows, versions=versions),
        Report("their names made searchable", [Row("all", [made])], versions=versions),
    ]
