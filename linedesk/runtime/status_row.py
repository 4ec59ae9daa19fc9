"""A process's row in `status`: its figures and its state, written once a second.

Reporting never blocks processing: a separate thread writes, and waits only briefly for MongoDB.
MongoDB removes a row a day after its last write.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import pymongo
from bson.errors import BSONError
from pymongo.collection import Collection
from pymongo.errors import PyMongoError
from pymongo.write_concern import WriteConcern

from linedesk.runtime.metrics import MetricsSnapshot
from linedesk.runtime.outage import MONGODB, is_away
from linedesk.runtime.service_manager import started_by
from linedesk.runtime.thread import BackgroundThread

log = logging.getLogger(__name__)

EVERY_SECONDS = 1.0
WRITE_SECONDS = 2.0
SUMMARY_SECONDS = 10.0
# The figures that count events, of a front desk and of a dispatcher.
EVENTS = ("acceptedEvents", "finishedDocuments")

# Fields of a row that other modules read.
STARTED_AT = "startedAt"
STARTED_BY = "startedBy"
PER_SECOND = "perSecond"
# Fields of a dispatcher with worker processes.
BROKER, BROKER_WHY = "broker", "brokerWhy"
WORKERS = "workers"
WHY = "why"
"""Of a dispatcher that waits: a code, with `since`."""
# The codes of why a worker gets no jobs, besides its states.
UNACCEPTED, OTHER_VERSION = "unaccepted", "other_version"
RULES_REFUSED, OTHER_CONTRACT = "rules_refused", "other_contract"
# The states of a worker.
WORKING, STOPPING, SILENT, NEW = "working", "stopping", "silent", "asked for its rules"


class StatusRow(BackgroundThread):
    """The row of one process in `rows`, `<role>/<host>/<pid>`.

    `snapshot` returns the last figures. `tell` returns the other fields; it must be quick and
    thread-safe: `state` (working, standby, waiting, stopping), and if applicable `threads`,
    `waiting`, `paused`. A missing row is created only while `may_make` returns True.
    """

    def __init__(
        self,
        rows: Collection[Any],
        role: str,
        *,
        snapshot: Callable[[], MetricsSnapshot],
        tell: Callable[[], dict[str, Any]],
        may_make: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__("status", self._run)
        self._rows = rows.with_options(write_concern=WriteConcern(w=1))
        self._snapshot = snapshot
        self._tell = tell
        self._may_make = may_make
        self._who: dict[str, Any] = {
            "role": role,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": version("linedesk"),
            STARTED_AT: datetime.now(UTC),
            STARTED_BY: started_by(os.environ, parent=os.getppid()),
        }
        self.id = f"{role}/{self._who['host']}/{os.getpid()}"
        self._failed = False
        self._summed_at, self._events = time.monotonic(), 0.0

    def _run(self) -> None:
        while not self._stop.is_set():
            told = self._tell()
            self._sum_up()
            self._write(told)
            self._stop.wait(EVERY_SECONDS)
        # If the last write failed, the stop does not wait for another one.
        if not self._failed:
            self._write({**self._tell(), "state": "ended"})

    def _write(self, told: dict[str, Any]) -> None:
        snapshot = self._snapshot()
        row = {
            **self._who,
            "at": snapshot.at,
            **told,
            "figures": snapshot.figures,
            PER_SECOND: snapshot.per_second,
            "lately": snapshot.lately,
        }
        try:
            with pymongo.timeout(WRITE_SECONDS):
                # A pipeline update writes only the differences to the oplog: whole rows would take
                # some 500 MB of it a day.
                new = [{"$replaceWith": {"$literal": {"_id": self.id, **row}}}]
                self._rows.update_one({"_id": self.id}, new, upsert=self._may_make())
        except (PyMongoError, BSONError, OverflowError, ValueError) as error:
            # Any error: reporting must not end the process.
            if is_away(error):
                MONGODB.fails("status not written", type(error).__name__)
            elif not self._failed:
                log.warning("status not written, trying again error=%s", type(error).__name__)
            self._failed = True
        else:
            MONGODB.works("status not written")
            self._failed = False

    def _sum_up(self) -> None:
        """Log what was done, in SUMMARY_SECONDS in which there was something to do."""
        now = time.monotonic()
        if (seconds := now - self._summed_at) < SUMMARY_SECONDS:
            return
        figures = self._snapshot().figures
        events = sum(figures.get(name) or 0 for name in EVENTS)
        if done := events - self._events:
            log.info("at work events=%d seconds=%.0f", done, seconds)
        self._summed_at, self._events = now, events
