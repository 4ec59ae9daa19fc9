"""The life of one front desk process, from its first socket to its last answer."""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pymongo
import uvicorn
from prometheus_client import CollectorRegistry
from pymongo.database import Database

from frontdesk.app import FrontDesk, WebhookSettings
from frontdesk.errors import CannotListen
from frontdesk.group_commit import GroupCommit
from frontdesk.http import PROXIES, Connection, Overload
from frontdesk.metrics import FrontdeskMetrics
from frontdesk.recvq import Recvq, connect_storage
from frontdesk.server import BACKLOG, Address, FrontdeskServer, allow_connections, listeners
from frontdesk.tls import Certificate, load
from linedesk.runtime.exit_codes import Exit
from linedesk.runtime.liveness import moment
from linedesk.runtime.service_manager import ServiceManager
from linedesk.runtime.status_row import StatusRow
from linedesk.store.collections import require_schema
from linedesk.store.documents import STATUS, Document
from linedesk.store.errors import AccessRefused, StoreUnavailable
from linedesk.store.queue.guard import Guard
from linedesk.store.spool.drain import Drain
from linedesk.store.spool.spool import Spool
from linedesk.store.spool.spool_file import require_spool

log = logging.getLogger(__name__)

# Longer than a proxy keeps idle connections (nginx: 60 s). The proxy therefore always closes first:
# if this side closed while a webhook was being sent, LINE would count it as failed.
KEEP_ALIVE_SECONDS = 75
# A start probes both stores, for three seconds at most.
START_SECONDS = 15.0
BESIDE_SECONDS = 0.5
SCHEMA_SECONDS = 0.5


@dataclass(frozen=True)
class SpoolAt:
    """The host's spool: its file and its size limit."""

    path: Path
    max_bytes: int


def serve(
    desk: WebhookSettings,
    address: Address,
    *,
    mongodb_uri: str,
    database: str,
    spool: SpoolAt,
    service: ServiceManager | None = None,
    inherited: Sequence[socket.socket] = (),
    registry: CollectorRegistry | None = None,
    lingers: bool = True,
) -> int:
    """Take webhooks until SIGTERM or SIGINT; returns the exit code. Belongs to the main thread.

    With `inherited` sockets, which must listen, the address is not bound. Raises CannotListen if a
    socket, the address or the certificate cannot be used, SetupError if another thing than a spool
    has its name. A start does not need MongoDB: documents then go to the spool, and requests are
    refused only if the spool cannot take them. The figures are on the registry and in this
    process's row of `status`.
    """
    service = service or ServiceManager()
    require_spool(spool.path)
    service.starting("opening the stores", seconds=START_SECONDS)
    most_connections = allow_connections()
    certificate = _certificate(address)
    with (
        listeners(address, inherited) as sockets,
        connect_storage(mongodb_uri) as client,
        run_beside() as beside,
    ):
        _require_schema(client[database])
        guard = Guard(client[database])
        beside(guard)
        figures = FrontdeskMetrics(registry)
        figures.watch_guard(guard)
        store = _store(client[database], guard, spool, figures)
        if certificate is not None:
            figures.set("certificate_ends_seconds", lambda: certificate.ends)
        server = FrontdeskServer(
            server_config(desk, store, figures, most_connections=most_connections),
            store,
            tls=certificate.context if certificate else None,
            figures=figures,
            service=service,
            hanging=lambda: store.hanging or guard.stalled(),
            lingers=lingers,
        )
        row = StatusRow(
            client[database][STATUS],
            "frontdesk",
            snapshot=lambda: server.snapshots.latest,
            tell=server.tell,
            # Without recvq, `status` is also missing, and a row would create it without its index.
            may_make=lambda: guard.share is not None,
        )
        beside(row)
        server.run(sockets=list(sockets))
    return Exit.SOFTWARE if store.dead else Exit.OK


@contextlib.contextmanager
def run_beside() -> Iterator[Callable[[Guard | StatusRow], None]]:
    """Start helpers on threads beside the server; the stop waits briefly for all of them."""
    started: list[Guard | StatusRow] = []

    def start(one: Guard | StatusRow) -> None:
        one.start()
        started.append(one)

    try:
        yield start
    finally:
        until = time.monotonic() + BESIDE_SECONDS
        for one in started:
            one.stop()
        for one in started:
            one.join(max(0.0, until - time.monotonic()))


def _require_schema(database: Database[Document]) -> None:
    """Raise OtherSchema; does not wait for a MongoDB that does not answer at once."""
    with (
        contextlib.suppress(StoreUnavailable, AccessRefused),
        pymongo.timeout(SCHEMA_SECONDS),
    ):
        require_schema(database)


def _certificate(address: Address) -> Certificate | None:
    if address.tls_cert is None or address.tls_key is None:
        return None
    try:
        found = load(address.tls_cert, address.tls_key)
    except OSError as error:
        raise CannotListen(
            f"FRONTDESK_TLS_CERT {address.tls_cert} and FRONTDESK_TLS_KEY {address.tls_key} "
            f"cannot be used: {error}"
        ) from error
    log.info('certificate loaded until="%s"', moment(datetime.fromtimestamp(found.ends, UTC)))
    return found


def _store(
    database: Database[Document], guard: Guard, spool: SpoolAt, figures: FrontdeskMetrics
) -> GroupCommit:
    writer, reader, drained = (Spool(spool.path, max_bytes=spool.max_bytes) for _ in range(3))
    drain = Drain(drained, database, inserting=guard.inserting)
    store = GroupCommit(Recvq(database, guard), writer, reader, drain)
    figures.watch_spool(store, max_bytes=spool.max_bytes)
    return store


def server_config(
    desk: WebhookSettings, store: GroupCommit, figures: FrontdeskMetrics, **limits: Any
) -> uvicorn.Config:
    """Return uvicorn's configuration; `limits` are those of `Overload`."""
    return uvicorn.Config(
        Overload(FrontDesk(desk, store, figures), figures, **limits),
        http=Connection,
        forwarded_allow_ips=list(PROXIES),
        server_header=False,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )
