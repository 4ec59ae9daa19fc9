"""`/metrics` of a process on its own port, served by prometheus_client's server.

The server has no time-outs and uses a thread for each connection: it is meant for this machine.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

from linedesk.runtime.thread import BackgroundThread

# The name in the log, whatever the folder.
log = logging.getLogger("linedesk.runtime")

# A standby on the same host may have the same port: it serves it once the other process has ended.
RETRY_SECONDS = 10.0
JOIN_SECONDS = 1.0


@contextmanager
def serve_metrics(registry: CollectorRegistry, host: str, port: int | None) -> Iterator[None]:
    """Answer GET /metrics until the end of the context; without a port, do nothing.

    The answer has the metrics of the registry and of the process. Raises nothing: an
    address in use is logged once and tried again every RETRY_SECONDS.
    """
    if port is None:
        yield
        return
    server = MetricsServer(_with_process_metrics(registry), host, port)
    server.start()
    try:
        yield
    finally:
        server.stop()
        server.join(JOIN_SECONDS)


def _with_process_metrics(registry: CollectorRegistry) -> CollectorRegistry:
    everything = CollectorRegistry(auto_describe=False)
    everything.register(registry)
    _Process(registry=everything)
    return everything


class MetricsServer(BackgroundThread):
    """Serves `host` and `port` until it is stopped, as soon as the address is free."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        super().__init__("metrics", self._run)
        self._registry = registry
        self._address = host, port

    def _run(self) -> None:
        is_logged = False
        while not self._stop.is_set():
            host, port = self._address
            try:
                server, thread = start_http_server(port, host, self._registry)
            except OSError as error:
                if not is_logged:
                    words = 'metrics not served, trying again host=%s port=%d reason="%s"'
                    reason = str(error.strerror).partition(" (")[0]
                    log.error(words, host, port, reason)  # noqa: TRY400  # expected
                is_logged = True
                self._stop.wait(RETRY_SECONDS)
                continue
            thread.name = "metrics-http"
            log.info("metrics served host=%s port=%d", *server.server_address[:2])
            self._stop.wait()
            _end(server)


def _end(server: WSGIServer) -> None:
    # Wakes the server, which checks for its end only twice a second.
    server.socket.shutdown(socket.SHUT_RDWR)
    server.shutdown()
    server.server_close()


class _Process(ProcessCollector):
    """Memory, processor and descriptors of this process."""

    def _boot_time(self) -> float:
        # The collector reads /proc/stat, which systemd's ProcSubset=pid hides.
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
