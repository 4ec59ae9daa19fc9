"""From a pool and a depth to figures, and from figures to the line that systemd shows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from dispatcher.conversations.mailbox import JobResult
from dispatcher.metrics import DEPTH, DispatcherMetrics
from dispatcher.status import StatusLine, history_row
from linedesk.runtime.liveness import WaitReason
from linedesk.runtime.metrics import MetricsSnapshot, figure_name
from tests.dispatcher.conftest import DeskOfPool
from tests.dispatcher.fakes import RecordingWorker

MakePool = Callable[..., DeskOfPool]


class Told:
    """Figures of a pool, with the other sources as the test sets them."""

    def __init__(self, desk: DeskOfPool) -> None:
        self.registry, self.leads, self.lost = CollectorRegistry(), True, 0
        self.figures = DispatcherMetrics(self.registry, leads=lambda: self.leads)
        self.reason, self.worker = WaitReason(), RecordingWorker()
        view = desk.pool.view
        self.status_line = StatusLine(
            self.figures, view, self.reason, self.worker, [], about={"feed": "memory", "epoch": 7}
        )
        self.figures.ask(lambda: {**view.in_hand(), "lost_history": self.lost})

    def words(self) -> list[str]:
        self.figures.snapshots.take()
        return self.status_line.words().split(" · ")


@pytest.fixture
def desk(pool_of: MakePool) -> DeskOfPool:
    return pool_of(lambda job: JobResult.DONE)


@pytest.fixture
def told(desk: DeskOfPool) -> Told:
    return Told(desk)


def test_figures_that_cannot_be_measured_are_removed(told: Told) -> None:
    told.figures.know(
        {
            "lag_documents": 3,
            "lag_seconds": 1.5,
            "queue_documents": 5,
            "oldest_unfinished_seconds": 9.25,
            "behind_seconds": 2.5,
            "unpaused_documents": 4,
            "unpaused_oldest_seconds": 7.75,
            "recvq_unread_share": 0.25,
            "recvq_left_seconds": 7200.0,
        }
    )
    found = told.figures.snapshots.take().figures
    assert {name: found.get(name) for name in map(figure_name, (f.name for f in DEPTH))} == {
        "lagDocuments": 3,
        "lagSeconds": 1.5,
        "queueDocuments": 5,
        "oldestUnfinishedSeconds": 9.25,
        "behindSeconds": 2.5,
        "unpausedDocuments": 4,
        "unpausedOldestSeconds": 7.75,
        "recvqUnreadShare": 0.25,
        "recvqLeftSeconds": 7200,
        "oplogLeftSeconds": None,
        "retentionMeasuredSeconds": None,
    }
    told.figures.know(None)
    found = told.figures.snapshots.take().figures
    assert not set(map(figure_name, (f.name for f in DEPTH))) & set(found)
    assert b"\nlinedesk_lag_seconds " not in generate_latest(told.registry)
    assert b"linedesk_in_hand_documents 0.0" in generate_latest(told.registry)


def test_the_wait_reason_comes_first(told: Told) -> None:
    assert told.words()[1:] == ["0.0 events/s", "0 in hand", "nothing waits"]
    assert told.status_line.state() == "working"
    told.reason.set("waiting for MongoDB")
    told.leads = False
    reason, lease, *_ = told.words()
    assert reason.startswith("waiting for MongoDB since ")
    assert lease == "cannot renew the lease"
    assert told.status_line.state() == "waiting"


def test_a_row_of_history_has_null_for_what_is_not_known() -> None:
    bare = history_row(MetricsSnapshot())
    assert bare.pop("at")
    assert set(bare.values()) == {None}
    # While LINE refuses the access token, LINE has not failed.
    refused = {"breakerOpen": {"api": 1}, "tokenRefused": 1}
    assert history_row(MetricsSnapshot(figures=refused))["lineFails"] == 2
    full = history_row(
        MetricsSnapshot(
            figures={
                "queueDocuments": 4,
                "lagSeconds": 0.5,
                "busyThreads": 2,
                "outboxEffects": 59,
                "oldestSendSeconds": 12.5,
                "breakerOpen": {"api": 1, "data": 0},
                "tokenRefused": 0,
            },
            per_second={
                "finishedDocuments": 2.5,
                "calls": {"api": {"push": {"200": 1.5, "429": 0.25}}, "data": {"content": {}}},
            },
            lately={"waitSeconds": {"count": 3, "p50": 0.01, "p90": 0.02, "p99": 0.04}},
        )
    )
    assert set(full) == set(bare) | {"at"}
    told = {name: value for name, value in full.items() if value is not None and name != "at"}
    assert told == {
        "queueDocuments": 4,
        "lagSeconds": 0.5,
        "busyThreads": 2,
        "outboxEffects": 59,
        "oldestSendSeconds": 12.5,
        "lineFails": 1,
        "decidedPerSecond": 2.5,
        "callsPerSecond": 1.75,
        "waitP50": 0.01,
        "waitP99": 0.04,
    }
