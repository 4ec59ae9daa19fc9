"""The response times of the console with a million documents in recvq, over HTTP.

It uses the database of `bench/readings.py`. `opened` is a page opened by an operator, `live` the
updates that the page then fetches.
"""

from __future__ import annotations

import argparse
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import requests
import uvicorn
from pymongo.database import Database
from rich.console import Console as Terminal

from bench.readings import a_million, key_of, timed
from bench.report import Figures, Report, by_turns
from linedesk.console.web.app import create_app
from linedesk.console.web.page_context import Console

PROMISED_MS = 100.0
LIVE = {"x-live": "1"}
EVENT, USER = f"01E{5:023d}", key_of(7)
PAGES = {
    "overview": "/",
    "overview, 24 h": "/?hours=24",
    "conversation": f"/conversation/main/{USER}",
    "story of an event": f"/event/{EVENT}",
    "search, a name": "/search?q=客7",
    "dead letters": "/letters",
    "calls": "/calls",
    "audit": "/audit",
}


@contextmanager
def served(database: Database[Any]) -> Iterator[str]:
    """The page on a port of its own; its URL."""
    config = uvicorn.Config(create_app(Console(), reading=database), log_config=None)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def add_options(parser: argparse.ArgumentParser) -> None:
    """This bench's own."""
    parser.set_defaults(rounds=3)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=30, help="in a row, each (%(default)s)")


def run(options: argparse.Namespace, console: Terminal) -> list[Report]:
    """Each page in both ways, by turns."""
    with a_million(options.documents) as (client, database), served(database) as url:
        http = requests.Session()

        def fetched(path: str, headers: dict[str, str]) -> Figures:
            def get() -> None:
                http.get(url + path, headers=headers).raise_for_status()

            return timed(get, options.times)

        rows = [
            row
            for name, path in PAGES.items()
            for row in by_turns(
                {"opened": partial(fetched, path, {}), "live": partial(fetched, path, LIVE)},
                options.rounds,
                console,
                case={"page": name},
            )
        ]
        version = client.server_info()["version"]
    title = f"{options.documents:,} documents in recvq; promised: opened in {PROMISED_MS:.0f} ms"
    return [Report(title, rows, "opened", versions={"MongoDB": version})]
