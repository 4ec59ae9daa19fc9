"""HTTPS without a proxy: the certificate, and a server that counts connections from their accept.

uvloop's own server counts no connection before its handshake has ended. A renewed certificate is
read at the next start.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frontdesk.http import Connection, Overload

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 5.0
# How long a client has to answer the end of TLS.
SHUTDOWN_SECONDS = 1.0
# The pause after an accept that failed for lack of a descriptor or memory.
PAUSE_SECONDS = 0.1
NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL; `ssl` has no name for it."""


@dataclass(frozen=True)
class Certificate:
    """A certificate and key, ready to serve, and the details that `ssl` shows to a client."""

    context: ssl.SSLContext
    details: Mapping[str, Any]

    @property
    def ends(self) -> float:
        """When it expires, a time of time.time()."""
        return float(ssl.cert_time_to_seconds(str(self.details["notAfter"])))


def load(certificate: Path, key: Path) -> Certificate:
    """Read a pair and try it by a handshake in memory; a certificate of any age passes.

    Raises OSError (ssl.SSLError is one) where a file cannot be read or the two do not match.
    """
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.minimum_version = ssl.TLSVersion.TLSv1_2
    # Without a password OpenSSL would ask for it on the terminal, and wait.
    serving.load_cert_chain(certificate, key, password="")
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN | NO_CHECK_TIME
    trusting.load_verify_locations(certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server) * 3:
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    details = client.getpeercert()
    assert details is not None, "the handshake is through"
    return Certificate(serving, details)


class TlsServer:
    """Accepts and makes the handshakes; has the methods of asyncio.Server that are needed."""

    def __init__(
        self,
        listener: socket.socket,
        context: ssl.SSLContext,
        connect: Callable[[], Connection],
        connections: set[Connection],
        overload: Overload,
    ) -> None:
        self._listener = listener
        self._context = context
        self._connect = connect
        self._connections = connections
        self._overload = overload
        listener.setblocking(False)
        self._accepting = asyncio.create_task(self._accept())

    def close(self) -> None:
        """Accept no more; other processes that hold the socket continue."""
        self._accepting.cancel()
        self._listener.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                one, address = await loop.sock_accept(self._listener)
            except ConnectionAbortedError:
                continue
            except OSError as error:
                log.warning("cannot accept, trying again error=%s", error.strerror)
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            if self._overload.admits_connection(self._connections):
                connection = self._connect()
                connection.agree(loop.create_task(self._agree(one, connection)), address[0])
            else:
                # An answer would need the very handshake that it refuses.
                one.close()
                self._overload.figures.refuse("overload", "too many connections", address[0])

    async def _agree(self, one: socket.socket, connection: Connection) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                one,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS,
            )
        except ConnectionResetError:
            # Port checks connect and leave every few seconds.
            log.debug("client left during the handshake client=%s", connection.address)
        except OSError as error:
            reason = getattr(error, "reason", None) or type(error).__name__
            self._overload.figures.refuse("http", f"handshake failed: {reason}", connection.address)
        finally:
            connection.agreed()
