"""The real front desk and dispatcher on a mongod and a linesim of their own, for measurements."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from pymongo.database import Database

import linesim
from linedesk.compose import children
from linedesk.compose.private_mongod import EmbeddedMongod, free_port, server_version
from linedesk.store.client import connect
from linedesk.store.collections import create_collections
from linesim.model.world import User

ROOT = Path(__file__).resolve().parent.parent
DATABASE = "line_bot"


@dataclass(frozen=True)
class Running:
    """What runs."""

    sim: linesim.Sim
    database: Database[Any]
    version: str
    """MongoDB's."""
    pids: Mapping[str, int]
    """By process: mongod, frontdesk, dispatcher."""

    def until_taken(self, user: User, text: str) -> None:
        """Say it until the front desk takes it."""
        pause = threading.Event()
        while not self.sim.say(user, text).delivered:
            pause.wait(0.1)


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


@contextmanager
def running(
    folder: Path,
    *,
    output: IO[bytes] | int = subprocess.DEVNULL,
    line: Mapping[str, Any] = MappingProxyType({}),
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Running]:
    """The processes with these settings beside those that the measurements share.

    `line`: options of the simulator, which has no rate limits without them.

    A module of bench/ can be the bot, as `bench.latency:bot`. The dispatcher's log of each turn
    goes to `output`.
    """
    with ExitStack() as stack:
        mongod, database = stack.enter_context(mongod_and_database(folder))
        port = free_port()
        url = f"http://127.0.0.1:{port}/callback"
        sim = stack.enter_context(
            linesim.running(**{"rate_limits": False, **line}, webhook_url=url)
        )
        environ = {
            **os.environ,
            "LINE_CHANNEL_SECRET": sim.secret,
            "LINE_CHANNEL_ACCESS_TOKEN": sim.token,
            "LINE_API_BASE": sim.url,
            "LINE_API_DATA_BASE": sim.url,
            "MONGODB_URI": mongod.uri,
            "MONGODB_DATABASE": DATABASE,
            "FRONTDESK_PORT": str(port),
            "SPOOL_PATH": str(folder / "spool.db"),
            "PYTHONPATH": python_path(),
            **settings,
        }
        pids = {"mongod": mongod.pid or 0}
        verbose = [] if output is subprocess.DEVNULL else ["--verbose"]
        for name, *words in (["frontdesk"], ["dispatcher", *verbose]):
            process = children.start(
                [sys.executable, "-m", name, *words], env=environ, stdout=output, stderr=output
            )
            stack.callback(children.stop, process, timeout_seconds=10)
            pids[name] = process.pid
        yield Running(sim, database, server_version(mongod.uri), pids)
