"""Companions live as long as a dispatcher holds the lease: the thread that fires timers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pymongo.database import Database

from dispatcher.conversations.mailbox import Job, JobResult
from dispatcher.process import ExitReason
from dispatcher.timers import Timers
from linedesk.store.documents import Document
from linedesk.store.timers import timer_id
from tests.dispatcher.conftest import Dispatch
from tests.dispatcher.fakes import RecordingWorker, document
from tests.waiting import eventually

Store = Callable[..., None]


class Companion:
    """Notes the calls that it gets."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.stopped = threading.Event()

    def start(self) -> None:
        self.told.append("start")

    def stop(self) -> None:
        self.told.append("stop")
        self.stopped.set()

    def join(self, timeout_seconds: float) -> bool:
        self.told.append("join")
        return True

    def stalled(self) -> str | None:
        return None

    def status(self) -> str:
        return ""


def test_it_lives_as_long_as_the_lease_is_held_and_stops_before_the_drain(
    database: Database[Document], dispatch: Dispatch, store: Store, told: Any
) -> None:
    first, second = Companion(), Companion()
    begun = threading.Event()

    def until_it_stops(job: Job) -> JobResult:
        begun.set()
        assert first.stopped.wait(30), "the drain waits for what the companion still brings"
        return JobResult.DONE

    one = dispatch(database, RecordingWorker(until_it_stops), components=[first])
    eventually(lambda: first.told == ["start"])
    two = dispatch(database, RecordingWorker(), components=[second])
    eventually(lambda: told("standby"))
    store(database, document("long"))
    assert begun.wait(15)
    assert second.told == []
    assert one.end() is ExitReason.STOPPED
    assert first.told == ["start", "stop", "join"]
    eventually(lambda: second.told == ["start"])
    two.end()


def test_a_timer_that_is_due_is_decided_in_the_order_of_its_conversation(
    database: Database[Document], dispatch: Dispatch, store: Store
) -> None:
    row = {"channel": "main", "key": "U1", "name": "tea", "n": 1, "every": None, "data": {}}
    worker = RecordingWorker()
    timers = Timers(database, lease_is_fresh=lambda: True)
    dispatch(database, worker, components=[timers])
    store(database, document("before", user="U1"))
    eventually(lambda: worker.decided)
    now = datetime.now(UTC)
    database.schedule.insert_one(row | {"_id": timer_id("main", "U1", "tea"), "runAt": now})
    timers.set(now)
    eventually(lambda: len(worker.decided) == 2)
    store(database, document("after", user="U1"))
    eventually(lambda: len(worker.decided) == 3)
    before, ring, after = worker.by_key["U1"]
    assert (before, after) == ("before", "after")
    assert ring.startswith("timer:main/U1/tea:1:")
