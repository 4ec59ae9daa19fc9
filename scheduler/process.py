"""The life of a process that does nothing but let timers ring."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Protocol

from recvq.connect import Client
from recvq.errors import StoreUnavailable
from recvq.pause import pause_seconds
from recvq.replicaset import require_replica_set

log = logging.getLogger(__name__)

JOIN_SECONDS = 10.0


class Part(Protocol):
    """What runs as long as the process does."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def join(self, timeout_seconds: float) -> bool: ...


def run(parts: Sequence[Part], client: Client, inbox: SimpleQueue[int | BaseException]) -> bool:
    """Run the parts until `inbox` has a signal's number; False if a thread died before.

    Waits for a server that is away. Raises NotReplicaSet, SetupError.
    """
    threading.excepthook = lambda args: _thread_died(args, inbox)
    message = _wait_for_server(client, inbox)
    if message is None:
        for part in parts:
            part.start()
        log.info("ready")
        message = inbox.get()
        log.info("stopping")
    for part in parts:
        part.stop()
    for part in parts:
        if not part.join(JOIN_SECONDS):
            log.error("did not end in time part=%s", type(part).__name__)
    return isinstance(message, int)


def _wait_for_server(
    client: Client, inbox: SimpleQueue[int | BaseException]
) -> int | BaseException | None:
    """None once the server is there; what came into the inbox before."""
    failures = 0
    while True:
        try:
            require_replica_set(client)
        except StoreUnavailable as error:
            failures += 1
            log.warning("MongoDB cannot be reached, trying again error=%s", error)
        else:
            return None
        try:
            return inbox.get(timeout=pause_seconds(failures))
        except Empty:
            continue


def _thread_died(args: threading.ExceptHookArgs, inbox: SimpleQueue[int | BaseException]) -> None:
    error = args.exc_value or RuntimeError("a thread ended without an error")
    name = args.thread.name if args.thread else "?"
    log.critical("thread died thread=%s", name, exc_info=error)
    inbox.put(error)
