"""From a pool and a depth to figures, and from figures to the line that systemd shows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from dispatcher.conversations.mailbox import JobResult
from dispatcher.metrics import DEPTH, IN_HAND, DispatcherMetrics
from dispatcher.status import StatusLine, history_row
from linedesk.runtime.liveness import WaitReason
from linedesk.runtime.metrics import MetricsSnapshot, figure_name
from tests.dispatcher.conftest import DeskOfPool
from tests.dispatcher.fakes import Holder, RecordingWorker, document, numbered
from tests.waiting import eventually

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


def test_a_standby_has_no_figures_but_that_it_does_not_lead() -> None:
    registry = CollectorRegistry()
    assert DispatcherMetrics(registry, leads=lambda: False).snapshots.take().figures == {
        "leading": 0,
        "savedProgress": 0,
        "saveSeconds": {"count": 0, "sum": 0.0},
    }
    exposed = generate_latest(registry).decode()
    assert "linedesk_leading 0.0\n" in exposed
    for figure in (*IN_HAND, *DEPTH):
        assert f"\nlinedesk_{figure.name} " not in exposed, "nothing is told that is not known"


def test_an_active_dispatcher_reports_its_pool_s_counts(pool_of: MakePool) -> None:
    held = Holder("e0")
    desk = pool_of(held)
    told = Told(desk)
    desk.put(*numbered(5, keys=5))
    held.wait_until_held("e0")
    desk.put(document("last", user="U0"))
    told.lost = 2
    eventually(lambda: desk.pool.view.in_hand()["finished_documents"] == 4)
    found = told.figures.snapshots.take().figures
    assert {name: found[name] for name in map(figure_name, (f.name for f in IN_HAND))} == {
        "readDocuments": 6,
        "finishedDocuments": 4,
        "inHandDocuments": 2,
        "windowDocuments": 6,
        "heldDocuments": 0,
        "heldKeys": 0,
        "waitingKeys": {"paused": 0, "again": 0, "save": 0, "held": 0},
        "pauses": {"everything": 0, "channel": 0, "conversation": 0},
        "oldestPauseSeconds": {"everything": 0, "channel": 0, "conversation": 0},
        "threads": 4,
        "busyThreads": 1,
        "abandonedThreads": 0,
        "lostHistory": 2,
    }
    held.let_go()
    desk.wait_until_idle()


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


def test_the_line_has_the_figures_of_the_last_reading(told: Told) -> None:
    told.figures.know(
        {
            "lag_documents": 120,
            "lag_seconds": 3.25,
            "queue_documents": 125,
            "oldest_unfinished_seconds": 61.5,
        }
    )
    assert told.words()[2:] == ["0 in hand", "120 not read yet", "oldest 61.5 s", "nothing waits"]
    # A document on its way at this moment is not shown as lag.
    told.figures.know(
        {
            "lag_documents": 1,
            "lag_seconds": 0.004,
            "queue_documents": 1,
            "oldest_unfinished_seconds": 0.004,
        }
    )
    assert told.words()[2:] == ["0 in hand", "oldest 0.0 s", "nothing waits"]


def test_events_per_second_are_the_figures_rate(told: Told, desk: DeskOfPool) -> None:
    told.figures.snapshots.take()
    desk.put(*numbered(30, keys=30))
    desk.wait_until_idle()
    words = told.words()
    rate = told.figures.snapshots.latest.per_second["finishedDocuments"]
    assert (words[1], rate) == ("30.0 events/s", 30)


def test_the_outbox_s_rows_are_merged_with_those_of_the_keys(told: Told) -> None:
    sent: dict[str, Any] = {
        "channel": "main",
        "key": "U9",
        "eventId": "E9",
        "since": datetime(2026, 1, 2, tzinfo=UTC),
        "why": "a send waits: LINE answered 429",
    }
    told.worker.sends_that_wait.append(sent)
    assert told.status_line.row() == {
        "feed": "memory",
        "epoch": 7,
        "threads": [],
        "waiting": [sent],
        "paused": [],
        "why": None,
    }


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
