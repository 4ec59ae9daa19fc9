"""Connections that keep one deadline for a whole call: connecting, writing, every byte of the
answer.

urllib3's time-outs apply to each read. Slowly dripping headers could hold the gate without limit.
Name look-ups have no time-out at all.
"""

from __future__ import annotations

import math
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from queue import Empty, SimpleQueue
from typing import Any

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError
from urllib3.util import Url, wait_for_read
from urllib3.util.ssl_ import create_urllib3_context

# The limit for the name, all of its addresses and the connection to one of them.
CONNECT_SECONDS = 3.0

_call = threading.local()


@contextmanager
def within(seconds: float, *, step_seconds: float = math.inf) -> Iterator[None]:
    """Limit all sending and receiving of the thread.

    Work that exceeds it, and a single step longer than `step_seconds`, raises TimeoutError.
    """
    _call.deadline = time.monotonic() + seconds
    _call.step_seconds = step_seconds
    try:
        yield
    finally:
        _call.deadline = None


def sent_at() -> float:
    """When the thread last sent a part of a call, monotonic; 0 before the first."""
    at: float = getattr(_call, "sent_at", 0.0)
    return at


def _set_timeout(sock: socket.socket) -> None:
    deadline: float | None = getattr(_call, "deadline", None)
    if deadline is None:
        return
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the call's time is over")
    sock.settimeout(min(left, _call.step_seconds))


class TimedSocket(socket.socket):
    """A socket whose every step is limited to the rest of the call's time."""

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        _set_timeout(self)
        return super().recv_into(*args, **kwargs)

    def sendall(self, *args: Any, **kwargs: Any) -> None:
        """As a socket's, whose time-out is for all of it."""
        _set_timeout(self)
        super().sendall(*args, **kwargs)
        _call.sent_at = time.monotonic()


class TimedTlsSocket(ssl.SSLSocket):
    """The same under TLS, where `sendall` is many calls of `send`."""

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        _set_timeout(self)
        return super().recv_into(*args, **kwargs)

    def send(self, *args: Any, **kwargs: Any) -> int:
        _set_timeout(self)
        count = super().send(*args, **kwargs)
        _call.sent_at = time.monotonic()
        return count


def _connected(connect: Callable[[], socket.socket]) -> socket.socket | None:
    """Return the result of `connect`, or raise its error; None if it exceeds CONNECT_SECONDS.

    It runs on a thread of its own, since a name look-up cannot be ended; a late socket is closed.
    """
    made: SimpleQueue[socket.socket | Exception] = SimpleQueue()
    given_up = threading.Event()

    def run() -> None:
        try:
            made.put(connect())
        except (HTTPError, OSError, ValueError) as error:
            made.put(error)
        if given_up.is_set():
            _close_left(made)

    threading.Thread(target=run, name="connecting", daemon=True).start()
    try:
        came = made.get(timeout=CONNECT_SECONDS)
    except Empty:
        given_up.set()
        _close_left(made)
        return None
    if isinstance(came, Exception):
        raise came
    return came


def _close_left(made: SimpleQueue[socket.socket | Exception]) -> None:
    """Close the socket, on the side that arrives last."""
    while not made.empty():
        left = made.get()
        if isinstance(left, socket.socket):
            left.close()


class TimedHTTPConnection(HTTPConnection):
    """urllib3's connection, on timed sockets."""

    def _new_conn(self) -> socket.socket:
        made = _connected(super()._new_conn)
        if made is None:
            raise ConnectTimeoutError(self, f"no connection within {CONNECT_SECONDS} s")
        timed = TimedSocket(made.family, made.type, made.proto, fileno=made.detach())
        # A new socket has no time-out, and the TLS handshake precedes any step of ours.
        timed.settimeout(CONNECT_SECONDS)
        return timed


class TimedHTTPSConnection(TimedHTTPConnection, HTTPSConnection):
    """urllib3's TLS connection, on timed sockets."""


class IdleSockets:
    """Timed sockets to one host, of which at most `most` stay open unused; for any thread."""

    def __init__(self, base: Url, *, most: int) -> None:
        at: dict[str, Any] = {"host": (base.host or "").strip("[]"), "timeout": CONNECT_SECONDS}
        self._connection: Callable[[], HTTPConnection] = (
            partial(TimedHTTPSConnection, **at, port=base.port or 443, ssl_context=_tls_context())
            if base.scheme == "https"
            else partial(TimedHTTPConnection, **at, port=base.port or 80)
        )
        self._most = most
        # Appending and popping are one step each.
        self._idle: deque[socket.socket] = deque()

    def take(self) -> socket.socket:
        """Return the one that was used last, or connect. Raises HTTPError, OSError."""
        with suppress(IndexError):
            while sock := self._idle.pop():
                # A server sends nothing by itself, so what there is to read is its end.
                # guard: idle-one-has-not-ended -> body
                if not wait_for_read(sock, timeout=0.0):
                    return sock
                sock.close()
        connection = self._connection()
        connection.connect()
        return connection.sock

    def give_back(self, sock: socket.socket) -> None:
        """Keep a socket whose last answer was read to its end."""
        self._idle.append(sock)
        # Only now: `close` may have passed it.
        self._close_beyond()

    def close(self) -> None:
        """Close the idle ones, and from now on each one that is given back."""
        self._most = 0
        self._close_beyond()

    def _close_beyond(self) -> None:
        with suppress(IndexError):
            while len(self._idle) > self._most:
                self._idle.pop().close()


class TimedHTTPPool(HTTPConnectionPool):
    """urllib3's pool, of timed connections."""

    ConnectionCls = TimedHTTPConnection


class TimedHTTPSPool(HTTPSConnectionPool):
    """urllib3's TLS pool, of timed connections."""

    ConnectionCls = TimedHTTPSConnection


def make_timed(manager: PoolManager) -> None:
    """Make a pool manager, not yet connected, use timed connections only."""
    manager.pool_classes_by_scheme = {"http": TimedHTTPPool, "https": TimedHTTPSPool}
    manager.connection_pool_kw["ssl_context"] = _tls_context()


@cache
def _tls_context() -> ssl.SSLContext:
    """One context for the process: loading the certificates takes some 40 ms."""
    context = create_urllib3_context()
    context.load_default_certs()
    context.sslsocket_class = TimedTlsSocket
    return context
