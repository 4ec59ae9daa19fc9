"""The life of a simulator as a separate process: serves until a signal."""

import logging
import queue
import signal
from typing import Any

from linesim.http.server import SimServer
from linesim.model.options import Options

log = logging.getLogger(__name__)

STOPPED = 0
SERVER_DIED = 70


def serve(**options: Any) -> int:
    """Serves with `linesim.model.options` until SIGTERM or SIGINT and returns the exit code.

    Raises OSError if the port cannot be opened.
    """
    signals: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    server = SimServer(Options(**options), when_ended=lambda: signals.put(None))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: signals.put(number))
    server.start()
    log.info("serving url=%s webhook=%s", server.sim.url, server.sim.webhook_url or "none")
    received = signals.get()
    server.stop()
    if received is None:
        log.error("the server ended by itself")
        return SERVER_DIED
    log.info("stopped calls=%d", len(server.sim.calls))
    return STOPPED
