"""All that tells of one dispatcher: its figures, systemd's line, its row in `status`, the history.

It lives from the start of the process to its end. Nothing of it is waited for by the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from pymongo.database import Database

from dispatcher.figures import Figures, Source
from dispatcher.reader import Reader
from dispatcher.report import Report, Told
from dispatcher.sounder import Sounder
from dispatcher.telling import Telling
from dispatcher.view import View
from linedesk.contract import Worker
from recvq.documents import Document
from recvq.restore import Neighbours
from recvq.service import Service
from recvq.status import StatusRow
from recvq.thread import Component

ROLE = "dispatcher"
JOIN_SECONDS = 5.0


class Voice:
    """One process's. `leads` tells whether it holds the lease."""

    def __init__(
        self,
        database: Database[Any],
        service: Service,
        *,
        registry: CollectorRegistry | None,
        leads: Callable[[], bool],
    ) -> None:
        self._database = database
        self.figures = Figures(registry, leads=leads)
        self.report = Report(service, look=self.figures.look)
        self._row = StatusRow(database, ROLE, snapshot=lambda: self._told.figures, tell=self._tell)
        # Of the row that is being written: its words and its figures are of one moment.
        self._told = self.report.told
        self._sounder: Sounder | None = None
        # Set once the process is at work; read by the row's thread.
        self._telling: Telling | None = None

    def start(self) -> None:
        """Tell from now on, of a process that is not at work yet."""
        self.report.told = Told(figures=self.figures.look())
        self.report.start()
        self._row.start()

    def begin(
        self,
        view: View,
        reader: Reader,
        worker: Worker,
        companions: Sequence[Component],
        neighbours: Neighbours,
        *,
        about: Document,
        stalled: Callable[[], str | None],
    ) -> None:
        """It is at work; `about` stands in the row, `stalled` is what hangs of it, in words."""
        self.figures.begin(Source(view, reader.lost_history))
        self._telling = telling = Telling(
            self.figures, view, reader.reason, worker, companions, about=about
        )
        self.report.working(telling.words, telling.state, stalled=stalled)
        self._sounder = Sounder(self._database, view, self.figures, neighbours)
        self._sounder.start()

    def stop(self) -> None:
        """Say that it has ended, and end; may be called twice."""
        for part in (self.report, self._sounder):
            if part is not None:
                part.stop()
                part.join(JOIN_SECONDS)
        # For the last row, which tells of nothing that is not its own any more.
        self.figures.know(None)
        self.report.told = self.report.told._replace(figures=self.figures.look())
        self._row.stop()
        self._row.join(JOIN_SECONDS)

    def _tell(self) -> Document:
        self._told = told = self.report.told
        row = {"state": told.state, "words": told.words}
        return {**row, **(self._telling.row() if self._telling is not None else {})}
