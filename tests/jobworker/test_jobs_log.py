"""The rows of `jobs`: one for each run that called the handler or decided."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pymongo.collection import Collection
from pymongo.read_concern import ReadConcern

from dispatcher.conversations.mailbox import JobResult, Wait
from jobworker.bot.talk import Talk
from jobworker.metrics import WorkerMetrics
from jobworker.runs import TYPE_CHARACTERS, JobMemo, JobRun, Runs
from jobworker.sending.conversation_outbox import SendLimits
from linedesk import Bot
from linedesk.runtime.metrics import MetricsSnapshots
from linedesk.store.client import Client
from linedesk.store.documents import Document, make_document
from linedesk.store.records.waits import Why
from linesim import Sim
from tests.dispatcher.faults import failing
from tests.jobworker.test_handler_context import abandon
from tests.jobworker.worker_harness import Room
from tests.rows import rows_of
from tests.waiting import eventually

Rooms = Callable[..., Room]


class Waits:
    """A handler that waits for the test at the chosen event."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, event: Any, talk: Talk) -> None:
        if event.message.text == "待" and not self.go_on.is_set():
            self.entered.set()
            assert self.go_on.wait(30)
        talk.reply("はい")


def a_bot(handler: Callable[[Any, Talk], None]) -> Bot:
    bot = Bot()
    bot.default()(handler)
    return bot


def written(desk: Room) -> list[Document]:
    """All rows, as they are written at the end."""
    desk.desk.rows.write()
    return rows_of(local(desk.database.jobs))


def local(collection: Collection[Any]) -> Collection[Any]:
    """As it is on the primary: rows are not written for a majority."""
    return collection.with_options(read_concern=ReadConcern("local"))


def outcomes(desk: Room) -> list[tuple[Any, ...]]:
    return [(row["outcome"], row["attempt"], row["effects"], row["error"]) for row in written(desk)]


def test_a_row_describes_one_run(room: Rooms, sim: Sim) -> None:
    desk = room(a_bot(lambda event, talk: talk.reply("はい")))
    user = sim.add_user("花子")
    event = sim.drafts.text(user, "?")
    sim.deliver(event)
    document = desk.put(event, accepted=datetime.now(UTC) - timedelta(seconds=2))
    desk.until_quiet()
    (row,) = written(desk)
    assert 2_000 <= row.pop("waitedMs") < 10_000
    assert 0 < row.pop("ms") < 10_000
    assert row.pop("at") > document["acceptTime"]
    assert row.pop("thread").startswith("worker-")
    assert row == {
        "eventId": document["eventId"],
        "channel": "main",
        "key": user.user_id,
        "type": "message",
        "attempt": 1,
        "outcome": "recorded",
        "effects": 1,
        "error": None,
    }


def test_each_try_of_a_failing_handler_has_its_row(room: Rooms, sim: Sim) -> None:
    def fails(event: Any, talk: Talk) -> None:
        raise KeyError("the user's own words")

    desk = room(a_bot(fails), tries=2)
    desk.says(sim.add_user("花子"), "?")
    desk.until_quiet()
    # The last one was recorded as a dead letter by the same run.
    assert outcomes(desk) == [("failed", 1, 0, "KeyError"), ("failed", 2, 1, "KeyError")]


def test_an_abandoned_handler_has_one_row_whatever_it_comes_to(room: Rooms, sim: Sim) -> None:
    waits = Waits()
    desk = room(a_bot(waits))
    desk.says(sim.add_user("花子"), "待")
    assert waits.entered.wait(10)
    assert abandon(desk) == 1
    waits.go_on.set()
    desk.until_quiet()
    eventually(lambda: not desk.pool.threads.abandoned())
    assert outcomes(desk) == [("timeout", 1, 0, None), ("recorded", 2, 1, None)]
    found = desk.figures()
    assert found["failedHandlers"] == {"error": 0, "timeout": 1}
    assert found["handlerSeconds"]["count"] == 2
    assert found["waitSeconds"]["count"] == 1


def test_a_record_that_mongodb_does_not_take_is_noted_and_asked_for_again(
    room: Rooms, sim: Sim, client: Client
) -> None:
    limits = SendLimits(note_seconds=0.001)
    desk = room(a_bot(lambda event, talk: talk.reply("はい")), send_limits=limits)
    with failing(client, ["update"], times=1, closeConnection=True):
        desk.says(sim.add_user("花子"), "?")
        desk.until_quiet()
    assert outcomes(desk) == [("again", 1, 0, "StoreUnavailable"), ("recorded", 1, 1, None)]


def test_a_message_that_was_taken_back_ends_unheard(room: Rooms, sim: Sim) -> None:
    desk = room(a_bot(lambda event, talk: None))
    user = sim.add_user("花子")
    event = sim.drafts.text(user, "?")
    taken_back = {**sim.drafts.text(user, "-"), "type": "unsend"}
    taken_back["unsend"] = {"messageId": event["message"]["id"]}
    del taken_back["message"]
    desk.put(taken_back)
    desk.until_decided()
    desk.put(event)
    desk.until_decided()
    assert [(row["type"], row["outcome"]) for row in written(desk)] == [
        ("unsend", "finished"),
        ("message", "unheard"),
    ]
    assert desk.figures()["decidedEvents"]["unheard"] == 1


def test_a_run_that_only_waits_has_no_row(room: Rooms, sim: Sim) -> None:
    limits = SendLimits(most_per_conversation=1)
    desk = room(a_bot(lambda event, talk: talk.reply("はい")), send_limits=limits)
    user = sim.add_user("花子")
    sim.answer_next("reply", 429, headers={"Retry-After": "300"})
    desk.says(user, "一")
    desk.until_decided()
    desk.says(user, "二")
    eventually(lambda: desk.pool.view.waiting())
    assert len(written(desk)) == 1


def test_a_flood_of_events_that_come_to_nothing_leaves_out_rows_and_counts_them(
    database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobworker.runs.MOST_PLAIN", 3)
    registry = CollectorRegistry()
    runs = Runs(database.jobs, WorkerMetrics(registry))
    event = {"type": "message" * 50, "webhookEventId": "01E", "source": {"userId": "U1"}}
    document = make_document(event, channel="main", accept_time=datetime.now(UTC))
    for _ in range(5):
        runs.ended(document, JobMemo(), JobResult.DONE)
    failed = JobRun()
    failed.outcome, failed.error = "failed", "KeyError"
    runs.ended(document, JobMemo(run=failed), Wait.because(Why.HANDLER_FAILED))
    runs.rows.write()
    rows = rows_of(local(database.jobs))
    assert [row["outcome"] for row in rows] == ["finished"] * 3 + ["failed"]
    assert {len(row["type"]) for row in rows} == {TYPE_CHARACTERS}
    found = MetricsSnapshots(registry).take().figures
    assert (found["unwrittenRows"]["jobs"], found["decidedEvents"]["finished"]) == (2, 5)


def test_all_that_waits_is_written_at_the_end(room: Rooms, sim: Sim, database: Any) -> None:
    with Room(database, sim, a_bot(lambda event, talk: talk.reply("はい"))) as desk:
        desk.says(sim.add_user("花子"), "?")
        desk.until_quiet()
    names = ("jobs", "calls")
    assert [len(rows_of(local(database[name]))) for name in names] == [1, 1]
