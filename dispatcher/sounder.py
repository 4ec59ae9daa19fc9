"""The thread that asks MongoDB for what the figures cannot tell from memory, and keeps the history.

It also checks whether a collection was dropped by hand. A failure ends nothing, and no other thread
waits for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import pymongo
from bson.errors import BSONError
from pymongo.database import Database
from pymongo.errors import PyMongoError
from pymongo.write_concern import WriteConcern

from dispatcher.figures import Figures
from dispatcher.view import View
from recvq.depth import DepthGauge
from recvq.documents import HISTORY, Document
from recvq.errors import QueueError
from recvq.figures import Snapshot
from recvq.restore import Neighbours
from recvq.thread import BackgroundThread

log = logging.getLogger(__name__)

EVERY_SECONDS = 1.0
HISTORY_SECONDS = 10.0
WRITE_SECONDS = 2.0

AS_FIGURES = (
    *("queueDocuments", "oldestUnfinishedSeconds", "lagDocuments", "lagSeconds"),
    *("inHandDocuments", "heldDocuments", "busyThreads"),
)


class Sounder(BackgroundThread):
    """Measures the depth once a second; every ten it looks after the collections beside recvq, and
    writes a row of `history`.
    """

    def __init__(
        self, database: Database[Any], view: View, figures: Figures, neighbours: Neighbours
    ) -> None:
        super().__init__("depth", self._run)
        self._gauge = DepthGauge(database, view.standing)
        self._history = database[HISTORY].with_options(write_concern=WriteConcern(w=1))
        self._figures = figures
        self._neighbours = neighbours
        self._note_at = time.monotonic() + HISTORY_SECONDS
        self._failed: set[str] = set()

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self._tried("depth not measured", self._measure):
                # What was true a while ago would be taken for what is.
                self._figures.know(None)
            if (now := time.monotonic()) >= self._note_at:
                self._note_at = max(self._note_at + HISTORY_SECONDS, now)
                if self._figures.leads:
                    # First, since the row would make an uncapped `history` where it was dropped.
                    self._tried("collections not looked after", self._neighbours.look)
                    self._tried("history not written", self._note)
            self._stop.wait(EVERY_SECONDS)

    def _measure(self) -> None:
        self._figures.know(self._gauge.measure())

    def _note(self) -> None:
        with pymongo.timeout(WRITE_SECONDS):
            self._history.insert_one(history_row(self._figures.latest))

    def _tried(self, failed: str, action: Callable[[], None]) -> bool:
        """Whether the action succeeded; a failure is told once, until it succeeds again."""
        try:
            action()
        except (PyMongoError, BSONError, QueueError) as error:
            if failed not in self._failed:
                log.warning("%s, trying again error=%s", failed, type(error).__name__)
            self._failed.add(failed)
            return False
        self._failed.discard(failed)
        return True


def history_row(now: Snapshot) -> Document:
    """A row of `history`; what has no value is null."""
    row = {"at": now.at, **{name: now.figures.get(name) for name in AS_FIGURES}}
    row["readPerSecond"] = now.per_second.get("readDocuments")
    row["decidedPerSecond"] = now.per_second.get("finishedDocuments")
    row["callsPerSecond"] = _sum(now.per_second.get("calls"))
    for name, figure in (("wait", "waitSeconds"), ("handler", "handlerSeconds")):
        lately = now.lately.get(figure, {})
        row[f"{name}P50"], row[f"{name}P99"] = lately.get("p50"), lately.get("p99")
    return row


def _sum(nested: Any) -> float | None:
    if isinstance(nested, dict):
        return round(sum(_sum(value) or 0.0 for value in nested.values()), 3)
    return nested if nested is None else float(nested)
