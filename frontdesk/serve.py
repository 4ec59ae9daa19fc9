"""One front desk process from the first socket to the last answer."""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import resource
import signal
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn
from pymongo.database import Database

from frontdesk.app import Desk, Store, create_app
from frontdesk.commit import GroupCommit
from frontdesk.connection import MOST_CONNECTIONS, Connection
from frontdesk.errors import CannotListen
from frontdesk.overload import Overload
from frontdesk.storage import Recvq, connect_storage
from frontdesk.store import Spools, TwoStores
from recvq.documents import Document
from recvq.drain import Drain
from recvq.guard import Guard
from recvq.spool import Spool

log = logging.getLogger(__name__)

EXIT_OK = 0
EXIT_SOFTWARE = 70
SIGNALS = (signal.SIGTERM, signal.SIGINT)
BACKLOG = 2048
# Longer than a proxy keeps its idle connections (nginx: 60 s), so that never this side closes one
# at the moment when a webhook is sent on it: LINE would count it as failed.
KEEP_ALIVE_SECONDS = 75
# Every request ends by itself within its second; this only bounds what a stop waits for.
DRAIN_SECONDS = 3


@dataclass(frozen=True)
class Address:
    """Where to listen. With `reuse_port` several processes share the port, each asking for it."""

    host: str = "127.0.0.1"
    port: int = 8000
    reuse_port: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None


@dataclass(frozen=True)
class SpoolAt:
    """The host's spool: its file, and how much of the disk it may take."""

    path: Path
    max_bytes: int


def serve(
    desk: Desk, address: Address, *, mongodb_uri: str, database: str, spool: SpoolAt | None = None
) -> int:
    """Take webhooks until SIGTERM or SIGINT; returns the exit code. Belongs to the main thread.

    Raises CannotListen where the address or the certificate cannot be used. Without MongoDB it
    starts all the same, spools what it cannot store there, and refuses what it cannot spool.
    """
    _allow_connections()
    with (
        listen(address) as listener,
        connect_storage(mongodb_uri) as client,
        _guarding(client[database]) as guard,
    ):
        store = _store(client[database], guard, spool)
        server = Server(_config(desk, address, store), store)
        server.run(sockets=[listener])
    return EXIT_SOFTWARE if store.dead else EXIT_OK


@contextlib.contextmanager
def _guarding(database: Database[Document]) -> Iterator[Guard]:
    guard = Guard(database)
    guard.start()
    try:
        yield guard
    finally:
        guard.stop()
        guard.join()


def _store(database: Database[Document], guard: Guard, spool: SpoolAt | None) -> Store:
    recvq = Recvq(database, guard)
    if spool is None:
        return GroupCommit(recvq.insert, recvq.probe)
    writer, reader, drained = (Spool(spool.path, max_bytes=spool.max_bytes) for _ in range(3))
    drain = Drain(drained, database, inserting=guard.inserting)
    return TwoStores(recvq.insert, recvq.probe, Spools(writer, reader), drain)


def listen(address: Address) -> socket.socket:
    """A listening socket, made here and not by uvicorn: it can share its port, and explain itself.

    Raises CannotListen with the setting to change.
    """
    host, port = address.host, address.port
    try:
        family, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(
            target[:2], family=family, backlog=BACKLOG, reuse_port=address.reuse_port
        )
    except OSError as error:
        raise CannotListen(_explain(error, host, port)) from error


def _allow_connections() -> None:
    """Each takes a file descriptor; the usual limit of 1,024 would leave none for the stores."""
    wanted = 2 * MOST_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _explain(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"{host} port {port} is in use: stop the process that has it or choose another "
            "FRONTDESK_PORT; front desks share a port only if each was started to share it"
        )
    if error.errno == errno.EACCES:
        return f"FRONTDESK_PORT {port} is not allowed: below 1024 it takes CAP_NET_BIND_SERVICE"
    return f"FRONTDESK_HOST {host} is not an address of this machine: {error.strerror}"


def _config(desk: Desk, address: Address, store: Store) -> uvicorn.Config:
    config = uvicorn.Config(
        Overload(create_app(desk, store)),
        http=Connection,
        ssl_certfile=address.tls_cert,
        ssl_keyfile=address.tls_key,
        # Only a proxy on this machine may say whom it speaks for.
        forwarded_allow_ips="127.0.0.1,::1",
        server_header=False,
        lifespan="on",
        ws="none",
        log_config=None,
        access_log=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    try:
        config.load()
    except (ssl.SSLError, OSError) as error:
        raise CannotListen(
            f"FRONTDESK_TLS_CERT {address.tls_cert} and FRONTDESK_TLS_KEY {address.tls_key} "
            f"cannot be used: {error}"
        ) from error
    return config


def _spare_the_collector() -> None:
    """Keep what start-up made out of every later collection, and collect less often.

    A full collection over all imported modules was measured to stop every request for 40 ms, and
    the requests of a single group to be enough for a young one; they leave no cycles behind.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


class Server(uvicorn.Server):
    """uvicorn's server with our signals: the first one stops in order, a second one exits at once.

    It also stops when the store has died, since only a new process could store again.
    """

    def __init__(self, config: uvicorn.Config, store: Store) -> None:
        super().__init__(config)
        self._store = store

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take the signals while serving; uvicorn's own would raise them again after the stop,
        and the process would end by SIGTERM instead of with exit code 0.
        """
        before = {number: signal.signal(number, self.handle_exit) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop in order; called again, leave at once."""
        if self.should_exit:
            os._exit(128 + sig)
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the store, take connections, and only then say so."""
        await super().startup(sockets)
        _spare_the_collector()
        for listener in sockets or []:
            host, port = listener.getsockname()[:2]
            log.info(
                "listening host=%s port=%d tls=%s pid=%d",
                host,
                port,
                self.config.is_ssl,
                os.getpid(),
            )

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second uvicorn asks whether to stop."""
        return await super().on_tick(counter) or self._store.dead
