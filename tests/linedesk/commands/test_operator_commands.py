"""The operators' commands: status, tail, trace, calls, pause, resume, release, audit."""

import json
import os
import re
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import Result
from pymongo.errors import OperationFailure

from linedesk.commands import orders
from linedesk.commands.tail import told
from linedesk.operate import acts, following
from linedesk.operate.following import Came
from linedesk.store.client import Client, connect
from tests.dispatcher.faults import failing
from tests.linedesk.commands.terminals import Run, terminal, typed, until
from tests.linedesk.operate.hand import (
    HANAKO,
    TEXT,
    a_call,
    a_desk,
    a_dispatcher,
    a_run,
    ago,
    an_event,
)
from tests.rows import Db, put_rows
from tests.servers import one_for_all

NOT_CONFIRMED = "no dispatcher has confirmed yet"


@pytest.fixture
def database(client: Client) -> Iterator[Db]:
    with one_for_all(client) as database:
        now = datetime.now(UTC)
        database.recvq.insert_one(an_event(at=ago(60, now=now)))
        put_rows(database.jobs, a_run(at=ago(59, now=now)))
        put_rows(
            database.calls,
            a_call(at=ago(7200, now=now), requestId="req-0", status=500),
            a_call(at=ago(58, now=now)),
            a_call(at=ago(57, now=now), requestId="req-2", status=429),
            a_call(at=ago(56, now=now), requestId=None, status=None, endpoint="/v2/bot/profile"),
            alone=1,
        )
        named = {"_id": f"main/{HANAKO}", "profile": {"displayName": "花子"}, "outbox": {}}
        database.conversations.insert_one({**named, "channel": "main", "key": HANAKO})
        database.history.insert_one({"at": ago(30, now=now), "queueDocuments": 5, "waitP99": 0.004})
        yield database


@pytest.fixture
def environ(mongo_uri: str, database: Db) -> dict[str, str]:
    return {"MONGODB_URI": mongo_uri, "MONGODB_DATABASE": database.name, "SUDO_USER": "hanako"}


@pytest.fixture
def run(environ: dict[str, str]) -> Run:
    return typed(environ)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pause and resume do not wait for a dispatcher's confirmation."""
    monkeypatch.setattr(orders, "OBEY_SECONDS", 0.0)


@contextmanager
def processes(database: Db, **dispatcher: Any) -> Iterator[None]:
    """Rows of a front desk and a dispatcher that are fresh for as long as a test takes."""
    soon = datetime.now(UTC) + timedelta(seconds=60)
    database.status.insert_many([a_desk(now=soon), a_dispatcher(now=soon, **dispatcher)])
    try:
        yield
    finally:
        database.status.delete_many({})


def jsons(answer: Result) -> list[dict[str, Any]]:
    return [json.loads(text) for text in answer.stdout.splitlines()]


def test_status_shows_the_figures_of_the_rows_and_ok(run: Run, database: Db) -> None:
    with processes(database):
        shown = run("status").stdout
        (told,) = jsons(run("status", "--json"))
    assert "  OK\n" in shown
    assert "accepted 1.5/s  read 2.0/s  decided 1.5/s" in shown
    assert "7 unfinished  oldest 1.5 s  lag 2 (250 ms)" in shown
    assert "wait 1.0 ms / 10 ms" in shown
    assert told["queue"]["documents"] == 7
    assert told["wrong"] == []
    assert "\x1b" not in shown


def test_trace_tells_the_story_and_no_text(run: Run) -> None:
    shown = run("trace", "req-1").stdout
    assert re.search(r"^result +answered: LINE took one send after 2.1 s$", shown, re.M)
    assert "POST /v2/bot/message/reply: LINE answered 200 in 90 ms  requestId=req-1" in shown
    assert "found by" in shown
    assert TEXT not in shown
    assert TEXT in run("trace", "01E", "--text").stdout
    (told,) = jsons(run("trace", "01E", "--json"))
    assert told["outcome"]["result"] == "answered"
    assert "linedesk: nothing is known by '01NONE'" in run("trace", "01NONE", code=1).stderr


def test_calls_are_narrowed_and_the_newest_come_first(run: Run) -> None:
    def shown(*options: str) -> list[str | None]:
        return [row["requestId"] for row in jsons(run("calls", "--json", *options))]

    assert shown() == [None, "req-2", "req-1", "req-0"]
    assert shown("--since", "1h", "--failed") == [None, "req-2"]
    assert shown("--failed", "--limit", "1") == [None]
    assert shown("--key", "U9") == []


def test_a_conversations_newest_events_are_told_with_results_and_answers(run: Run) -> None:
    recent = run("conversation", "show", "花子").stdout
    assert "message text  01E  answered: " in recent
    assert "  POST /v2/bot/message/reply: LINE answered 200 in 90 ms\n" in recent
    (told,) = jsons(run("conversation", "show", HANAKO, "--json"))
    assert [event["eventId"] for event in told["events"]] == ["01E"]
    assert told["events"][0]["outcome"]["result"] == "answered"


def test_a_pause_is_ordered_and_the_missing_confirmation_is_shown(
    run: Run, at_once: None, database: Db
) -> None:
    shown = run("pause", "花子", "--why", "too loud").stdout
    assert shown == f"paused main/{HANAKO}\n{NOT_CONFIRMED}; the pause takes effect when one runs\n"
    again = run("pause", f"main/{HANAKO}").stdout
    assert again.startswith(f"main/{HANAKO} was already paused\n")
    (row,) = database.control.find({}, {"_id": 0, "at": 0})
    assert row["why"] == "too loud"
    (told,) = jsons(run("resume", "--json", code=1))
    assert told == {
        "resumed": "all",
        "wasPaused": False,
        "obeyed": False,
        "paused": [f"main/{HANAKO}"],
    }
    with processes(database):
        assert run("resume", HANAKO).stdout == f"resumed main/{HANAKO}\n"
    assert list(database.control.find()) == []


def test_on_a_terminal_a_resume_says_what_waits_and_asks(
    environ: dict[str, str], run: Run, at_once: None, database: Db
) -> None:
    with processes(database, paused=[]):
        run("pause", HANAKO)
        event = {"acceptTime": ago(3600, now=datetime.now(UTC)), "event": {"replyToken": "token"}}
        held = {"channel": "main", "key": HANAKO, "document": event}
        database.held.insert_many([{**held, "n": n} for n in range(188)])
        with terminal(environ, "resume", HANAKO, "--drop") as (master, process):
            assert "up to 20 counted pushes" in until(master, "dead letter?")
            os.write(master, b"n\r")
            assert process.wait(30) != 0
        assert database.control.count_documents({"act": "pause", "key": HANAKO}) == 1
        assert f"resumed main/{HANAKO}" in run("resume", HANAKO, "--drop", "--yes").stdout
    row = database.control.find_one({"key": HANAKO})
    assert row is not None
    assert row["drop"]["by"] == "hanako"
    database.held.delete_many({})
    database.control.delete_many({})


def test_a_release_names_the_head_and_tells_what_came(
    run: Run, database: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no dispatcher runs" in run("release", "花子", code=1).stderr
    with processes(database):
        assert "nothing of it waits" in run("release", "花子", code=1).stderr
    assert "main is not a conversation" in run("release", "main", code=1).stderr
    waiting = {"channel": "main", "key": HANAKO, "eventId": "01E", "why": "failed twice"}
    with processes(database, waiting=[{**waiting, "since": datetime.now(UTC)}]):
        assert "event 01E is not stuck" in run("release", "花子", code=1).stderr
    assert database.control.find_one({"act": "release"}) is None
    waiting["since"] = ago(120, now=datetime.now(UTC))
    came = iter([None, "the event 01E is a dead letter"])
    monkeypatch.setattr(acts.Acts, "came", lambda self, release: next(came))
    with processes(database, waiting=[waiting]):
        shown = run("release", "花子", "--why", "broken\nby\t太郎").stdout
    assert f"main/{HANAKO}: release of event 01E ordered (failed twice)\n" in shown
    assert shown.endswith("the event 01E is a dead letter\n")
    row = database.control.find_one_and_delete({"act": "release"})
    assert row is not None
    assert row["what"] == {"eventId": "01E"}
    (newest,) = jsons(run("audit", "--limit", "1", "--json"))
    assert (newest["by"], newest["via"], newest["act"]) == ("hanako", "command", "release")
    assert newest["on"] == f"main/{HANAKO} 01E"
    shown = run("audit").stdout
    assert f"  release  done     花子 main/{HANAKO} 01E  broken by 太郎\n" in shown


class Stream:
    """A database whose streams can be waited for."""

    def __init__(self, database: Db) -> None:
        self._database = database
        self.opened = threading.Semaphore(0)
        self.tokens: list[Any] = []

    def watch(self, *stages: Any, **options: Any) -> Any:
        self.tokens.append(options["resume_after"])
        stream = self._database.watch(*stages, **options)
        self.opened.release()
        return stream

    def then(self, act: Callable[[], object]) -> None:
        """Do it as soon as the next stream is open."""

        def wait() -> None:
            if self.opened.acquire(timeout=10):
                act()

        threading.Thread(target=wait, daemon=True).start()


@pytest.fixture
def at_short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("AWAIT_MS", 50), ("RETRY_SECONDS", 0.01), ("HOLD_SECONDS", 0.0)):
        monkeypatch.setattr(following, name, value)


def tailed(stream: Stream, *, key: str | None) -> Generator[Came]:
    """The rows of a tail."""
    yield from following.coming(stream, key=key, text=False)  # type: ignore[arg-type]


@pytest.mark.usefixtures("at_short_intervals")
def test_a_tail_resumes_after_an_outage_of_mongodb(
    database: Db, mongo_uri: str, client: Client
) -> None:
    with connect(mongo_uri, app_name="tail") as own:
        stream = Stream(own[database.name])
        found = tailed(stream, key=None)
        stream.then(lambda: database.recvq.insert_many([an_event("01A"), an_event("01B")]))
        assert next(found).row["eventId"] == "01A"
        # Between what was read and what comes next: the driver's own try fails as well.
        with failing(client, ["getMore", "aggregate"], times=3, errorCode=189, appName="tail"):
            database.jobs.insert_one(a_run("01A"))
            came = [next(found), next(found)]
        assert [(one.kind, one.row["eventId"]) for one in came] == [
            ("event", "01B"),
            ("run", "01A"),
        ]
        assert stream.tokens[0] is None
        found.close()


@pytest.mark.usefixtures("at_short_intervals")
def test_a_tail_shows_each_row_of_a_document(database: Db) -> None:
    stream, key = Stream(database), "U7"
    found = tailed(stream, key=key)
    also = [{"eventId": "01C", "key": key}]
    rows = [a_call("01A", key=key), a_call("01B", key="U8"), a_call("01D", key="U8", also=also)]
    stream.then(lambda: put_rows(database.calls, a_call("019", key=key), *rows, alone=1))
    came = [next(found) for _ in range(3)]
    assert [one.event_id for one in came] == ["019", "01A", "01D"]
    assert [told(one, text=False) for one in came[1:]] == [
        {"kind": "call", **{name: row[name] for name in row if name != "also"}}
        for row in (rows[0], rows[2])
    ]
    found.close()


@pytest.mark.usefixtures("at_short_intervals")
def test_a_tail_that_cannot_resume_ends(database: Db, mongo_uri: str, client: Client) -> None:
    with connect(mongo_uri, app_name="lost") as own:
        stream = Stream(own[database.name])
        found = tailed(stream, key="U7")
        heartbeat = {"heartbeat": True, "key": "U7"}
        rows = [an_event("01H", key="U8"), heartbeat, an_event("01I", key="U7")]
        stream.then(lambda: database.recvq.insert_many(rows))
        assert next(found).row["eventId"] == "01I"
        with (
            failing(client, ["getMore"], times=1, errorCode=286, appName="lost"),
            pytest.raises(OperationFailure),
        ):
            next(found)


def test_timers_set_orders_one_and_says_what_is_wrong(
    run: Run, database: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "CAME_SECONDS", 0.0)
    to_all = ("timers", "set", "news", "--all-friends", "--at")
    assert "ordered" in run(*to_all, "月 12:00", "--why", "new", code=1).output
    order = database.control.find_one({"_id": "timers/news"})
    assert order["timer"]["every"] == {"at": "月 12:00", "tz": "Asia/Tokyo"}
    run(*to_all, "2099-01-03T18:00", code=1)
    order = database.control.find_one({"_id": "timers/news"})
    assert order["timer"]["runAt"].astimezone(UTC).hour == 9
    acts = [(row["act"], row["on"].split(" ", 1)) for row in database.audit.find()]
    assert acts[0] == ("set timers", ["news", "月 12:00 Asia/Tokyo"])
    assert "valid are" in run(*to_all, "someday", code=2).output
    assert "no time that comes" in run(*to_all, "7:30 until 2020-01-01", code=2).output
    assert "no '/'" in run("timers", "set", "a/b", *to_all[3:], "7:30", code=2).output
    assert "no time that comes" in run(*to_all, "2020-01-01T09:00", code=2).output
    assert "--all-friends" in run("timers", "set", "news", "--at", "7:30", code=2).output
