"""The operator's page on a port of its own, in a thread of the test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from pymongo.database import Database

from linedesk.compose.console import server_config
from linedesk.console.web.app import create_app
from linedesk.console.web.layout import Console
from tests.waiting import eventually


@contextmanager
def served(database: Database[Any], console: Console | None = None, **limits: Any) -> Iterator[str]:
    """The page's URL, without a slash at its end; `limits` are those of `server_config`."""
    console = console or Console()
    app = create_app(console, reading=database)
    config = server_config(app, console, **limits)
    # On a busy machine a test may let a connection rest for longer than the page does.
    config.timeout_keep_alive = 60
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        eventually(lambda: server.started)
        yield f"http://127.0.0.1:{port}"
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()
