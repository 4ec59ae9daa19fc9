"""The figures of a process, from its metrics to `status`."""

from __future__ import annotations

import logging

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from linedesk.runtime.metrics import (
    MOST_COUNTED,
    SECONDS_BUCKETS,
    Histogram,
    MetricsSnapshots,
    Refusals,
    figure_name,
    spread,
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


def test_a_figure_has_the_metrics_name_in_camel_case() -> None:
    assert figure_name("linedesk_accepted_events_total") == "acceptedEvents"
    assert figure_name("linedesk_threads") == "threads"


def test_counts_and_gauges_are_found_by_name_and_labels_nest(
    registry: CollectorRegistry, snapshots: MetricsSnapshots
) -> None:
    Counter("linedesk_accepted_events", "-", registry=registry).inc(3)
    calls = Counter("linedesk_calls", "-", ["endpoint", "status"], registry=registry)
    calls.labels("/v2/bot/message/push", "200").inc()
    Gauge("linedesk_recvq_unread_share", "-", registry=registry).set(0.25)
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
    events = Counter("linedesk_accepted_events", "-", registry=registry)
    events.inc(1_000)
    for _ in range(30):
        snapshots.take()
        clock.now += 1
        events.inc(5)
    assert snapshots.take().per_second == {"acceptedEvents": 5.0}

    for _ in range(15):
        clock.now += 1
        snapshots.take()
    assert snapshots.latest.per_second == {"acceptedEvents": 0.0}


def test_a_latency_is_that_of_the_last_minute(
    registry: CollectorRegistry, snapshots: MetricsSnapshots, clock: Clock
) -> None:
    seconds = Histogram("linedesk_store_seconds", "-", buckets=SECONDS_BUCKETS, registry=registry)
    snapshots.take()
    for _ in range(100):
        seconds.observe(0.004)
    clock.now += 1
    lately = snapshots.take().lately["storeSeconds"]
    assert lately["count"] == 100
    assert 0.003 < lately["p50"] < 0.005
    assert snapshots.latest.figures["storeSeconds"] == {"count": 100, "sum": pytest.approx(0.4)}

    for _ in range(61):
        clock.now += 1
        snapshots.take()
    assert snapshots.latest.lately["storeSeconds"] == {"count": 0}
    assert snapshots.latest.figures["storeSeconds"]["count"] == 100


def test_a_percentile_is_never_above_the_largest_value_of_its_minute(
    registry: CollectorRegistry, snapshots: MetricsSnapshots, clock: Clock
) -> None:
    seconds = Histogram(
        "linedesk_call_seconds", "-", ["endpoint"], buckets=SECONDS_BUCKETS, registry=registry
    )
    snapshots.take()
    # They lie in the bucket from 60 s to 300 s, within which nothing is known of them.
    for value in (61.0, 95.0):
        seconds.labels("reply").observe(value)
    seconds.labels("push").observe(0.004)
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
    seconds.labels("reply").observe(62.0)
    clock.now += 1
    assert snapshots.take().lately["callSeconds"]["reply"]["p99"] == 62.0


@pytest.mark.parametrize(
    "values",
    # Each bucket's bounds are beyond the values: a wait of 17.5 minutes was shown as 5 minutes.
    [[1050.0] * 340, [1790.0] * 3, [3700.0, 5000.0, 7000.0], [0.0001], [299.0, 301.0, 3601.0]],
)
def test_percentiles_lie_between_the_smallest_and_the_largest_value(
    registry: CollectorRegistry, snapshots: MetricsSnapshots, clock: Clock, values: list[float]
) -> None:
    seconds = Histogram("linedesk_wait_seconds", "-", buckets=SECONDS_BUCKETS, registry=registry)
    snapshots.take()
    for value in values:
        seconds.observe(value)
    clock.now += 1
    lately = snapshots.take().lately["waitSeconds"]
    assert min(values) <= lately["p50"] <= lately["p90"] <= lately["p99"] <= max(values)
    assert lately["p99"] >= 0.9 * max(values)
    assert b'linedesk_wait_seconds_bucket{le="3600.0"}' in generate_latest(registry)


def test_what_is_above_the_last_bound_counts_as_the_bound() -> None:
    assert spread([(1.0, 0.0), (float("inf"), 4.0)]) == {
        "count": 4,
        **dict.fromkeys(("p50", "p90", "p99"), 1.0),
    }


# --- refusals in the log ----------------------------------------------------------------------


def test_refusals_are_a_line_a_second_that_names_the_busiest(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    refusals = Refusals(logging.getLogger("frontdesk"), monotonic=clock)
    refusals.note("401 signature is missing", "192.0.2.1")
    assert len(caplog.messages) == 1, "the first one is told at once"
    for _ in range(3):
        refusals.note("401 signature is wrong", "192.0.2.2")
    refusals.note("408 body did not arrive in time", "192.0.2.1")
    refusals.tell_in_time()
    assert len(caplog.messages) == 1
    clock.now += 1
    refusals.tell_in_time()
    refusals.tell_in_time()
    assert caplog.messages[1:] == [
        'refused requests=4 reasons="401 signature is wrong (3), '
        '408 body did not arrive in time (1)" busiest="192.0.2.2 (3), 192.0.2.1 (1)"'
    ]
    clock.now += 1
    refusals.note("401 signature is missing", "192.0.2.1")
    assert len(caplog.messages) == 3


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
