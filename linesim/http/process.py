"""The life of a simulator as a separate process: serves until a signal."""

import logging
import queue
import signal
from collections.abc import Callable
from typing import Any

from linesim.http.server import SimServer
from linesim.model.options import Options
from linesim.people.sim import Sim

log = logging.getLogger(__name__)

STOPPED = 0
SERVER_DIED = 70


def serve(*, when_serving: Callable[[Sim], object] = lambda sim: None, **options: Any) -> int:
    """Serves with `linesim.model.options` until SIGTERM or SIGINT and returns the exit code.

    `when_serving` is called once the port is open. Raises OSError if it cannot be opened.
    """
    signals: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    server = SimServer(Options(**options), when_ended=lambda: signals.put(None))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: signals.put(number))
    server.start()
    when_serving(server.sim)
    log.info("serving url=%s webhook=%s", server.sim.url, server.sim.webhook_url or "none")
    received = signals.get()
    server.stop()
    if received is None:
        log.error("the server ended by itself")
        return SERVER_DIED
    log.info("stopped calls=%d", len(server.sim.calls))
    return STOPPED
