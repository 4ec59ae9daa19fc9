"""The real front desk and dispatcher on a mongod and a linesim of their own, for measurements."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pymongo.database import Database
from rich.console import Console
from rich.progress import track

import linesim
from bench.processes import START_SECONDS, child, until
from bench.report import server_version
from bench.webhooks import SECRET
from linedesk.setup.collections import create_collections
from linedesk.setup.private_mongod import EmbeddedMongod, free_port
from linedesk.store.client import connect
from linedesk.store.documents import RECVQ, make_document
from linedesk.store.insert import insert_documents
from linesim.model.deliveries import Event
from linesim.model.world import User

ROOT = Path(__file__).resolve().parent.parent
DATABASE = "line_bot"
TOKEN = "t" * 40
STORED_AT_ONCE = 1_000
NOWHERE = "http://127.0.0.1:9"
"""LINE's address for benches that never call LINE: nothing listens there."""


@dataclass(frozen=True)
class Running:
    """The running processes."""

    sim: linesim.Sim
    database: Database[Any]
    version: str
    """MongoDB's."""
    pids: Mapping[str, int]
    """By process: mongod, frontdesk, dispatcher."""

    def until_taken(self, user: User, text: str) -> None:
        """Send it until the front desk accepts it."""
        until(
            lambda: self.sim.say(user, text).delivered,
            "the front desk takes a webhook",
            seconds=START_SECONDS,
            every=0.1,
        )


def python_path() -> str:
    """With which a process finds this bench/, and the product that this process has."""
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


@contextmanager
def mongod_and_database(folder: Path) -> Iterator[tuple[EmbeddedMongod, Database[Any]]]:
    """A mongod with linedesk's collections."""
    with (
        EmbeddedMongod(folder / "mongod") as mongod,
        connect(mongod.uri, app_name="bench") as client,
    ):
        create_collections(client[DATABASE])
        yield mongod, client[DATABASE]


def store(
    database: Database[Any], events: Sequence[Event], console: Console, *, into: str = RECVQ
) -> Any:
    """Put the events into recvq, as a front desk would; the `_id` of the last one."""
    batches = range(0, len(events), STORED_AT_ONCE)
    for first in track(batches, "storing", console=console, transient=True):
        now = datetime.now(UTC)
        batch = [
            make_document(event, channel="main", accept_time=now)
            for event in events[first : first + STORED_AT_ONCE]
        ]
        insert_documents(database[into], batch, timeout_seconds=30)
    return batch[-1]["_id"]


@contextmanager
def frozen(dispatcher: int) -> Iterator[None]:
    """It stands still until the end of the block, and keeps its lease, since no other takes it."""
    os.kill(dispatcher, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(dispatcher, signal.SIGCONT)


def environ_of(mongodb_uri: str, *, line: str = NOWHERE, **settings: str) -> dict[str, str]:
    """The environment of a front desk or a dispatcher, with these settings beside the shared ones.

    A module of bench/ can be the bot, as `BOT="bench.latency:bot"`.
    """
    return {
        **os.environ,
        "LINE_CHANNEL_SECRET": SECRET,
        "LINE_CHANNEL_ACCESS_TOKEN": TOKEN,
        "LINE_API_BASE": line,
        "LINE_API_DATA_BASE": line,
        "MONGODB_URI": mongodb_uri,
        "MONGODB_DATABASE": DATABASE,
        "PYTHONPATH": python_path(),
        **settings,
    }


def process(
    module: str, environ: Mapping[str, str], *words: str, **options: Any
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """`python -m MODULE WORDS` until the end of the block; the options are those of `child`."""
    return child(module, [sys.executable, "-m", module, *words], env=environ, **options)


def simulated_line(desk_port: int, **options: Any) -> AbstractContextManager[linesim.Sim]:
    """linesim in this process, which posts to a front desk on this port; without rate limits,
    unless they are among the options.
    """
    url = f"http://127.0.0.1:{desk_port}/callback"
    chosen = {"rate_limits": False, **options}
    return linesim.running(**chosen, secret=SECRET, token=TOKEN, webhook_url=url)


@contextmanager
def running(
    folder: Path,
    *,
    log: Path | None = None,
    line: Mapping[str, Any] = MappingProxyType({}),
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Running]:
    """Front desk and dispatcher with these settings; `line`: options of the simulator.

    Both write to `log`, with the dispatcher's line for each turn.
    """
    with ExitStack() as stack:
        mongod, database = stack.enter_context(mongod_and_database(folder))
        port = free_port()
        sim = stack.enter_context(simulated_line(port, **line))
        environ = environ_of(
            mongod.uri,
            line=sim.url,
            FRONTDESK_PORT=str(port),
            SPOOL_PATH=str(folder / "spool.db"),
            **settings,
        )
        output = {"log": log} if log else {}
        verbose = ["--verbose"] if log else []
        pids = {"mongod": mongod.pid or 0}
        for name, *words in (["frontdesk"], ["dispatcher", *verbose]):
            pids[name] = stack.enter_context(process(name, environ, *words, **output)).pid
        yield Running(sim, database, server_version(mongod.uri), pids)
