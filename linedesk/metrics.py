"""`/metrics` of a process, on a port of its own: what its registry holds, as Prometheus reads it.

The listener only ever tells. A port that is taken, or a client that is slow or sends nonsense,
costs the process a line in its log at most.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from contextlib import closing, suppress
from http import HTTPStatus
from types import TracebackType

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

log = logging.getLogger(__name__)

PATH = "/metrics"
# A standby on the same host has the same port, and answers once the other one is gone.
AGAIN_SECONDS = 10.0
# From the first byte of a request to the last one of its answer; Prometheus waits 10 s.
ANSWER_SECONDS = 5.0
# Whoever comes while so many are answered is turned away.
MOST_AT_A_TIME = 8
HEAD_BYTES = 16 * 1024
# After an accept that failed for want of a descriptor.
PAUSE_SECONDS = 1.0
JOIN_SECONDS = 1.0


def serve_metrics(registry: CollectorRegistry, host: str, port: int | None) -> MetricsServer:
    """Answer GET /metrics from now on; a context manager, at whose end it stops.

    Beside the registry's figures it tells those of the process and of Python. Raises nothing: an
    address that cannot be had is told once, and tried again. Without a port it does nothing.
    """
    # Each count would have a second one that tells when it began.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    everything = CollectorRegistry(auto_describe=False)
    everything.register(registry)
    _Process(registry=everything)
    PlatformCollector(registry=everything)
    GCCollector(registry=everything)
    server = MetricsServer(everything, host, port)
    server.start()
    return server


class MetricsServer:
    """The listener and its threads; `source` is collected anew for each answer.

    With `share_port` other processes may listen there, too, each asking for it.
    """

    def __init__(
        self, source: Collector, host: str, port: int | None, *, share_port: bool = False
    ) -> None:
        self._source = source
        self._address = host, port
        self._share_port = share_port
        self._stop = threading.Event()
        self._lock = threading.Lock()  # guards the two below
        self._listener: socket.socket | None = None
        self._answering: dict[socket.socket, threading.Thread] = {}
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Listen from now on, where there is a port."""
        if self._address[1] is not None and not self._stop.is_set():
            self._thread.start()

    def stop(self) -> None:
        """Break off what is under way, and end; takes no longer than JOIN_SECONDS, mostly none.

        May be called twice, and before `start`.
        """
        self._stop.set()
        with self._lock:
            open_sockets = [one for one in (self._listener, *self._answering) if one is not None]
            threads = [self._thread, *self._answering.values()]
        for one in open_sockets:
            # Linux wakes who waits in accept, recv or send of it.
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        until = time.monotonic() + JOIN_SECONDS
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        told = False
        while not self._stop.is_set():
            try:
                listener = self._listen()
            except OSError as error:
                if not told:
                    words = 'metrics not served, trying again host=%s port=%d reason="%s"'
                    reason = str(error.strerror).partition(" (")[0]
                    log.error(words, *self._address, reason)  # noqa: TRY400  # expected
                told = True
                self._stop.wait(AGAIN_SECONDS)
                continue
            with closing(listener):
                told = False
                self._accept(listener)

    def _listen(self) -> socket.socket:
        host, port = self._address
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, _, _, _, target = found[0]
        listener = socket.create_server(
            target[:2], family=family, reuse_port=self._share_port, backlog=MOST_AT_A_TIME
        )
        log.info("metrics served host=%s port=%d", *listener.getsockname()[:2])
        return listener

    def _accept(self, listener: socket.socket) -> None:
        with self._lock:
            self._listener = listener
        failed = False
        # Looked at after the listener can be seen: a stop before that did not shut it.
        while not self._stop.is_set():
            try:
                one, _ = listener.accept()
            except OSError as error:
                if not failed and not self._stop.is_set():
                    log.warning('metrics cannot accept, trying again reason="%s"', error.strerror)
                failed = True
                self._stop.wait(PAUSE_SECONDS)
                continue
            failed = False
            self._take(one)

    def _take(self, one: socket.socket) -> None:
        thread = threading.Thread(
            target=self._answer, args=(one,), name="metrics-answer", daemon=True
        )
        with self._lock:
            taken = len(self._answering) < MOST_AT_A_TIME and not self._stop.is_set()
            if taken:
                # Under the lock, so that a stop never waits for one that did not begin.
                try:
                    thread.start()
                except RuntimeError:
                    taken = False  # no more threads are to be had
                else:
                    self._answering[one] = thread
        if not taken:
            one.close()

    def _answer(self, one: socket.socket) -> None:
        until = time.monotonic() + ANSWER_SECONDS
        try:
            # Who goes away, or is too slow, gets nothing, and nobody has to know.
            with suppress(OSError):
                response = self._response(_read_head(one, until))
                one.settimeout(max(0.001, until - time.monotonic()))
                one.sendall(response)
        finally:
            with self._lock:
                self._answering.pop(one, None)
                one.close()

    def _response(self, head: str) -> bytes:
        request, *fields = head.split("\r\n")
        method, _, target = request.partition(" ")
        path = target.partition(" ")[0].partition("?")[0]
        if not method or not path:
            return _http(HTTPStatus.BAD_REQUEST, b"not an HTTP request\n")
        if path != PATH:
            return _http(HTTPStatus.NOT_FOUND, b"the figures are at /metrics\n")
        if method != "GET":
            return _http(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET\n", ("Allow", "GET"))
        encode, content_type = choose_encoder(_accept_of(fields))
        try:
            figures = encode(self._source)
        except OSError:
            return _http(HTTPStatus.SERVICE_UNAVAILABLE, b"not ready to tell, see the log\n")
        except Exception:
            # The one job of this thread: a figure that fails must not end the process, as threads
            # that die do.
            log.exception("metrics failed")
            return _http(HTTPStatus.INTERNAL_SERVER_ERROR, b"a figure failed, see the log\n")
        return _http(HTTPStatus.OK, figures, ("Content-Type", content_type))


class _Process(ProcessCollector):
    """Memory, processor and descriptors of this process."""

    def _boot_time(self) -> float:
        # Theirs is in /proc/stat, which is hidden under systemd's ProcSubset=pid.
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _read_head(one: socket.socket, until: float) -> str:
    """The head of one request; raises OSError where it does not come in time, or is none."""
    head = bytearray()
    while b"\r\n\r\n" not in head:
        left = until - time.monotonic()
        if left <= 0 or len(head) > HEAD_BYTES:
            raise TimeoutError
        one.settimeout(left)
        part = one.recv(4096)
        if not part:
            raise ConnectionResetError
        head += part
    return head.partition(b"\r\n\r\n")[0].decode("latin-1")


def _accept_of(fields: list[str]) -> str:
    for line in fields:
        name, _, value = line.partition(":")
        if name.lower() == "accept":
            return value.strip()
    return ""


def _http(status: HTTPStatus, body: bytes, *fields: tuple[str, str]) -> bytes:
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        *(f"{name}: {value}" for name, value in fields),
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body
