"""Taking connections under TLS: a handshake is counted like any connection, and bounded in time.

uvloop's own server counts nobody before the end of the handshake, and `start_tls` on a connection
that a plain server took may hand over the first request before there is anybody to take it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable

from uvicorn.server import ServerState

from frontdesk.certificate import Certificate
from frontdesk.connection import Connection
from frontdesk.figures import Figures
from frontdesk.overload import Guest, Overload, Stage

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 5.0
# Who was sent the end of TLS has so long to send it back.
SHUTDOWN_SECONDS = 1.0
# So many at a time are accepted before others get their turn.
ACCEPTS = 64
# After an accept that failed for want of a descriptor or memory.
PAUSE_SECONDS = 0.1


class TlsServer:
    """Accepts on one listening socket, each connection under the certificate of the moment.

    It belongs to the event loop, and has of asyncio.Server what a front desk needs.
    """

    def __init__(
        self,
        listener: socket.socket,
        certificate: Certificate,
        connect: Callable[[], Connection],
        state: ServerState,
        overload: Overload,
    ) -> None:
        self._listener = listener
        self._certificate = certificate
        self._connect = connect
        # uvicorn's set: what it holds is what a stop has to see off.
        self._connections: set[Guest] = state.connections  # type: ignore[assignment]
        self._overload = overload
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._resume()

    @property
    def figures(self) -> Figures:
        """Where refusals are counted."""
        return self._overload.figures

    def is_serving(self) -> bool:
        """Whether it still accepts."""
        return self._listener.fileno() >= 0

    def close(self) -> None:
        """Accept no more; other processes that hold the socket go on."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()

    def _resume(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS):
            try:
                one, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("cannot accept, trying again error=%s", error.strerror)
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(PAUSE_SECONDS, self._resume)
                return
            if self._overload.admits_connection(self._connections):
                one.setblocking(False)
                self._connections.add(Handshake(self, one, str(address[0])))
            else:
                # An answer would take the very handshake.
                one.close()
                self.figures.refuse("overload", "too many connections", str(address[0]))

    async def agree(self, one: socket.socket) -> None:
        """Shake hands on it; raises OSError (ssl.SSLError is one) where that fails."""
        await self._loop.connect_accepted_socket(
            self._connect,
            one,
            ssl=self._certificate.context,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS,
        )

    def ended(self, handshake: Handshake) -> None:
        """It has become a Connection, or nothing."""
        self._connections.discard(handshake)


class Handshake:
    """A connection until TLS is agreed on; a stop treats it like any other."""

    def __init__(self, server: TlsServer, one: socket.socket, client: str) -> None:
        self._server = server
        self.address = client
        self.stage = Stage.UNFINISHED
        self._loop = asyncio.get_running_loop()
        self.since = time.monotonic()
        self._task = self._loop.create_task(self._run(one))

    def awaited_seconds(self, now: float) -> float:
        """For how long its first request has been on its way; `now` is of time.monotonic()."""
        return now - self.since

    def ask_to_leave(self) -> None:
        """Its first answer, yet to come, will be its last one."""

    def shutdown(self) -> None:
        """End it, since the time for handshakes is over."""
        self._task.cancel()

    def make_way(self) -> None:
        """End it for another connection."""
        self._server.ended(self)
        self._task.cancel()

    def abort(self) -> None:
        """End it."""
        self._task.cancel()

    async def _run(self, one: socket.socket) -> None:
        try:
            await self._server.agree(one)
        except ConnectionResetError:
            # Who only looks whether somebody listens does so every few seconds.
            log.debug("left amid the handshake client=%s", self.address)
        except OSError as error:
            reason = getattr(error, "reason", None) or type(error).__name__
            self._server.figures.refuse("http", f"handshake failed: {reason}", self.address)
        finally:
            self._server.ended(self)
