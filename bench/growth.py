"""How the rate changes with size: events a POST, documents, conversations, timers, groups.

The first part posts to a front desk alone. The others hand out stored events to the real
dispatcher. Its bot keeps a number for each conversation: each event reads and writes its
conversation. Every part compares with its own first row. mongod has a cache of 0.25 GB.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from linebot.v3.webhooks import MessageEvent
from pymongo.database import Database
from rich.console import Console
from rich.progress import track

from bench.backlog import drained
from bench.load import send_all
from bench.report import Figures, Report, by_turns
from bench.stack import DATABASE, environ_of, mongod_and_database, process, timer_row
from bench.started import started_log
from bench.waiting import listens
from bench.webhooks import request_of, text_event
from linedesk import Bot, Talk
from linedesk.compose.private_mongod import EmbeddedMongod, free_port, server_version
from linedesk.setup.collections import create_collections
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import CONVERSATIONS, SCHEDULE, Document
from linesim.model.deliveries import Event

KEYS = 1_000
CAPPED_BYTES = 256 * MEGABYTE
BATCH = 1_000
CONNECTIONS = 16
LEAST_POSTS = 320
ROOM_POSTS = 20
"""Posted before the clock runs."""
# The number of events in the conversation that all others are copies of.
WARM = 20

EVENTS_A_POST = (1, 5, 20, 100)
TEXT_BYTES = {"0.5 kB": 0, "4 kB": 3_500, "16 kB": 15_500}
CONVERSATION_COUNTS = (10_000, 100_000, 1_000_000)
TIMER_COUNTS = (0, 10_000, 100_000, 1_000_000)
MEMBERS = (1, 20, 300)
Variants = dict[str, Callable[[], Figures]]

bot = Bot()
_started = started_log()


@bot.add(MessageEvent)
def handler(event: MessageEvent, talk: Talk) -> None:
    """Keep a number, so that something is recorded each time."""
    _started(talk.event_id)
    talk.data["count"] = talk.data.get("count", 0) + 1


# Events a POST.


@contextmanager
def front_desk(folder: Path, uri: str) -> Iterator[int]:
    """A front desk alone; its port."""
    port = free_port()
    spool = str(folder / "spool.db")
    environ = environ_of(uri, FRONTDESK_PORT=str(port), SPOOL_PATH=spool)
    with process("frontdesk", environ, ready=lambda: listens(port)):
        yield port


def accepted(port: int, *, events: int, each: int) -> Figures:
    """Events a second through connections that never wait, with `each` events in a POST."""
    posts = max(events // each, LEAST_POSTS)
    requests = [
        request_of(*(text_event(post % KEYS) for _ in range(each)))
        for post in range(posts + ROOM_POSTS)
    ]
    send_all(port, requests[:ROOM_POSTS], connections=CONNECTIONS).checked()
    answered = send_all(port, requests[ROOM_POSTS:], connections=CONNECTIONS).checked()
    return {"events/s": answered.answers * each / answered.seconds}


# Hand-out.


class Room:
    """A mongod on which each case has a database of its own, filled before its first turn."""

    def __init__(self, mongod: EmbeddedMongod, database: Database[Any], console: Console) -> None:
        self.mongod, self.database, self.console = mongod, database, console

    def made(self, name: str) -> Database[Any]:
        """A database with a dispatcher's saved progress, from which others continue."""
        database = self.database.client[f"{DATABASE}_{name}"]
        create_collections(database, capped_bytes=CAPPED_BYTES)
        self.handed_out(database, [text_event(0) for _ in range(WARM)])
        return database

    def handed_out(self, database: Database[Any], events: Sequence[Event]) -> Figures:
        """Events a second, from the first handler to the last one."""
        return drained(self.mongod, database, events, self.console, "bench.growth:bot")

    def fill(
        self, database: Database[Any], name: str, count: int, row: Callable[[int], Document]
    ) -> None:
        """Insert `count` rows in bulk."""
        for first in track(
            range(0, count, BATCH), f"{count:,} {name}", console=self.console, transient=True
        ):
            rows = [row(number) for number in range(first, min(count, first + BATCH))]
            database[name].insert_many(rows, ordered=False)


def with_texts(room: Room, *, text_bytes: int, events: int) -> Callable[[], Figures]:
    """Events whose text is longer by `text_bytes`."""
    database = room.made(f"texts_{text_bytes}")
    text = "はい" + "a" * text_bytes
    return lambda: room.handed_out(database, [text_event(n % KEYS, text) for n in range(events)])


def with_conversations(room: Room, *, count: int, events: int) -> Callable[[], Figures]:
    """Events of random conversations out of `count`, each in the dispatcher's form."""
    database = room.made(f"conversations_{count}")
    template = database[CONVERSATIONS].find_one() or {}

    def row(number: int) -> Document:
        key = f"U{number + 1:032x}"
        return {**template, "_id": f"{template['channel']}/{key}", "key": key}

    room.fill(database, CONVERSATIONS, count, row)
    chance = random.Random(count)

    def measure() -> Figures:
        users = [chance.randint(1, count) for _ in range(events)]
        return room.handed_out(database, [text_event(user) for user in users])

    return measure


def with_timers(room: Room, *, count: int, events: int) -> Callable[[], Figures]:
    """Events while `count` timers wait for later days."""
    database = room.made(f"timers_{count}")
    next_year = datetime.now(UTC).replace(microsecond=0) + timedelta(days=365)

    def row(number: int) -> Document:
        return timer_row(f"U{number:032x}", next_year + timedelta(seconds=number))

    room.fill(database, SCHEDULE, count, row)
    return lambda: room.handed_out(database, [text_event(n % KEYS) for n in range(events)])


def with_members(room: Room, *, count: int, events: int) -> Callable[[], Figures]:
    """Events of one group with `count` members who write by turns."""
    database = room.made(f"members_{count}")
    return lambda: room.handed_out(
        database, [text_event(n % count, group=1) for n in range(events)]
    )


def variants_of(part: str, room: Room, port: int, options: argparse.Namespace) -> Variants:
    """The variants of one part, by name."""
    events = options.events
    match part:
        case "posts":
            return {
                f"{each} a POST": partial(accepted, port, events=events, each=each)
                for each in EVENTS_A_POST
            }
        case "documents":
            return {
                name: with_texts(room, text_bytes=more, events=events)
                for name, more in TEXT_BYTES.items()
            }
        case "conversations":
            return {
                f"{count:,} conversations": with_conversations(room, count=count, events=events)
                for count in options.conversations
            }
        case "timers":
            return {
                f"{count:,} timers wait": with_timers(room, count=count, events=events)
                for count in TIMER_COUNTS
            }
    return {
        f"{count} members of one group": with_members(room, count=count, events=events)
        for count in MEMBERS
    }


TITLES = {
    "posts": "Events accepted, by events in a POST",
    "documents": "Events handed out and recorded, by size of their documents",
    "conversations": "The same, by number of conversations",
    "timers": "The same, by timers that wait",
    "members": "The same in one group, by members who write",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """This bench's own."""
    parser.add_argument("--events", type=int, default=5_000, help="of each measurement")
    parser.add_argument("--parts", nargs="+", choices=list(TITLES), default=list(TITLES))
    parser.add_argument(
        "--conversations",
        type=int,
        nargs="+",
        default=list(CONVERSATION_COUNTS),
        help="5000000 takes about 10 GB of disk",
    )


def run(options: argparse.Namespace, console: Console) -> list[Report]:
    """One part after the other, each by turns."""
    reports = []
    for part in options.parts:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            mongod, database = stack.enter_context(mongod_and_database(folder))
            # Its own part alone needs it: elsewhere it would only take from the processor.
            port = stack.enter_context(front_desk(folder, mongod.uri)) if part == "posts" else 0
            variants = variants_of(part, Room(mongod, database, console), port, options)
            rows = by_turns(variants, options.rounds, console)
            versions = {"MongoDB": server_version(mongod.uri)}
        reports.append(Report(TITLES[part], rows, next(iter(variants)), versions=versions))
    return reports
