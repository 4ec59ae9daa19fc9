"""The operator's page on a port of its own, in a thread of the test."""

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import uvicorn

from linedesk.launch.console import server_config
from linedesk.page import live, page_context
from linedesk.page.app import create_app
from linedesk.page.gatekeeping import Console
from tests.rows import Db
from tests.waiting import eventually

READING_SECONDS = 15.0


@contextmanager
def served(
    database: Db,
    console: Console | None = None,
    *,
    server: Mapping[str, Any] | None = None,
    waits_for_readings: bool = True,
    **limits: Any,
) -> Iterator[str]:
    """The page's URL, without a slash at its end; `limits` are those of `create_app`, `server`
    those of `server_config`.

    A page waits for its reading or act, however busy the machine is, unless `waits_for_readings`
    is off: then it shows what it knew, as it does where MongoDB hangs.
    """
    times = mock.patch.multiple(
        live, FIRST_SECONDS=READING_SECONDS, PATIENCE_SECONDS=READING_SECONDS
    )
    console = console or Console()
    acts = mock.patch.object(page_context, "ACT_SECONDS", READING_SECONDS)
    with acts if waits_for_readings else nullcontext():
        app = create_app(console, reading=database, **limits)
    config = server_config(app, console, **(server or {}))
    # On a busy machine a test may let a connection rest for longer than the page does.
    config.timeout_keep_alive = 60
    running = uvicorn.Server(config)
    with (
        times if waits_for_readings else nullcontext(),
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        port = listener.getsockname()[1]
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        eventually(lambda: running.started)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            running.should_exit = True
            thread.join(10)
        assert not thread.is_alive()
