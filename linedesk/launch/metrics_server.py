"""`/metrics` of a process on its own port, served by prometheus_client's server.

The server has no time-outs and uses a thread for each connection: it is meant for this machine.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

# The name in the log, whatever the folder.
log = logging.getLogger("linedesk.runtime")

JOIN_SECONDS = 1.0


@contextmanager
def serve_metrics(registry: CollectorRegistry, host: str, port: int | None) -> Iterator[None]:
    """Answer GET /metrics until the end of the context; without a port, do nothing.

    The answer has the metrics of the registry and of the process. Raises nothing: an address in use
    is logged, and nothing is served.
    """
    if port is None:
        yield
        return
    try:
        server, thread = start_http_server(port, host, _with_process_metrics(registry))
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]
        words = 'metrics not served host=%s port=%d reason="%s"'
        log.error(words, host, port, reason)  # noqa: TRY400  # expected
        yield
        return
    thread.name = "metrics-http"
    log.info("metrics served host=%s port=%d", *server.server_address[:2])
    try:
        yield
    finally:
        # Wakes the server, which checks for its end only twice a second.
        server.socket.shutdown(socket.SHUT_RDWR)
        server.shutdown()
        server.server_close()
        thread.join(JOIN_SECONDS)


def _with_process_metrics(registry: CollectorRegistry) -> CollectorRegistry:
    everything = CollectorRegistry(auto_describe=False)
    everything.register(registry)
    _Process(registry=everything)
    return everything


class _Process(ProcessCollector):
    """Memory, processor and descriptors of this process."""

    def _boot_time(self) -> float:
        # The collector reads /proc/stat, which systemd's ProcSubset=pid hides.
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
