"""The life of a process that does nothing but let timers ring."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Any

from pymongo.database import Database

from recvq.errors import AccessRefused, StoreUnavailable
from recvq.pause import pause_seconds
from recvq.pulse import AWAY, Reason
from recvq.replicaset import require_replica_set
from recvq.service import Nobody, Service, word_seconds
from recvq.shape import require_schema
from recvq.thread import Component

log = logging.getLogger(__name__)

JOIN_SECONDS = 10.0
# One question to a server that is away, and the pause after it.
ASK_SECONDS = 120.0


def run(
    parts: Sequence[Component],
    database: Database[Any],
    inbox: SimpleQueue[int | BaseException],
    service: Service | None = None,
) -> bool:
    """Run the parts until `inbox` has a signal's number; False if a thread died before.

    Waits for a server that is away, and tells `service` how it goes. Raises SetupError;
    AccessRefused, also if that ended a thread.
    """
    threading.excepthook = lambda args: _thread_died(args, inbox)
    service = service or Nobody()
    message = _wait_for_server(database, inbox, service)
    if message is None:
        for part in parts:
            part.start()
        log.info("ready")
        message = _supervise(parts, inbox, service)
        log.info("stopping")
    _end(parts, service)
    if isinstance(message, AccessRefused):
        raise message
    return isinstance(message, int)


def _wait_for_server(
    database: Database[Any], inbox: SimpleQueue[int | BaseException], service: Service
) -> int | BaseException | None:
    """None once the server is there; what came into the inbox before."""
    failures, reason = 0, Reason()
    service.starting("asking for the replica set", seconds=ASK_SECONDS)
    while True:
        try:
            require_replica_set(database.client)
            require_schema(database)
        except StoreUnavailable as error:
            failures += 1
            log.warning("MongoDB cannot be reached, trying again error=%s", error)
        else:
            return None
        reason.say(AWAY)
        service.starting(reason.fresh() or "", seconds=ASK_SECONDS)
        try:
            return inbox.get(timeout=pause_seconds(failures))
        except Empty:
            continue


def _supervise(
    parts: Sequence[Component], inbox: SimpleQueue[int | BaseException], service: Service
) -> int | BaseException:
    """Tell once a second how it goes; returns what came into the inbox."""
    service.ready(_status(parts))
    said: str | None = None
    while True:
        try:
            return inbox.get(timeout=word_seconds(service))
        except Empty:
            stall = next((why for part in parts if (why := part.stalled())), None)
        if stall is None:
            service.alive(_status(parts))
        else:
            service.unwell(f"stalled: {stall}")
            if stall != said:
                log.error("stalled: %s", stall)
        said = stall


def _status(parts: Sequence[Component]) -> str:
    return " · ".join(word for part in parts if (word := part.status()))


def _end(parts: Sequence[Component], service: Service) -> None:
    # Another part is asked only once the one before has had its time.
    service.stopping("stopping", seconds=JOIN_SECONDS * (len(parts) + 1))
    for part in parts:
        part.stop()
    for part in parts:
        if not part.join(JOIN_SECONDS):
            log.error("did not end in time part=%s", type(part).__name__)


def _thread_died(args: threading.ExceptHookArgs, inbox: SimpleQueue[int | BaseException]) -> None:
    error = args.exc_value or RuntimeError("a thread ended without an error")
    name = args.thread.name if args.thread else "?"
    if not isinstance(error, AccessRefused):
        log.critical("thread died thread=%s", name, exc_info=error)
    inbox.put(error)
