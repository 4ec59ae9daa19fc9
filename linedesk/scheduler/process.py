"""The life of a process that only fires timers, and its reports: to its service manager, and in its
row in `status`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

from prometheus_client import CollectorRegistry
from pymongo.database import Database

from linedesk.runtime.backoff import pause_seconds
from linedesk.runtime.liveness import AWAY, WaitReason
from linedesk.runtime.metrics import MetricsSnapshot, MetricsSnapshots
from linedesk.runtime.service_manager import NoServiceManager, ServiceManager, word_seconds
from linedesk.runtime.status_row import EVERY_SECONDS, StatusRow
from linedesk.runtime.thread import Component
from linedesk.store.collections import require_schema
from linedesk.store.documents import STATUS, Document
from linedesk.store.errors import AccessRefused, StoreUnavailable
from linedesk.store.replica_set import require_replica_set

log = logging.getLogger(__name__)

JOIN_SECONDS = 10.0
STATUS_JOIN_SECONDS = 5.0
ROLE = "scheduler"
# One request to an unreachable server, and the pause after it.
ASK_SECONDS = 120.0


def run(
    parts: Sequence[Component],
    database: Database[Any],
    inbox: SimpleQueue[int | BaseException],
    service: ServiceManager | None = None,
) -> bool:
    """Run the parts until `inbox` has a signal's number; False if a thread died before.

    Waits for an unreachable server, and reports its state to `service`. Raises SetupError, and
    AccessRefused, also if that ended a thread.
    """
    threading.excepthook = lambda args: _thread_died(args, inbox)
    service = service or NoServiceManager()
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
    database: Database[Any], inbox: SimpleQueue[int | BaseException], service: ServiceManager
) -> int | BaseException | None:
    """None once the server answers; else the message from the inbox that came before."""
    failures, reason = 0, WaitReason()
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
        reason.set(AWAY)
        service.starting(reason.fresh() or "", seconds=ASK_SECONDS)
        try:
            return inbox.get(timeout=pause_seconds(failures))
        except Empty:
            continue


def _supervise(
    parts: Sequence[Component], inbox: SimpleQueue[int | BaseException], service: ServiceManager
) -> int | BaseException:
    """Report the state once a second; returns the message from the inbox."""
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


def _end(parts: Sequence[Component], service: ServiceManager) -> None:
    # Each part is joined only after the time of the one before.
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


class SchedulerStatusReporter:
    """A service manager that passes reports on, and keeps the last one for the row in `status`.

    The row is written inside the context. It belongs to the main thread.
    """

    def __init__(
        self,
        service: ServiceManager,
        database: Database[Any],
        registry: CollectorRegistry,
        *,
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        self._service = service
        self._snapshots = MetricsSnapshots(registry)
        # The last report with its figures, and the report of the row that is being written.
        self._told: tuple[Document, MetricsSnapshot] = (
            {"state": "starting", "words": ""},
            MetricsSnapshot(),
        )
        self._shown = self._told
        self._row = StatusRow(
            database[STATUS],
            ROLE,
            snapshot=lambda: self._shown[1],
            tell=self._show,
            every_seconds=every_seconds,
        )

    def __enter__(self) -> SchedulerStatusReporter:
        self._row.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._row.stop()
        self._row.join(STATUS_JOIN_SECONDS)

    @property
    def watchdog_seconds(self) -> float | None:
        """The longest time between two reports."""
        return self._service.watchdog_seconds

    def starting(self, status: str, *, seconds: float) -> None:
        """Report that the process is not ready."""
        self._tell("starting", status)
        self._service.starting(status, seconds=seconds)

    def ready(self, status: str) -> None:
        """Report that the process is ready."""
        self._tell("working", status)
        self._service.ready(status)

    def alive(self, status: str) -> None:
        """Report that the process makes progress, or waits for a known reason."""
        self._tell("working", status)
        self._service.alive(status)

    def unwell(self, status: str) -> None:
        """Report that a thread hangs."""
        self._tell("stalled", status)
        self._service.unwell(status)

    def stopping(self, status: str, *, seconds: float) -> None:
        """Report a clean shutdown."""
        self._tell("stopping", status)
        self._service.stopping(status, seconds=seconds)

    def _tell(self, state: str, words: str) -> None:
        self._told = {"state": state, "words": words}, self._snapshots.take()

    def _show(self) -> Document:
        self._shown = told = self._told
        return told[0]
