"""How long the operator's page takes with a million documents in recvq, over HTTP.

On the database of `bench/readings.py`. Run it as `python bench/pages.py`.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import requests
import uvicorn
from pymongo.database import Database
from readings import a_million, key_of, timed
from rich.console import Console as Terminal
from rich.table import Table

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


def main() -> None:
    """Measure and print one table: a page as a person opens it, and as it fetches itself."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--documents", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=30)
    chosen = options.parse_args()
    table = Table("page", "opened p50 ms", "p90 ms", "live p50 ms", "p90 ms")
    table.title = f"{chosen.documents:,} documents in recvq"
    with a_million(chosen.documents) as (_, database), served(database) as url:
        http = requests.Session()
        for name, path in PAGES.items():
            cells = []
            for headers in ({}, LIVE):
                took = timed(lambda: http.get(url + path, headers=headers), chosen.rounds)  # noqa: B023
                cuts = statistics.quantiles(took, n=10)
                cells += [f"{cuts[4]:.1f}", f"{cuts[8]:.1f}"]
            style = "red" if float(cells[0]) > PROMISED_MS else None
            table.add_row(name, *cells, style=style)
    Terminal().print(table)


if __name__ == "__main__":
    main()
