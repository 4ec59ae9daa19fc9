"""The figures of a process, from its metrics to `status`."""

import logging

import pytest
from prometheus_client import CollectorRegistry, Gauge

from linedesk.runtime.metrics import (
    COUNTER,
    GAUGE,
    MOST_COUNTED,
    Figure,
    Metrics,
    MetricsSnapshots,
    Refusals,
)
from tests.waiting import Now


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def snapshots(registry: CollectorRegistry, now: Now) -> MetricsSnapshots:
    return MetricsSnapshots(registry, monotonic=now)


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
    registry: CollectorRegistry, snapshots: MetricsSnapshots, now: Now
) -> None:
    figures = Metrics([Figure("accepted_events", COUNTER, "-")], registry)
    figures.add("accepted_events", by=1_000)
    for _ in range(30):
        snapshots.take()
        now.seconds += 1
        figures.add("accepted_events", by=5)
    assert snapshots.take().per_second == {"acceptedEvents": 5.0}

    for _ in range(15):
        now.seconds += 1
        snapshots.take()
    assert snapshots.latest.per_second == {"acceptedEvents": 0.0}


def test_refusals_of_any_number_of_addresses_take_bounded_memory(
    now: Now, caplog: pytest.LogCaptureFixture
) -> None:
    refusals = Refusals(logging.getLogger("frontdesk"), monotonic=now)
    refusals.note("first", "first")
    for number in range(5 * MOST_COUNTED):
        refusals.note("401", f"{number} {'x' * 1_000}")
        refusals.note("401", "192.0.2.1")
        assert len(refusals._addresses) <= MOST_COUNTED
    refusals.tell()
    assert f'requests={10 * MOST_COUNTED} reasons="401 (10000)"' in caplog.text
    assert f'busiest="192.0.2.1 ({5 * MOST_COUNTED}), ' in caplog.text
    assert len(caplog.messages[-1]) < 1_000
