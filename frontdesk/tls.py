"""The front desk's own TLS: its certificate, the renewed one that replaces it, and the handshake.

A renewal writes two files. Only a matching certificate and key are used; until then the old pair
stays in use. A handshake counts as a connection and is bounded in time. uvloop's own server counts
no connection before its handshake has ended.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uvicorn.server import ServerState

from frontdesk.errors import CannotListen
from frontdesk.http import Connection, Guest, Overload, RequestStage
from frontdesk.metrics import FrontdeskMetrics, clock_time

log = logging.getLogger(__name__)

# certbot renews with a third of the lifetime left. With a sixth left, the renewal has failed.
LATE_SHARE = 1 / 6
REMIND_SECONDS = 86_400.0

Print = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class _Taken:
    """A matching pair. `since` and `until` are times of time.time(), and 0 where no client would
    accept it, for the reason `invalid`.
    """

    context: ssl.SSLContext
    since: float = 0.0
    until: float = 0.0
    invalid: str | None = None

    @property
    def late(self) -> float:
        """When it should have been renewed."""
        return self.until - (self.until - self.since) * LATE_SHARE


class CertificateFiles:
    """The pair of files in use. `look` and `reread` may be called on any one thread."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Raises CannotListen where the pair cannot be used."""
        self._files = certificate, key
        self._seen = _print(self._files)
        self._unfit: Print | None = None
        self._told: Print | None = None
        self._reminded = float("-inf")
        try:
            self._taken = _take(*self._files)
        except OSError as error:
            raise CannotListen(
                f"FRONTDESK_TLS_CERT {certificate} and FRONTDESK_TLS_KEY {key} "
                f"cannot be used: {error}"
            ) from error
        self._say()

    @property
    def context(self) -> ssl.SSLContext:
        """The TLS context of new handshakes."""
        return self._taken.context

    @property
    def ends(self) -> float:
        """When it expires, a time of time.time(); 0 where no client would accept it."""
        return self._taken.until

    def look(self) -> None:
        """Load files that changed since the last check, if they match and have not expired.

        An unusable pair is reported once, at the second check: during a renewal it becomes usable
        soon.
        """
        now = _print(self._files)
        if now != self._seen:
            self._replace(now, patient=self._unfit != now)
        self._remind()

    def reread(self) -> None:
        """Load the present files if they match; reports it if they do not."""
        self._told = None
        self._replace(_print(self._files), patient=False)

    def _replace(self, now: Print, *, patient: bool) -> None:
        try:
            taken = _take(*self._files)
        except OSError as error:
            self._refuse(now, str(error), patient=patient)
            return
        if taken.invalid is not None and self._taken.invalid is None:
            self._refuse(now, taken.invalid, patient=patient)
            return
        # The files' state was read before the files: the next check notices a change in between.
        self._taken, self._seen, self._unfit, self._told = taken, now, None, None
        self._reminded = float("-inf")
        self._say()

    def _refuse(self, now: Print, reason: str, *, patient: bool) -> None:
        self._unfit = now
        if not patient and self._told != now:
            self._told = now
            log.error('certificate cannot be used, keeping the previous one reason="%s"', reason)

    def _say(self) -> None:
        taken = self._taken
        if taken.invalid is None:
            log.info('certificate loaded until="%s"', clock_time(taken.until))
        else:
            log.error('certificate will not be accepted by LINE reason="%s"', taken.invalid)

    def _remind(self) -> None:
        """A missing renewal must be noticed before LINE's webhooks fail."""
        taken, now = self._taken, time.time()
        if taken.invalid or now < taken.late or now - self._reminded < REMIND_SECONDS:
            return
        self._reminded = now
        log.error('certificate is not renewed until="%s"', clock_time(taken.until))


def _print(files: tuple[Path, Path]) -> Print:
    """The values that change with each renewal; empty where a file is missing."""
    found = []
    for path in files:
        with suppress(OSError):
            at = path.stat()
            found.append((at.st_ino, at.st_mtime_ns, at.st_size))
    return tuple(found) if len(found) == len(files) else ()


def _take(certificate: Path, key: Path) -> _Taken:
    """Load and check them; raises OSError (ssl.SSLError is one) where they do not match."""
    for path in (certificate, key):
        # Reading a pipe would wait for ever.
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(f"{path} is not a file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Without a password OpenSSL would ask on the terminal, and wait.
    context.load_cert_chain(certificate, key, password="")
    try:
        return _Taken(context, *_validity(context, certificate))
    except ssl.SSLCertVerificationError as error:
        return _Taken(context, invalid=error.verify_message)


def _validity(context: ssl.SSLContext, certificate: Path) -> tuple[float, float]:
    """Return the times of time.time() between which it is valid.

    A handshake in memory shows how a client would judge the certificate.

    Raises ssl.SSLCertVerificationError where it has expired, or is not one for a server.
    """
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    trusting.load_verify_locations(certificate)
    shown = shown_to(trusting, by=context)
    since, until = (str(shown[name]) for name in ("notBefore", "notAfter"))
    return ssl.cert_time_to_seconds(since), ssl.cert_time_to_seconds(until)


def shown_to(client: ssl.SSLContext, *, by: ssl.SSLContext) -> Mapping[str, Any]:
    """Return the details of a server's certificate as `ssl` gives them to a client.

    The handshake is made in memory. Raises ssl.SSLError where it fails.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server)
    serving = by.wrap_bio(to_server, to_client, server_side=True)
    for side in (asking, serving) * 3:
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    shown = asking.getpeercert()
    assert shown is not None, "the handshake is through"
    return shown


HANDSHAKE_SECONDS = 5.0
# How long a client has to answer the end of TLS.
SHUTDOWN_SECONDS = 1.0
# This many are accepted at a time before other work gets its turn.
ACCEPTS = 64
# The pause after an accept that failed for lack of a descriptor or memory.
PAUSE_SECONDS = 0.1


class TlsServer:
    """Accepts on one listening socket; each connection uses the certificate of that moment.

    It belongs to the event loop and has those methods of asyncio.Server that the front desk needs.
    """

    def __init__(
        self,
        listener: socket.socket,
        certificate: CertificateFiles,
        connect: Callable[[], Connection],
        state: ServerState,
        overload: Overload,
        *,
        handshake_seconds: float = HANDSHAKE_SECONDS,
    ) -> None:
        self._handshake_seconds = handshake_seconds
        self._listener = listener
        self._certificate = certificate
        self._connect = connect
        # uvicorn's set: a stop closes all of its connections.
        self._connections: set[Guest] = state.connections  # type: ignore[assignment]
        self._overload = overload
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._resume()

    @property
    def figures(self) -> FrontdeskMetrics:
        """Where refusals are counted."""
        return self._overload.figures

    def is_serving(self) -> bool:
        """Whether it still accepts."""
        return self._listener.fileno() >= 0

    def close(self) -> None:
        """Accept no more; other processes that hold the socket continue."""
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
                # An answer would need the very handshake that it refuses.
                one.close()
                self.figures.refuse("overload", "too many connections", str(address[0]))

    async def agree(self, one: socket.socket) -> None:
        """Make the handshake; raises OSError (ssl.SSLError is one) where it fails."""
        await self._loop.connect_accepted_socket(
            self._connect,
            one,
            ssl=self._certificate.context,
            ssl_handshake_timeout=self._handshake_seconds,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS,
        )

    def ended(self, handshake: Handshake) -> None:
        """The handshake became a Connection, or failed."""
        self._connections.discard(handshake)


class Handshake:
    """A connection during its handshake; a stop treats it like any other."""

    def __init__(self, server: TlsServer, one: socket.socket, client: str) -> None:
        self._server = server
        self.address = client
        self.stage = RequestStage.UNFINISHED
        self._loop = asyncio.get_running_loop()
        self.since = time.monotonic()
        self._task = self._loop.create_task(self._run(one))

    def awaited_seconds(self, now: float) -> float:
        """How long its first request has been arriving; `now` is a time of time.monotonic()."""
        return now - self.since

    def ask_to_leave(self) -> None:
        """Close after the first answer, which is still due."""

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
            # Port checks connect and leave every few seconds.
            log.debug("client left during the handshake client=%s", self.address)
        except OSError as error:
            reason = getattr(error, "reason", None) or type(error).__name__
            self._server.figures.refuse("http", f"handshake failed: {reason}", self.address)
        finally:
            self._server.ended(self)
