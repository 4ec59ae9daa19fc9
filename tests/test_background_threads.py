"""Each owner of a thread starts and ends the same way."""

from __future__ import annotations

import ast
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bson.timestamp import Timestamp
from pymongo.database import Database

from dispatcher.commit.committer import Committer
from dispatcher.commit.progress import Progress
from dispatcher.commit.tracker import ProgressTracker
from dispatcher.control import ControlReader
from dispatcher.conversations.mailbox import JobResult
from dispatcher.delayed_calls import DelayedCalls
from dispatcher.feed.reader import FeedReader, Heartbeat
from dispatcher.feed.rescan import Rescan
from dispatcher.lease import Lease
from dispatcher.metrics import DispatcherMetrics
from dispatcher.pool.mailboxes import Mailboxes
from dispatcher.pool.pool import Pool
from dispatcher.pool.saver import Saver
from dispatcher.status import BacklogProbe
from dispatcher.timers import Timers
from dispatcher.watchdog import WatchdogReporter
from jobworker.line.call_log import CallLog
from jobworker.row_log import RowWriter
from linedesk.launch.sim_clock import SimClock
from linedesk.runtime.metrics import MetricsSnapshot
from linedesk.runtime.service_manager import ServiceManager
from linedesk.runtime.status_row import StatusRow
from linedesk.runtime.thread import BackgroundThread
from linedesk.setup.neighbours import Neighbours
from linedesk.store.collections import MEGABYTE
from linedesk.store.control import Control
from linedesk.store.documents import STATUS
from linedesk.store.queue.guard import Guard
from linedesk.store.spool.drain import Drain
from linedesk.store.spool.spool import Spool
from tests.dispatcher.fakes import QuietFeed, RecordingWorker
from tests.waiting import eventually

ROOT = Path(__file__).parents[1]
PACKAGES = ("frontdesk", "dispatcher", "jobworker", "linedesk")
JOIN_SECONDS = 5.0


@dataclass(frozen=True)
class Workplace:
    """The arguments of owners of threads."""

    database: Database[Any]
    folder: Path

    def lease(self) -> Lease:
        lease = Lease(self.database, owner="elsewhere/1/1")
        assert lease.try_acquire()
        return lease

    def pool(self) -> Pool:
        return Pool(
            lambda task: JobResult.DONE,
            Mailboxes(ProgressTracker()),
            threads=4,
            later=lambda seconds, function: None,
        )

    def committer(self) -> Committer:
        committer = Committer(self.database)
        progress = Progress(committer, feed="memory", epoch=1)
        progress.take_over()
        committer.lead(Saver(Mailboxes(ProgressTracker()), progress))
        return committer

    def reader(self) -> FeedReader:
        return FeedReader(
            QuietFeed(),
            Rescan(self.database["recvq"]),
            self.pool(),
            self.committer(),
            token=1,
            epoch_began=Timestamp(1, 1),
            has_room=lambda: True,
            heartbeat=Heartbeat(self.database["recvq"], Guard(self.database)),
        )

    def probe(self) -> BacklogProbe:
        figures = DispatcherMetrics(leads=lambda: True)
        return BacklogProbe(
            self.database, self.pool().view, figures, Neighbours(self.database).look
        )

    def control(self) -> ControlReader:
        control = Control(self.database)
        return ControlReader(control, self.pool(), RecordingWorker(), self.lease())

    def drain(self) -> Drain:
        return Drain(Spool(self.folder / "spool.db", max_bytes=MEGABYTE), self.database)


OWNERS: dict[type[BackgroundThread], Callable[[Workplace], BackgroundThread]] = {
    DelayedCalls: lambda place: DelayedCalls(),
    Drain: Workplace.drain,
    Guard: lambda place: Guard(place.database),
    Lease: Workplace.lease,
    ControlReader: Workplace.control,
    FeedReader: Workplace.reader,
    WatchdogReporter: lambda place: WatchdogReporter(ServiceManager()),
    RowWriter: lambda place: RowWriter(CallLog(place.database["calls"])),
    Committer: Workplace.committer,
    Timers: lambda place: Timers(place.database, lease_is_fresh=lambda: True),
    SimClock: lambda place: SimClock("http://127.0.0.1:1/sim/clock"),
    BacklogProbe: Workplace.probe,
    StatusRow: lambda place: StatusRow(
        place.database[STATUS], "dispatcher", snapshot=MetricsSnapshot, tell=dict
    ),
}


class OfPool:
    """A pool returns the threads that still run, where the others return whether all have ended."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.start, self.stop = pool.start, pool.stop

    def join(self, timeout_seconds: float) -> bool:
        return not self._pool.threads.join(time.monotonic() + timeout_seconds)


Life = BackgroundThread | OfPool


@pytest.fixture(params=[*OWNERS, Pool], ids=lambda owner: owner.__name__)
def life(
    request: pytest.FixtureRequest, database: Database[Any], tmp_path: Path, no_thread_dies: None
) -> Life:
    place = Workplace(database, tmp_path)
    if request.param is Pool:
        return OfPool(place.pool())
    return OWNERS[request.param](place)


@pytest.fixture
def no_thread_dies(
    monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> Iterator[list[BaseException | None]]:
    """An error on a thread would end it, and hide the result."""
    died: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: died.append(args.exc_value))
    yield died
    assert died == []


def test_it_ends_when_stopped_and_leaves_no_thread(life: Life) -> None:
    before = threading.active_count()
    life.start()
    life.stop()
    assert life.join(JOIN_SECONDS)
    eventually(lambda: threading.active_count() <= before)


def test_a_stop_before_the_start_is_not_lost(life: Life) -> None:
    life.stop()
    assert life.join(JOIN_SECONDS)
    life.start()
    assert life.join(JOIN_SECONDS)


@pytest.mark.parametrize("life", OWNERS, indirect=True, ids=lambda owner: owner.__name__)
def test_one_that_was_stopped_stays_stopped(life: BackgroundThread) -> None:
    life.start()
    life.stop()
    assert life.join(JOIN_SECONDS)
    life.start()
    assert (life.join(0.0), life.dead) == (True, False)


# None is forgotten.


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for room in PACKAGES:
        for path in (ROOT / room).rglob("*.py"):
            yield path.relative_to(ROOT), ast.parse(path.read_text("utf-8"))


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def test_each_owner_of_a_thread_is_tried() -> None:
    owners = {
        node.name
        for _, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and "BackgroundThread" in map(name_of, node.bases)
    }
    assert owners == {owner.__name__ for owner in OWNERS}
