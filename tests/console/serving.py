"""The operator's page on a port of its own, in a thread of the test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from pymongo.database import Database

from console.web.app import create_app
from console.web.desk import Console
from tests.waiting import eventually


@contextmanager
def served(database: Database[Any], console: Console | None = None) -> Iterator[str]:
    """The page's URL, without a slash at its end."""
    app = create_app(console or Console(), reading=database)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, ws="none", timeout_graceful_shutdown=1
    )
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
