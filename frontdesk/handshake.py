"""A connection until TLS is agreed on: counted like any other, and bounded in time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from uvicorn.server import ServerState

from frontdesk.certificate import Certificate
from frontdesk.connection import MOST_CONNECTIONS, Connection

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 5.0


class Handshake(asyncio.Protocol):
    """Agrees on TLS under the certificate of the moment, then makes way for a Connection."""

    def __init__(
        self, certificate: Certificate, connect: Callable[[], Connection], state: ServerState
    ) -> None:
        self._certificate = certificate
        self._connect = connect
        # uvicorn's set, which it never looks into: what it holds is what a stop has to end.
        self._connections: set[object] = state.connections  # type: ignore[assignment]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless there are too many; an answer would take the very handshake."""
        assert isinstance(transport, asyncio.Transport)
        self._made_at = asyncio.get_running_loop().time()
        self.transport = transport
        if len(self._connections) >= MOST_CONNECTIONS:
            transport.abort()
            return
        self._connections.add(self)
        self._task = asyncio.create_task(self._shake_hands())

    def connection_lost(self, exc: Exception | None) -> None:
        """It ended before the handshake began."""
        self._connections.discard(self)

    def awaited_seconds(self, now: float) -> float:
        """For how long its first request has been on its way; `now` is of the loop's clock."""
        return now - self._made_at

    def ask_to_leave(self) -> None:
        """Its first answer, yet to come, is the last one by then."""

    def shutdown(self) -> None:
        """End it, since the time for handshakes is over."""
        self.transport.abort()

    async def _shake_hands(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            secured = await loop.start_tls(
                self.transport,
                self,
                self._certificate.context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
            )
        except OSError as error:
            self._failed(error)
            return
        finally:
            self._connections.discard(self)
        # uvloop gives the first data only after this step.
        if secured is not None and not secured.is_closing():
            connection = self._connect()
            secured.set_protocol(connection)
            connection.connection_made(secured)

    def _failed(self, error: OSError) -> None:
        reason = getattr(error, "reason", None) or type(error).__name__
        client = self.transport.get_extra_info("peername")
        log.warning('handshake failed reason="%s" client=%s', reason, client[0] if client else "-")
