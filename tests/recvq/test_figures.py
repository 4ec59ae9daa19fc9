"""The figures of a process, from its metrics to what stands in `status`."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from recvq.figures import SECONDS_BUCKETS, Snapshots, figure_name, spread


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
def snapshots(registry: CollectorRegistry, clock: Clock) -> Snapshots:
    return Snapshots(registry, monotonic=clock)


def test_a_figure_has_the_metrics_name_in_camel_case() -> None:
    assert figure_name("linedesk_accepted_events_total") == "acceptedEvents"
    assert figure_name("linedesk_threads") == "threads"


def test_counts_and_gauges_stand_by_name_and_labels_nest(
    registry: CollectorRegistry, snapshots: Snapshots
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
    registry: CollectorRegistry, snapshots: Snapshots, clock: Clock
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
    registry: CollectorRegistry, snapshots: Snapshots, clock: Clock
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


def test_what_is_above_the_last_bound_counts_as_the_bound() -> None:
    assert spread([(1.0, 0.0), (float("inf"), 4.0)]) == {
        "count": 4,
        **dict.fromkeys(("p50", "p90", "p99"), 1.0),
    }
