"""The figures of a process, from its metrics to `status`."""

from __future__ import annotations

import logging
import threading

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from linedesk.runtime.metrics import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    MOST_COUNTED,
    Figure,
    Metrics,
    MetricsSnapshots,
    Refusals,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def snapshots(registry: CollectorRegistry, clock: Clock) -> MetricsSnapshots:
    return MetricsSnapshots(registry, monotonic=clock)


def test_counts_and_gauges_are_found_by_name_and_labels_nest(
    registry: CollectorRegistry, snapshots: MetricsSnapshots
) -> None:
    figures = Metrics(
        [
            Figure("accepted_events", COUNTER, "-"),
            Figure("calls", COUNTER, "-", ("endpoint", "status")),
            Figure("recvq_unread_share", GAUGE, "-"),
            Figure("connections", GAUGE, "-"),
        ],
        registry,
    )
    figures.add("accepted_events", by=3)
    figures.add("calls", "/v2/bot/message/push", "200")
    figures.set("recvq_unread_share", 0.25)
    figures.set("connections", lambda: None)
    Gauge("python_things", "-", registry=registry).set(1)

    assert snapshots.take().figures == {
        "acceptedEvents": 3,
        "calls": {"/v2/bot/message/push": {"200": 1}},
        "recvqUnreadShare": 0.25,
    }
    assert snapshots.latest.figures["acceptedEvents"] == 3


def test_a_rate_is_that_of_the_last_ten_seconds(
    registry: CollectorRegistry, snapshots: MetricsSnapshots, clock: Clock
) -> None:
    figures = Metrics([Figure("accepted_events", COUNTER, "-")], registry)
    figures.add("accepted_events", by=1_000)
    for _ in range(30):
        snapshots.take()
        clock.now += 1
        figures.add("accepted_events", by=5)
    assert snapshots.take().per_second == {"acceptedEvents": 5.0}

    for _ in range(15):
        clock.now += 1
        snapshots.take()
    assert snapshots.latest.per_second == {"acceptedEvents": 0.0}


def test_a_percentile_is_never_above_the_largest_value_of_its_minute(
    registry: CollectorRegistry, snapshots: MetricsSnapshots, clock: Clock
) -> None:
    figures = Metrics([Figure("call_seconds", HISTOGRAM, "-", ("endpoint",))], registry)
    snapshots.take()
    for value in (61.0, 95.0):
        figures.observe("call_seconds", value, "reply")
    figures.observe("call_seconds", 0.004, "push")
    # A scrape of /metrics takes nothing away.
    generate_latest(registry)
    clock.now += 1
    lately = snapshots.take().lately["callSeconds"]
    assert (lately["reply"]["p99"], lately["reply"]["max"]) == (95.0, 95.0)
    assert lately["push"]["p99"] == lately["push"]["max"] == 0.004

    for _ in range(59):
        clock.now += 1
        snapshots.take()
    assert snapshots.latest.lately["callSeconds"]["reply"]["max"] == 95.0
    clock.now += 30
    figures.observe("call_seconds", 62.0, "reply")
    clock.now += 1
    assert snapshots.take().lately["callSeconds"]["reply"]["p99"] == 62.0


@pytest.mark.parametrize(
    ("values", "p50", "p99"),
    [
        ([7.3] * 99 + [9.9], 7.3, 7.3),
        ([1050.0] * 340, 1050.0, 1050.0),
        ([3700.0, 5000.0, 7000.0], 5000.0, 7000.0),
        ([0.0001], 0.0001, 0.0001),
        ([299.0, 301.0, 3601.0], 301.0, 3601.0),
    ],
)
def test_a_percentile_is_a_duration_that_was_seen_and_not_a_bound_of_a_bucket(
    registry: CollectorRegistry,
    snapshots: MetricsSnapshots,
    values: list[float],
    p50: float,
    p99: float,
) -> None:
    figures = Metrics([Figure("wait_seconds", HISTOGRAM, "-")], registry)
    snapshots.take()
    for value in values:
        figures.observe("wait_seconds", value)
    lately = snapshots.take().lately["waitSeconds"]
    assert (lately["p50"], lately["p99"], lately["max"]) == (p50, p99, max(values))
    exposed = generate_latest(registry).decode()
    within = sum(value <= 3600 for value in values)
    assert f'linedesk_wait_seconds_bucket{{le="3600.0"}} {within:.1f}' in exposed
    assert f'linedesk_wait_seconds_bucket{{le="+Inf"}} {len(values):.1f}' in exposed


def test_nothing_is_lost_of_what_several_threads_observe(
    registry: CollectorRegistry, snapshots: MetricsSnapshots
) -> None:
    figures = Metrics([Figure("wait_seconds", HISTOGRAM, "-")], registry)

    def observe() -> None:
        for _ in range(5_000):
            figures.observe("wait_seconds", 1.0)

    threads = [threading.Thread(target=observe) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        snapshots.take()
    assert snapshots.take().figures["waitSeconds"] == {"count": 20_000, "sum": 20_000.0}


# --- refusals in the log ----------------------------------------------------------------------


def test_refusals_of_any_number_of_addresses_take_bounded_memory(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    refusals = Refusals(logging.getLogger("frontdesk"), monotonic=clock)
    refusals.note("first", "first")
    for number in range(5 * MOST_COUNTED):
        refusals.note("401", f"{number} {'x' * 1_000}")
        refusals.note("401", "192.0.2.1")
        assert len(refusals._addresses) <= MOST_COUNTED
    refusals.tell()
    assert f'requests={10 * MOST_COUNTED} reasons="401 (10000)"' in caplog.text
    assert f'busiest="192.0.2.1 ({5 * MOST_COUNTED}), ' in caplog.text
    assert len(caplog.messages[-1]) < 1_000
