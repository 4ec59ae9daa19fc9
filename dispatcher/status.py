"""A dispatcher's reports: systemd's status line, its row in `status`, metrics, and `history`.

They run from the start of the process to its end, and no work waits for them. `BacklogProbe` asks
MongoDB for figures that are not in memory, and checks whether a collection was dropped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pymongo
from bson.errors import BSONError
from prometheus_client import CollectorRegistry
from pymongo.database import Database
from pymongo.errors import PyMongoError
from pymongo.write_concern import WriteConcern

from dispatcher.feed.reader import FeedReader
from dispatcher.lease import Lease
from dispatcher.metrics import DispatcherMetrics
from dispatcher.pool.view import BEFORE_ALL, MOST_WAITING, PoolView
from dispatcher.watchdog import WAITING, WORKING, Reported, WatchdogReporter
from jobworker.assembly import BotWorker
from linedesk.runtime.liveness import WaitReason, moment
from linedesk.runtime.metrics import MetricsSnapshot
from linedesk.runtime.outage import MONGODB
from linedesk.runtime.service_manager import ServiceManager
from linedesk.runtime.status_row import (
    BROKER,
    BROKER_WHY,
    EVERY_SECONDS,
    WHY,
    WORKERS,
    WRITE_SECONDS,
    StatusRow,
)
from linedesk.runtime.thread import BackgroundThread
from linedesk.store.documents import HISTORY, STATUS, Document
from linedesk.store.errors import QueueError, is_outage
from linedesk.store.queue.usage import RecvqUsage
from linedesk.store.records.history import (
    AS_FIGURES,
    CALL_RATE,
    DECIDED_RATE,
    HELD_DOCUMENTS,
    IN_HAND_DOCUMENTS,
    LAG_DOCUMENTS,
    LAG_SECONDS,
    LINE_FAILS,
    OLDEST_SECONDS,
    READ_RATE,
    REFUSES_TOKEN,
)

SHORTEST_LAG_SECONDS = 1.0


@dataclass(frozen=True)
class StatusLine:
    """The status line and row, from any thread."""

    figures: DispatcherMetrics
    view: PoolView
    reason: WaitReason
    """Why the feed delivers nothing."""
    worker: BotWorker
    components: Sequence[BackgroundThread]
    about: Document
    began_at: datetime = field(default_factory=partial(datetime.now, UTC))

    def state(self) -> str:
        """Return whether it works or waits for a known reason."""
        return WORKING if self.figures.leads() and self.reason.fresh() is None else WAITING

    def why(self) -> Document | None:
        """Return the reason why it waits, as a code with its values."""
        if (waits := self.reason.since()) is not None:
            return {"code": waits[0], "since": waits[1]}
        return None if self.figures.leads() else {"code": "cannot renew the lease"}

    def words(self) -> str:
        """Return the wait reasons first, then the figures of the last reading."""
        latest = self.figures.snapshots.latest
        parts: list[BotWorker | BackgroundThread] = [self.worker, *self.components]
        told = [
            self.reason.fresh(),
            f"holds the lease since {moment(self.began_at)}"
            if self.figures.leads()
            else "cannot renew the lease",
            self.view.suspects(),
            *_figures_in_words(latest.figures, latest.per_second),
            *(part.status() for part in parts),
        ]
        return " · ".join(word for word in told if word)

    def row(self) -> Document:
        """Return the fields of the row in addition to the figures."""
        waiting = [*self.view.waiting(), *map(dict, self.worker.waiting())]
        return {
            **self.about,
            **self._workers(),
            WHY: self.why(),
            "threads": self.view.doing(),
            "waiting": sorted(waiting, key=lambda one: one["since"] or BEFORE_ALL)[:MOST_WAITING],
            "paused": self.view.paused(),
        }

    def _workers(self) -> Document:
        broker = self.worker.broker()
        if broker is None:
            return {}
        workers = [dict(one) for one in self.worker.workers()]
        return {BROKER: broker, BROKER_WHY: self.worker.broker_why(), WORKERS: workers}


def _figures_in_words(figures: Document, per_second: Document) -> list[str | None]:
    def number(name: str) -> float:
        return float(figures.get(name, 0))

    oldest, lag = figures.get(OLDEST_SECONDS), number(LAG_SECONDS)
    held, keys = number(HELD_DOCUMENTS), number("heldKeys")
    return [
        f"{per_second.get('finishedDocuments', 0.0):.1f} events/s",
        f"{number(IN_HAND_DOCUMENTS):.0f} in hand",
        f"{number(LAG_DOCUMENTS):.0f} not read yet" if lag >= SHORTEST_LAG_SECONDS else None,
        f"{held:.0f} documents of {keys:.0f} keys in held" if held else None,
        f"oldest {oldest:.1f} s" if oldest else None,
    ]


log = logging.getLogger(__name__)

HISTORY_SECONDS = 10.0


class BacklogProbe(BackgroundThread):
    """Measures the backlog each second; checks collections and writes `history` every ten."""

    def __init__(
        self,
        database: Database[Any],
        view: PoolView,
        figures: DispatcherMetrics,
        repair: Callable[[], None],
    ) -> None:
        super().__init__("depth", self._run)
        self._usage = RecvqUsage(database)
        self._standing = view.standing
        self._history = database[HISTORY].with_options(write_concern=WriteConcern(w=1))
        self._figures = figures
        self._repair = repair
        self._note_at = time.monotonic() + HISTORY_SECONDS
        # What fails for another reason than an outage, which is said once.
        self._failed: set[str] = set()

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self._tried("depth not measured", self._measure):
                # An old measurement would be taken for the present state.
                self._figures.know(None)
            if (now := time.monotonic()) >= self._note_at:
                self._note_at = max(self._note_at + HISTORY_SECONDS, now)
                if self._figures.leads():
                    # First, because the row would create an uncapped `history` after a drop.
                    self._tried("collections not checked", self._repair)
                    self._tried("history not written", self._note)
            self._stop.wait(EVERY_SECONDS)

    def _measure(self) -> None:
        self._figures.know(self._usage.depth(self._standing))

    def _note(self) -> None:
        with pymongo.timeout(WRITE_SECONDS):
            self._history.insert_one(history_row(self._figures.snapshots.latest))

    def _tried(self, failed: str, action: Callable[[], None]) -> bool:
        """Whether the action succeeded."""
        try:
            action()
        except (PyMongoError, BSONError, QueueError) as error:
            if is_outage(error):
                MONGODB.fails(failed, type(error).__name__)
            elif failed not in self._failed:
                log.warning("%s, trying again error=%s", failed, type(error).__name__)
                self._failed.add(failed)
            return False
        MONGODB.works(failed)
        self._failed.discard(failed)
        return True


def history_row(now: MetricsSnapshot) -> Document:
    """Return a row of `history`; figures without a value are null."""
    row = {"at": now.at, **{name: now.figures.get(name) for name in AS_FIGURES}}
    row[READ_RATE] = now.per_second.get("readDocuments")
    row[DECIDED_RATE] = now.per_second.get("finishedDocuments")
    row[CALL_RATE] = _sum(now.per_second.get("calls"))
    row[LINE_FAILS] = _line_fails(now.figures)
    for name, figure in (("wait", "waitSeconds"), ("handler", "handlerSeconds")):
        lately = now.lately.get(figure, {})
        row[f"{name}P50"], row[f"{name}P99"] = lately.get("p50"), lately.get("p99")
    return row


def _line_fails(figures: Document) -> int | None:
    """Return REFUSES_TOKEN, or 1 while any host of LINE fails, else 0; None if unknown."""
    refused = figures.get("tokenRefused")
    told = [*(figures.get("breakerOpen") or {}).values(), refused and REFUSES_TOKEN]
    known = [int(value) for value in told if value is not None]
    return max(known, default=None)


def _sum(nested: Any) -> float | None:
    if isinstance(nested, dict):
        return round(sum(_sum(value) or 0.0 for value in nested.values()), 3)
    return nested if nested is None else float(nested)


ROLE = "dispatcher"
JOIN_SECONDS = 5.0


class StatusReporter:
    """The reports of one process, to `service`, on `registry` and in its row of `status`, of which
    `about` is a part.

    `repair` makes the collections beside recvq right, cheaply where they are. It is called again
    and again.
    """

    def __init__(
        self,
        lease: Lease,
        service: ServiceManager | None = None,
        *,
        repair: Callable[[], None],
        registry: CollectorRegistry | None = None,
        about: Mapping[str, str | int] | None = None,
    ) -> None:
        self._database = database = lease.database
        self.repair = repair
        self._about = dict(about or {})
        self.figures = DispatcherMetrics(registry, leads=lease.is_fresh)
        service = service or ServiceManager()
        self.report = WatchdogReporter(service, look=self.figures.snapshots.take)
        self._row = StatusRow(
            database[STATUS],
            ROLE,
            snapshot=lambda: self._told.figures,
            tell=self._tell,
        )
        # Of the row being written: its state and its figures belong to the same moment.
        self._told = self.report.told
        self._probe: BacklogProbe | None = None
        # Set once the process is active; read by the row's thread.
        self._status_line: StatusLine | None = None

    def start(self) -> None:
        """Begin reporting for a process that is not active yet."""
        self.report.told = Reported(figures=self.figures.snapshots.take())
        self.report.start()
        self._row.start()

    def begin(
        self,
        view: PoolView,
        reader: FeedReader,
        worker: BotWorker,
        components: Sequence[BackgroundThread],
        *,
        about: Document,
        stalled: Callable[[], str | None],
    ) -> None:
        """The process is active; `about` is part of the row, `stalled` returns its hanging part."""
        about = {**self._about, **about}
        self.figures.ask(lambda: {**view.in_hand(), "lost_history": reader.lost_history})
        self._status_line = status_line = StatusLine(
            self.figures, view, reader.reason, worker, components, about=about
        )
        self.report.working(status_line.words, status_line.state, stalled=stalled)
        self._probe = BacklogProbe(self._database, view, self.figures, self.repair)
        self._probe.start()

    def stop(self) -> None:
        """Report the end, and stop; may be called twice."""
        for part in (self.report, self._probe):
            if part is not None:
                part.stop()
                part.join(JOIN_SECONDS)
        # For the last row: it must not contain figures that are no longer its own.
        self.figures.know(None)
        self.report.told = self.report.told._replace(figures=self.figures.snapshots.take())
        self._row.stop()
        self._row.join(JOIN_SECONDS)

    def _tell(self) -> Document:
        self._told = told = self.report.told
        more = self._status_line.row() if self._status_line is not None else {}
        return {"state": told.state, **more}
