"""Serves a simulator: uvicorn in its own thread, ready when `start` returns and ended when `stop`
returns; as a process of its own until a signal.

The chat page's files are read once and served from memory, with a policy that forbids loading
anything else, except the images and videos that a bot's messages name.
"""

import asyncio
import contextlib
import itertools
import logging
import queue
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from threading import Event, Thread
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI, Response
from fastapi.exceptions import RequestValidationError
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from linesim.http.control import REFUSALS, control_routes, not_valid, refused
from linesim.http.line_api import line_routes
from linesim.http.stopping import Stopping
from linesim.model.errors import StateError
from linesim.model.options import Options
from linesim.people.saving import StateFile
from linesim.people.sim import Sim

log = logging.getLogger(__name__)

MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' https:; "
    "media-src 'self' https:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def page_routes() -> APIRouter:
    """`/` is the page; its files are under /page/."""
    router = APIRouter()
    for file in resources.files("linesim").joinpath("assets").iterdir():
        media_type = MEDIA_TYPES[file.name.rpartition(".")[2]]
        path = "/" if file.name == "index.html" else f"/page/{file.name}"
        router.add_api_route(path, _file(file.read_bytes(), media_type), methods=["GET"])
    return router


def _file(content: bytes, media_type: str) -> Callable[[], Awaitable[Response]]:
    async def serve() -> Response:
        return Response(content, headers=HEADERS, media_type=media_type)

    return serve


STOPPED = 0
SERVER_DIED = 70
START_SECONDS = 10.0
STOP_SECONDS = 10.0
BACKLOG = 2048


class NotStarted(RuntimeError):
    """The server did not come up."""


def create_app(sim: Sim, stopping: Stopping) -> FastAPI:
    """LINE's API, the page and the /sim interface. Paths are exact: an extra slash makes another
    path.
    """
    app = FastAPI(
        title="linesim", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False
    )
    app.include_router(line_routes(sim, stopping))
    app.include_router(control_routes(sim, stopping))
    app.include_router(page_routes())
    app.add_exception_handler(RequestValidationError, not_valid)
    for kind in REFUSALS:
        app.add_exception_handler(kind, refused)
    return app


class SimServer:
    """A simulator on a socket. The constructor opens the port and loads the state; on failure it
    raises OSError or StateError.

    `when_ended` is called from the server's thread as it ends.
    """

    def __init__(self, options: Options, *, when_ended: Callable[[], None] = lambda: None) -> None:
        self.sim = Sim(options)
        self._stopping = Stopping()
        self._socket = socket.create_server((options.host, options.port), backlog=BACKLOG)
        self._state = StateFile(options.state, self.sim.platform) if options.state else None
        if self._state:
            try:
                self._state.start()
            except StateError:
                self._socket.close()
                raise
        host, port = self._socket.getsockname()[:2]
        self.sim.url = f"http://{host}:{port}"
        config = uvicorn.Config(
            create_app(self.sim, self._stopping),
            http=_Protocol,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._server = _Server(config, self._begin_stop)
        self._thread = Thread(target=self._serve, name="linesim-server", daemon=True)
        self._when_ended = when_ended

    def start(self) -> None:
        self._thread.start()
        if not self._server.ready.wait(START_SECONDS):
            raise NotStarted(f"linesim was not ready within {START_SECONDS:g} s")

    def stop(self) -> None:
        """Ends open requests and streams and waits for the server's thread."""
        self._server.ask_to_stop()
        self._thread.join(STOP_SECONDS)
        self._socket.close()
        if self._state:
            self._state.stop()

    def join_webhooks(self) -> None:
        """Waits for the webhooks under way, which end by their own time limit."""
        self._stopping.join(self.sim.platform.options.webhook_timeout_seconds + 1)
        self.sim.close()

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._when_ended()

    def _begin_stop(self) -> None:
        self._stopping.begin()
        self.sim.stop()
        with self.sim.platform.watch.changing():
            self.sim.platform.stream.close()


@contextmanager
def running(**options: Any) -> Iterator[Sim]:
    """A simulator on a free port of this machine, by the options of linesim.model.options; no
    thread outlives it.
    """
    server = SimServer(Options(**options))
    try:
        server.start()
        yield server.sim
    finally:
        server.stop()
        server.join_webhooks()


def serve(*, when_serving: Callable[[Sim], object] = lambda sim: None, **options: Any) -> int:
    """Serves with `linesim.model.options` until SIGTERM or SIGINT and returns the exit code.

    `when_serving` is called once the port is open. Raises OSError or StateError like SimServer.
    """
    signals: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    server = SimServer(Options(**options), when_ended=lambda: signals.put(None))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: signals.put(number))
    server.start()
    when_serving(server.sim)
    log.info("serving url=%s webhook=%s", server.sim.url, server.sim.webhook_url or "none")
    received = signals.get()
    server.stop()
    if received is None:
        log.error("the server ended by itself")
        return SERVER_DIED
    log.info("stopped calls=%d", len(server.sim.calls))
    return STOPPED


@dataclass
class Connection:
    """One connection of a caller; `lost` is when it was closed, in seconds of time.monotonic()."""

    number: int
    lost: float | None = None


class _NotedConnection:
    """Gives each request the time its first bytes came, its connection, and a way to close that
    without an answer.
    """

    app_state: dict[str, Any]
    _numbers = itertools.count(1)

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)  # type: ignore[misc]
        self._connection = Connection(next(self._numbers))
        self.app_state = self.app_state | {
            "close_connection": transport.abort,
            "connection": self._connection,
        }

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.lost = time.monotonic()
        super().connection_lost(exc)  # type: ignore[misc]

    def data_received(self, data: bytes) -> None:
        self.app_state["arrived"] = time.monotonic()
        super().data_received(data)  # type: ignore[misc]


_Protocol = type("_Protocol", (_NotedConnection, AutoHTTPProtocol), {})


class _Server(uvicorn.Server):
    """Signals when it is ready, and when it stops, before it waits for open requests."""

    def __init__(self, config: uvicorn.Config, begin_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self.ready = Event()
        self._begin_stop = begin_stop
        self._woken = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def ask_to_stop(self) -> None:
        """From any thread, also before the start and after the end."""
        self.should_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has stopped
                self._loop.call_soon_threadsafe(self._woken.set)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self.ready.set()

    async def main_loop(self) -> None:
        """Like uvicorn's, but woken by the stop instead of polling ten times a second."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), 1.0)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._begin_stop()
        await super().shutdown(sockets)
