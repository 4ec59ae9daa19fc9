"""The figures of timers."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry

from dispatcher.metrics import TimerMetrics
from dispatcher.timers import Timers
from linedesk.runtime.metrics import MetricsSnapshots

Schedule = Callable[..., Timers]


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
