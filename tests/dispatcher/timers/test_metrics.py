"""The figures of timers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from prometheus_client import CollectorRegistry
from pymongo.database import Database

from dispatcher.metrics import TimerMetrics
from dispatcher.timers import Timers
from linedesk.runtime.metrics import MetricsSnapshots
from linedesk.store.documents import SCHEDULE
from tests.dispatcher.timers.conftest import NOON, HandClock, a_row
from tests.waiting import eventually

Schedule = Callable[..., Timers]


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
    one.set(NOON + timedelta(minutes=3))
    eventually(lambda: "nextTimerSeconds" in snapshots.take().figures)
    assert 0 < snapshots.latest.figures["nextTimerSeconds"] <= 180
    clock.move(minutes=3)
    one.wake()
    eventually(lambda: snapshots.take().figures["rungTimers"] == 3)
    eventually(lambda: "nextTimerSeconds" not in snapshots.take().figures)


def test_a_timer_that_cannot_fire_is_later_and_later() -> None:
    now, registry = [50.0], CollectorRegistry()
    figures, snapshots = (
        TimerMetrics(registry, monotonic=lambda: now[0]),
        MetricsSnapshots(registry),
    )
    figures.next_in(2.5)
    assert snapshots.take().figures["nextTimerSeconds"] == 2.5
    now[0] += 10
    assert snapshots.take().figures["nextTimerSeconds"] == -7.5
    figures.observe_fired(-0.001)
    assert snapshots.take().figures["ringLateSeconds"]["sum"] == 0
    assert figures.fired == 1
