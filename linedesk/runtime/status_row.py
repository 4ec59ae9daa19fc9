"""A process's row in `status`: its figures and what it is at, written once a second.

It only tells of the work and never stands in its way: who writes waits a moment for MongoDB and
else goes on, on a thread of its own. A row is removed by MongoDB a day after its last writing.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import pymongo
from bson.errors import BSONError
from pymongo.collection import Collection
from pymongo.errors import PyMongoError
from pymongo.write_concern import WriteConcern

from linedesk.runtime.metrics import MetricsSnapshot
from linedesk.runtime.thread import BackgroundThread

log = logging.getLogger(__name__)

EVERY_SECONDS = 1.0
WRITE_SECONDS = 2.0
# A row that was written before is of a process that hangs, is cut off or is gone.
FRESH_SECONDS = 10.0

# Fields of a row that are also read elsewhere.
STARTED_AT = "startedAt"
STARTED_BY = "startedBy"
PER_SECOND = "perSecond"
# Of a dispatcher whose handlers run in worker processes.
BROKER = "broker"
WORKERS = "workers"
# What each of them is at; other states are the reasons why it gets no jobs.
WORKING, STOPPING, SILENT, NEW = "working", "stopping", "silent", "asked for its rules"

Tell = Callable[[], dict[str, Any]]
"""What stands in the row beside the figures: see `StatusRow`."""


# Set by `linedesk up` for its children.
STARTED_BY_VARIABLE = "LINEDESK_STARTED_BY"
SYSTEMD, UP, HAND = "systemd", "up", "hand"
INIT_PID = 1


def started_by(environ: Mapping[str, str], *, parent: int) -> str:
    """What started a process: up, systemd (whose first process is its parent), or hand."""
    if environ.get(STARTED_BY_VARIABLE) == UP:
        return UP
    # Shells inherit INVOCATION_ID from the service that they run in.
    return SYSTEMD if environ.get("INVOCATION_ID") and parent == INIT_PID else HAND


class StatusRow(BackgroundThread):
    """The row of one process in `rows`, `<role>/<host>/<pid>`.

    `snapshot` gives the figures as they were taken last. `tell` gives what else there is to say,
    quickly and from any thread: `words` (the line that systemd shows), `state` (working, standby,
    waiting, stopping), and for whom it applies `threads`, `waiting`, `paused`. Where the row is not
    there yet it is made only while `may_make` says so.
    """

    def __init__(
        self,
        rows: Collection[Any],
        role: str,
        *,
        snapshot: Callable[[], MetricsSnapshot],
        tell: Tell,
        may_make: Callable[[], bool] = lambda: True,
        every_seconds: float = EVERY_SECONDS,
        write_seconds: float = WRITE_SECONDS,
    ) -> None:
        super().__init__("status", self._run)
        self._rows = rows.with_options(write_concern=WriteConcern(w=1))
        self._snapshot = snapshot
        self._tell = tell
        self._may_make = may_make
        self._every_seconds = every_seconds
        self._write_seconds = write_seconds
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

    def _run(self) -> None:
        while not self._stop.is_set():
            self._write(self._tell())
            self._stop.wait(self._every_seconds)
        # Where MongoDB took nothing a moment ago, nobody is to wait for it at the end.
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
            with pymongo.timeout(self._write_seconds):
                # As a pipeline, of which the oplog gets only what is different: a whole row each
                # second would be some 500 MB a day of it.
                new = [{"$replaceWith": {"$literal": {"_id": self.id, **row}}}]
                self._rows.update_one({"_id": self.id}, new, upsert=self._may_make())
        except (PyMongoError, BSONError, OverflowError, ValueError) as error:
            # Whatever it is: what only tells of the work must not end it.
            if not self._failed:
                log.warning("status not written, trying again error=%s", type(error).__name__)
            self._failed = True
        else:
            self._failed = False
