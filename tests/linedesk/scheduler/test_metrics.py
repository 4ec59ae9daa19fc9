"""A scheduler's figures, and the row of its process in `status`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pymongo.database import Database

from linedesk.runtime.metrics import MetricsSnapshots
from linedesk.scheduler.metrics import SchedulerMetrics
from linedesk.scheduler.process import SchedulerStatusReporter, run
from linedesk.scheduler.scheduler import Scheduler
from linedesk.store.client import Client
from linedesk.store.documents import SCHEDULE, STATUS
from tests.linedesk.scheduler.conftest import NOON, SHORT, HandClock, a_row
from tests.listener import Listener
from tests.waiting import eventually

Schedule = Callable[..., Scheduler]


def test_fired_timers_are_counted_with_their_delay(
    schedule: Schedule, database: Database[Any], clock: HandClock
) -> None:
    registry = CollectorRegistry()
    snapshots = MetricsSnapshots(registry)
    late = NOON - timedelta(seconds=4)
    database[SCHEDULE].insert_many([a_row("tea", late), a_row("rice", late)])
    one = schedule(registry=registry)
    eventually(lambda: one.status() == "2 timers fired")
    found = snapshots.take().figures
    assert found["rungTimers"] == 2
    assert found["ringLateSeconds"] == {"count": 2, "sum": 8.0}
    assert "nextTimerSeconds" not in found, "none waits"

    database[SCHEDULE].insert_one(a_row("eggs", NOON + timedelta(minutes=3)))
    eventually(lambda: "nextTimerSeconds" in snapshots.take().figures)
    assert 0 < snapshots.latest.figures["nextTimerSeconds"] <= 180
    clock.move(minutes=3)
    one.wake()
    eventually(lambda: snapshots.take().figures["rungTimers"] == 3)
    eventually(lambda: "nextTimerSeconds" not in snapshots.take().figures)


def test_a_timer_that_cannot_fire_is_later_and_later() -> None:
    now, registry = [50.0], CollectorRegistry()
    figures, snapshots = (
        SchedulerMetrics(registry, monotonic=lambda: now[0]),
        MetricsSnapshots(registry),
    )
    figures.next_in(2.5)
    assert snapshots.take().figures["nextTimerSeconds"] == 2.5
    now[0] += 10
    assert snapshots.take().figures["nextTimerSeconds"] == -7.5
    figures.observe_fired(-0.001)
    assert snapshots.take().figures["ringLateSeconds"]["sum"] == 0
    assert figures.fired == 1


def test_its_process_has_a_row_of_its_own(
    schedule: Schedule,
    database: Database[Any],
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    registry, service = CollectorRegistry(), Listener()
    inbox: SimpleQueue[int | BaseException] = SimpleQueue()
    scheduler = Scheduler(database, database, now=HandClock(), registry=registry, limits=SHORT)

    def live() -> None:
        with SchedulerStatusReporter(service, database, registry, every_seconds=0.02) as reporter:
            run([scheduler], database, inbox, reporter)

    process = threading.Thread(target=live)
    process.start()
    database[SCHEDULE].insert_one(a_row())

    def at_work() -> Any:
        return database[STATUS].find_one({"state": "working", "figures.rungTimers": 1})

    row = eventually(at_work)
    assert row["_id"] == f"scheduler/{row['host']}/{row['pid']}"
    eventually(lambda: service.says("alive", "1 timers fired"))
    eventually(lambda: database[STATUS].find_one({"words": "1 timers fired"}))
    inbox.put(signal.SIGTERM)
    process.join(15)
    ended = eventually(lambda: database[STATUS].find_one({"state": "ended"}))
    assert ended["words"] == "stopping"
    assert service.methods == ["starting", "ready", "alive", "stopping"]
