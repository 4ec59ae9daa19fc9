"""uvicorn's server with linedesk's sockets, signals and shutdown; reports to the service manager.

A stop loses no request: clients are still served while they are asked to leave. A socket that
systemd opened stays open while no front desk runs; its clients wait for the next process.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from frontdesk.errors import CannotListen
from frontdesk.group_commit import GroupCommit
from frontdesk.http import MOST_CONNECTIONS, Connection, Overload
from frontdesk.metrics import FrontdeskMetrics, status_words
from frontdesk.tls import TlsServer
from linedesk.runtime.garbage import spare_the_collector
from linedesk.runtime.metrics import MetricsSnapshots
from linedesk.runtime.service_manager import ServiceManager, signals_taken
from linedesk.store.documents import Document

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.02
# The sum of all limits of a stop, and the closing of both stores.
STOP_SECONDS = 20.0
CLOSE = (b"connection", b"close")
# The server reports once in so many ticks, which are tenths of a second.
TELL_TICKS = 10
# A stop first serves on as before: clients with an open connection get an answer and leave.
LINGER_SECONDS = 1.0
# A new connection's time to send its request; others wait, and LINE gives up after 2 s.
SILENT_SECONDS = 0.4
# Every request ends within its own second; this limit only bounds the stop.
DRAIN_SECONDS = 3.0
# The time for the client to close as well; under TLS not every client does.
CLOSE_SECONDS = 0.2


class FrontdeskServer(uvicorn.Server):
    """The first signal stops in order, the second exits at once.

    It also stops when the store has died, since only a new process could store again. `hanging`
    names a thread that hangs; the service manager is then told of the hang and gets no more
    keep-alives. Once a second the server collects all figures for `status` and metrics.
    """

    capture_signals = signals_taken

    def __init__(
        self,
        config: uvicorn.Config,
        store: GroupCommit,
        *,
        tls: ssl.SSLContext | None,
        figures: FrontdeskMetrics,
        service: ServiceManager,
        hanging: Callable[[], str | None],
        lingers: bool = True,
    ) -> None:
        super().__init__(config)
        self._lingers = lingers
        figures.set("connections", lambda: len(self._connections))
        self._store = store
        self._tls = tls
        self._figures = figures
        self._service = service
        self._hanging = hanging
        self.snapshots = MetricsSnapshots(figures.registry)
        self.snapshots.take()
        self._state, self._words = "starting", "opening the stores"
        self._hung: str | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop in order; a second call exits at once."""
        if self.should_exit:
            os._exit(128 + sig)
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the store and take connections, then report readiness."""
        await self._store.open()
        await super().startup([])
        for listener in sockets or []:
            place = listener.getsockname()[:2]
            self.servers.append(await self._listen(listener))
            tls = self._tls is not None
            log.info("listening host=%s port=%d tls=%s pid=%d", *place, tls, os.getpid())
        spare_the_collector()
        self._state = "working"
        self._words = self._status()
        self._service.ready(self._words)

    async def on_tick(self, counter: int) -> bool:
        """uvicorn calls this ten times a second and stops on True."""
        if counter % TELL_TICKS == 0:
            self._figures.refusals.tell_in_time()
            self._tell()
        return await super().on_tick(counter) or self._store.dead

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let all clients leave, then close the stores."""
        began, connections = time.monotonic(), self._connections
        self._state = "stopping"
        self._words = f"stopping · {self._status()}"
        self._service.stopping(self._words, seconds=STOP_SECONDS)
        log.info("stopping connections=%d", len(connections))
        if self._lingers:
            await self._linger()
        for server in self.servers:
            server.close()
        await self._see_off()
        for task in self.server_state.tasks:
            task.cancel()
        left = len(connections)
        for connection in list(connections):
            connection.abort()
        await self._store.close()
        self._figures.refusals.tell()
        self.snapshots.take()
        log.info("stopped connections_left=%d seconds=%.1f", left, time.monotonic() - began)

    # --- taking connections

    async def _listen(self, listener: socket.socket) -> Any:
        state = self.server_state
        connect = partial(
            Connection, config=self.config, server_state=state, app_state=self.lifespan.state
        )
        if self._tls is not None:
            assert isinstance(self.config.app, Overload)
            return TlsServer(
                listener,
                self._tls,
                connect,
                self._connections,
                self.config.app,
            )
        loop = asyncio.get_running_loop()
        return await loop.create_server(connect, sock=listener, backlog=self.config.backlog)

    @property
    def _connections(self) -> set[Connection]:
        return self.server_state.connections  # type: ignore[return-value]

    # --- reporting

    def tell(self) -> Document:
        """The fields of the row in `status` beside the figures; from any thread."""
        waits = self._state == "working" and self._store.unavailable is not None
        return {"state": "waiting" if waits else self._state}

    def _status(self) -> str:
        """Collect all figures; returns them as one line."""
        return status_words(self.snapshots.take(), trouble=self._store.trouble)

    def _tell(self) -> None:
        hanging, status = self._hanging(), self._status()
        if hanging is None:
            self._words = status
            self._service.alive(self._words)
        else:
            self._words = f"{hanging} · {status}"
            self._service.unwell(self._words)
        if hanging != self._hung:
            self._hung = hanging
            if hanging is not None:
                log.error('front desk hangs reason="%s"', hanging)

    # --- stopping

    async def _linger(self) -> None:
        """Keep serving with last answers until all present clients have left."""
        here = set(self._connections)
        state = self.server_state
        state.default_headers = [*state.default_headers, CLOSE]
        for connection in here:
            connection.ask_to_leave()
        await self._until(lambda: here.isdisjoint(self._connections), LINGER_SECONDS)

    async def _see_off(self) -> None:
        """Wait briefly for requests that may be on their way, then for the answers."""
        connections = self._connections

        def heard() -> bool:
            now = time.monotonic()
            return all(one.awaited_seconds(now) >= SILENT_SECONDS for one in connections)

        await self._until(heard, SILENT_SECONDS)
        for connection in list(connections):
            connection.shutdown()
        await self._until(lambda: not self.server_state.tasks, DRAIN_SECONDS)
        await self._until(lambda: not connections, CLOSE_SECONDS)

    async def _until(self, done: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                return
            await asyncio.sleep(LOOK_SECONDS)


# All connections may arrive at once; the kernel allows 4,096 (net.core.somaxconn).
BACKLOG = 4096
EVERYWHERE = ("0.0.0.0", "::")


@dataclass(frozen=True)
class Address:
    """Where to listen. With `reuse_port` several processes share the port; all must ask for it."""

    host: str = "127.0.0.1"
    port: int = 8000
    reuse_port: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None


@contextlib.contextmanager
def listeners(
    address: Address, inherited: Sequence[socket.socket] = ()
) -> Iterator[Sequence[socket.socket]]:
    """The listening sockets, closed at the end; with inherited ones the address is not bound.

    Closing one does not affect other processes that hold it. Raises CannotListen, which names the
    setting to change.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(one) for one in inherited]
        for one in sockets:
            _check(one)
        if sockets:
            _compare(address, sockets)
        else:
            sockets = [stack.enter_context(_listen(address))]
        yield sockets


def allow_connections() -> int:
    """Return how many connections may be open at a time.

    Each takes a file descriptor. As many are reserved for the stores and for connections that are
    closing. The usual limit of 1,024 is raised as far as allowed.
    """
    wanted = 2 * MOST_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    most = wanted // 2
    if most < MOST_CONNECTIONS:
        log.warning(
            "the limit of open files allows only few connections: raise it (ulimit -n %d, "
            "LimitNOFILE=) connections=%d",
            2 * MOST_CONNECTIONS,
            most,
        )
    return most


def _listen(address: Address) -> socket.socket:
    """Made here and not by uvicorn: the socket can share its port, and errors name the setting."""
    host, port = address.host, address.port
    try:
        family, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(
            target[:2], family=family, backlog=BACKLOG, reuse_port=address.reuse_port
        )
    except OSError as error:
        raise CannotListen(_explain(error, host, port)) from error


def _check(inherited: socket.socket) -> None:
    if (
        inherited.family not in (socket.AF_INET, socket.AF_INET6)
        or inherited.type != socket.SOCK_STREAM
        or not inherited.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    ):
        raise CannotListen(
            "the socket unit hands over a socket that does not listen for TCP: it must have "
            "ListenStream= with a port, and Accept=no"
        )


def _compare(address: Address, inherited: Sequence[socket.socket]) -> None:
    places = [one.getsockname()[:2] for one in inherited]
    if any(port == address.port and host in (address.host, *EVERYWHERE) for host, port in places):
        return
    log.warning(
        "inherited socket differs from the settings, the settings are ignored "
        "host=%s port=%d FRONTDESK_HOST=%s FRONTDESK_PORT=%d",
        *places[0],
        address.host,
        address.port,
    )


def _explain(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"{host} port {port} is in use: stop the process that has it or choose another "
            "FRONTDESK_PORT; front desks share a port only if each was started to share it"
        )
    if error.errno == errno.EACCES:
        return f"FRONTDESK_PORT {port} is not allowed: below 1024 it takes CAP_NET_BIND_SERVICE"
    return f"FRONTDESK_HOST {host} is not an address of this machine: {error.strerror}"
