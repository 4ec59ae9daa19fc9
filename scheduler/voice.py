"""What a scheduler's process says of itself: to whoever runs it, and in its row in `status`."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from prometheus_client import CollectorRegistry
from pymongo.database import Database

from recvq.documents import Document
from recvq.figures import Snapshot, Snapshots
from recvq.service import Service
from recvq.status import StatusRow

ROLE = "scheduler"
JOIN_SECONDS = 5.0


class Voice:
    """A service (`recvq.service`) that passes on what it is told, and keeps it for the row.

    The row is written while it is entered. It belongs to the main thread.
    """

    def __init__(
        self, service: Service, database: Database[Any], registry: CollectorRegistry
    ) -> None:
        self._service = service
        self._snapshots = Snapshots(registry)
        # The last word with the figures of its moment, and that of the row that is being written.
        self._told: tuple[Document, Snapshot] = {"state": "starting", "words": ""}, Snapshot()
        self._shown = self._told
        self._row = StatusRow(database, ROLE, snapshot=lambda: self._shown[1], tell=self._show)

    def __enter__(self) -> Voice:
        self._row.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._row.stop()
        self._row.join(JOIN_SECONDS)

    @property
    def watchdog_seconds(self) -> float | None:
        """How long the process may go without a word."""
        return self._service.watchdog_seconds

    def starting(self, status: str, *, seconds: float) -> None:
        """Not ready yet, for a reason."""
        self._tell("starting", status)
        self._service.starting(status, seconds=seconds)

    def ready(self, status: str) -> None:
        """The process does its work from now on."""
        self._tell("working", status)
        self._service.ready(status)

    def alive(self, status: str) -> None:
        """It still makes progress, or waits for something that has a name."""
        self._tell("working", status)
        self._service.alive(status)

    def unwell(self, status: str) -> None:
        """It hangs."""
        self._tell("stalled", status)
        self._service.unwell(status)

    def reloading(self) -> None:
        """It reads something anew."""
        self._service.reloading()

    def stopping(self, status: str, *, seconds: float) -> None:
        """It ends in an orderly way."""
        self._tell("stopping", status)
        self._service.stopping(status, seconds=seconds)

    def _tell(self, state: str, words: str) -> None:
        self._told = {"state": state, "words": words}, self._snapshots.take()

    def _show(self) -> Document:
        self._shown = told = self._told
        return told[0]
