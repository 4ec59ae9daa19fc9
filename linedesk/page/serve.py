"""One console process: uvicorn with our signals, an immediate end, and a status line a second."""

from __future__ import annotations

import asyncio
import logging
import os
import socket

import uvicorn
from starlette.types import ASGIApp

from linedesk.runtime.metrics import Refusals
from linedesk.runtime.service_manager import ServiceManager, signals_taken

log = logging.getLogger(__name__)

# A tick of uvicorn's is a tenth of a second.
TELL_TICKS = 10
# An interrupted page loses no data.
STOP_SECONDS = 1


def config_of(app: ASGIApp, *, is_proxied: bool, http: type[asyncio.Protocol]) -> uvicorn.Config:
    """Return uvicorn's settings. `http` is a connection with bounds for slow and large requests.

    Without a proxy X-Forwarded-For is ignored: any client can send it.
    """
    return uvicorn.Config(
        app,
        http=http,
        proxy_headers=is_proxied,
        # Only a proxy on this machine may name its client.
        forwarded_allow_ips="127.0.0.1,::1",
        server_header=False,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=STOP_SECONDS,
    )


class ConsoleServer(uvicorn.Server):
    """A server that stops at the first signal; a second SIGINT waits for no connection."""

    capture_signals = signals_taken

    def __init__(
        self, config: uvicorn.Config, *, url: str, refusals: Refusals, service: ServiceManager
    ) -> None:
        super().__init__(config)
        self._refusals = refusals
        self._url = url
        self._service = service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then report readiness."""
        await super().startup(sockets)
        log.info("listening url=%s pid=%d", self._url, os.getpid())
        self._service.ready(self._url)

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop; uvicorn asks ten times a second."""
        if counter % TELL_TICKS == 0:
            self._refusals.tell_in_time()
            self._service.alive(self._url)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close every connection, also those of open pages."""
        self._service.stopping("stopping", seconds=2.0 * STOP_SECONDS)
        log.info("stopping")
        await super().shutdown(sockets)
