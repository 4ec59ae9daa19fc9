"""Lists to browse without an id: their contents, their order, and the result of each event."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId

from linedesk.operate.acts import OperatorControl, heads
from linedesk.operate.conversation import latest, read_conversation, waiting
from linedesk.operate.dead_letters import Choice, found, ids_in, letter_groups, where_failed
from linedesk.operate.events.lists import events_between, events_of
from linedesk.operate.events.story import tell
from linedesk.operate.events.verdict import Result
from linedesk.operate.pauses import Waiting, read_waiting
from linedesk.store.control import Scope
from linedesk.store.documents import Document
from linedesk.store.records.effects import place_of
from tests.linedesk.operate.hand import HANAKO, TEXT, a_call, a_dispatcher, a_run, an_event, empty
from tests.rows import Db

TARO = "U" + "2" * 32
USED = (
    *("audit", "control", "deadletters", "held", "status", "conversations", "schedule"),
    *("progress", "recvq", "jobs", "calls"),
)
TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "/opt/linedesk/jobworker/runs.py", line 80, in run\n'
    "    handler(talk)\n"
    '  File "/srv/bot/main.py", line 12, in handle\n'
    "    raise KeyError(event.text)\n"
    f"KeyError: '{TEXT}'\n"
)


@pytest.fixture
def database(module_database: Db) -> Db:
    empty(module_database, *USED)
    return module_database


def now() -> datetime:
    return datetime.now(UTC)


def ago(seconds: float) -> datetime:
    return now() - timedelta(seconds=seconds)


def a_letter(id_: str, *, seconds: float = 60, **more: Any) -> Document:
    letter = {"channel": "main", "key": HANAKO, "cause": "handler: KeyError", "attempts": 3}
    at = {"firstAt": ago(seconds), "lastAt": ago(seconds)}
    return {"_id": id_, **letter, **at, "traceback": TRACEBACK, **more}


def a_conversation(**more: Any) -> Document:
    return {
        "_id": f"main/{HANAKO}",
        "channel": "main",
        "key": HANAKO,
        "kind": "user",
        "profile": {"displayName": "佐藤花子"},
        "applied": [],
        "n": 1,
        "at": ago(60),
        **more,
    }


def a_send(event_id: str, **more: Any) -> Document:
    messages = [{"type": "text", "text": "こんにちは"}]
    send = {"id": f"{event_id}/0", "eventId": event_id, "type": "send", "way": "reply"}
    return {**send, "messages": messages, "at": ago(30), **more}


def a_case(database: Db, name: str) -> Result:
    """Rows of an event as the processes leave them, and what its list is to say."""
    event = an_event(name, at=ago(40))
    database.recvq.insert_one(event)
    match name:
        case "01ANSWERED":
            database.jobs.insert_one(a_run(name, at=ago(39)))
            database.calls.insert_one(a_call(name, at=ago(38)))
            return "answered"
        case "01SILENT":
            database.jobs.insert_one(a_run(name, at=ago(39), outcome="finished", effects=0))
            return "no reply"
        case "01GIVENUP":
            database.jobs.insert_one(a_run(name, at=ago(39), outcome="failed", attempt=3))
            database.deadletters.insert_one(a_letter(name, document=event))
            return "failed"
        case "01SENDFAILED":
            database.jobs.insert_one(a_run(name, at=ago(39)))
            letter = a_letter(f"{name}/0", seconds=20, effect=a_send(name), cause="quota")
            database.deadletters.insert_one(letter)
            return "failed"
        case "01OUTBOX":
            database.jobs.insert_one(a_run(name, at=ago(39)))
            outbox = {place_of(7, 1): a_send(name)}
            database.conversations.insert_one(a_conversation(applied=[name], outbox=outbox))
            return "waiting"
        case "01HELD":
            held = {"_id": event["_id"], "n": 1, "channel": "main", "key": HANAKO}
            database.held.insert_one({**held, "document": event, "why": "paused", "since": now()})
            return "waiting"
        case _:
            # Its row in `jobs` is overwritten already.
            database.progress.replace_one(
                {"_id": "dispatcher"}, {"finished": [event["_id"]]}, upsert=True
            )
            return "no reply"


CASES = (
    *("01ANSWERED", "01SILENT", "01GIVENUP", "01SENDFAILED", "01OUTBOX", "01HELD", "01FINISHED"),
)


@pytest.mark.parametrize("name", CASES)
def test_a_list_says_of_an_event_what_its_story_says(database: Db, name: str) -> None:
    expected = a_case(database, name)
    (line,) = events_between(database, ago(3600), None)
    assert (line.event_id, line.outcome.result) == (name, expected)
    assert line.text is None
    assert tell(database, name).outcome == line.outcome


def test_conversations_by_their_last_event_and_by_what_waits(database: Db) -> None:
    database.conversations.insert_one(a_conversation(outbox={place_of(7, 1): a_send("01A")}))
    database.recvq.insert_many(
        [an_event("01A", at=ago(90)), an_event("01B", key=TARO, at=ago(50)), an_event("01C")]
    )
    database.recvq.insert_one(an_event("01D", at=ago(10)))
    assert [(one.key, one.name, one.events) for one in latest(database)] == [
        (HANAKO, "佐藤花子", 3),
        (TARO, None, 1),
    ]
    (line,) = waiting(database)
    # Since the send was decided, whatever was recorded later.
    assert line.at is not None
    assert 25 < (now() - line.at).total_seconds() < 50
    held = {"n": 1, "channel": "main", "key": TARO, "why": "slow", "since": ago(400)}
    database.held.insert_many([held, {**held, "_id": 2, "n": 2, "since": ago(300)}])
    assert [(one.key, one.events, one.why) for one in waiting(database)] == [
        (TARO, 2, "held: slow"),
        (HANAKO, 0, "LINE has not taken its sends yet"),
    ]
    told = {"channel": "main", "key": TARO, "why": "LINE answered 429", "documents": 5}
    database.status.insert_one(a_dispatcher(now=now(), waiting=[{**told, "since": ago(500)}]))
    assert waiting(database)[0].why == "LINE answered 429"
    # Of a dispatcher that is gone nothing is known any more.
    database.status.update_one({}, {"$set": {"at": ago(60)}})
    assert waiting(database)[0].why == "held: slow"


def an_old_event(event_id: str, *, seconds: float, **more: Any) -> Document:
    """An event with the `_id` that it gets at its arrival."""
    at = ago(seconds)
    return {**an_event(event_id, at=at, **more), "_id": ObjectId.from_datetime(at)}


def test_the_events_of_a_period_are_found_by_the_index_of_their_ids(database: Db) -> None:
    database.recvq.insert_many([an_old_event(f"01E{n}", seconds=600 - 60 * n) for n in range(10)])
    database.recvq.insert_one({"heartbeat": True, "acceptTime": ago(330), "_id": ObjectId()})
    found = events_between(database, ago(370), ago(230))
    assert [one.event_id for one in found] == ["01E6", "01E5", "01E4"]
    assert [one.event_id for one in events_between(database, None, ago(530))] == ["01E1", "01E0"]
    assert [one.event_id for one in events_between(database, ago(70), None)] == ["01E9"]
    assert len(events_between(database, ago(3600), None, limit=2)) == 2


def test_letters_are_grouped_by_cause_and_the_innermost_line(database: Db) -> None:
    other = TRACEBACK.replace("line 12", "line 40")
    database.deadletters.insert_many(
        [a_letter(f"01A{n}", seconds=100 - n) for n in range(3)]
        + [a_letter("01B", traceback=other), a_letter("01C", cause="quota", traceback=None)]
        + [a_letter("01D", replays=1, replayedAt=now())]
    )
    found = [(one.count, one.explained, one.where, one.newest) for one in letter_groups(database)]
    assert found == [
        (3, "handler: KeyError", "main.py:12 in handle", "01A2"),
        (1, "handler: KeyError", "main.py:40 in handle", "01B"),
        (1, "quota: the month's messages are used up", "", "01C"),
    ]
    group = "handler: KeyError", "main.py:12 in handle"
    assert ids_in(database, *group) == ["01A0", "01A1", "01A2"]
    assert where_failed("no traceback at all") == ""


def test_a_cause_is_found_by_its_code_its_line_and_what_is_said(database: Db) -> None:
    """Also in the letters of earlier releases, which have a sentence."""
    coded = [
        a_letter(name, cause="line_refused", about={"status": status})
        for name, status in (("01A", 400), ("01B", 403))
    ]
    old = a_letter("01OLD", cause="LINE refused it with 400: no")
    database.deadletters.insert_many([*coded, old])
    for part, ids in (
        ("line_refused", ["01A", "01B"]),
        ("LINE refused it", ["01A", "01B", "01OLD"]),
        ("with 403", ["01B"]),
        ('"status": 400', ["01A"]),
        ("not there", []),
    ):
        rows = found(database.deadletters, Choice(cause=part))
        assert sorted(row["_id"] for row in rows) == ids, part


def test_a_conversations_events_have_their_answers_below_them(database: Db) -> None:
    for name in ("01ANSWERED", "01OUTBOX", "01SENDFAILED"):
        a_case(database, name)
    database.calls.insert_one(a_call("01OUTBOX", at=ago(25), status=429, attempt=2))
    found = {one.event_id: one for one in events_of(database, "main", HANAKO, text=True)}
    told = {
        name: [(step.kind, step.look, step.facts.get("messages")) for step in one.answers]
        for name, one in found.items()
    }
    written = [{"type": "text", "text": "こんにちは"}]
    assert told == {
        "01ANSWERED": [("call", "", None)],
        "01OUTBOX": [("send", "look", written), ("call", "bad", None)],
        "01SENDFAILED": [("letter", "bad", None)],
    }
    assert {(one.sender, one.text) for one in found.values()} == {(HANAKO, TEXT)}
    told = read_conversation(database, f"main/{HANAKO}")["letters"]
    assert [row["id"] for row in told] == ["01SENDFAILED/0"]
    for one in events_of(database, "main", HANAKO):
        assert one.text is None
        assert "こんにちは" not in str(one.answers)


def test_what_a_pause_holds_is_not_offered_for_release(database: Db) -> None:
    held = {"n": 1, "channel": "main", "key": HANAKO, "why": "slow", "since": ago(400)}
    database.held.insert_one({**held, "document": an_event("01A")})
    (head,) = heads(database, "main", HANAKO)
    assert head.is_stuck(now())
    OperatorControl(database).pause(Scope("main"), by="hanako")
    (head,) = heads(database, "main", HANAKO)
    assert head.is_paused
    assert not head.is_stuck(now())


def hold(database: Db, key: str, count: int, *, ago: float = 3600, **event: Any) -> None:
    accepted = now() - timedelta(seconds=ago)
    document = {"acceptTime": accepted, "event": {"replyToken": "token", **event}}
    rows = [{"channel": "main", "key": key, "n": n, "document": document} for n in range(count)]
    database.held.insert_many(rows)


def cost(database: Db, scope: str = "main", **figures: Any) -> Waiting:
    told = {"lagDocuments": 0, "lateRepliesADay": 20, "lateRepliesToday": 0, **figures}
    database.status.delete_many({})
    database.status.insert_one(a_dispatcher(now=now() + timedelta(seconds=30), figures=told))
    return read_waiting(database, Scope.parse(scope), most=500)


def test_what_a_resume_costs_follows_the_rule_of_late_replies(database: Db) -> None:
    hold(database, HANAKO, 188)
    found = cost(database)
    assert found == Waiting(188, is_more=False, pushes=20, letters=168)
    # Each conversation has its own day, and this one has used up 15 of its calls.
    today = (now() + timedelta(hours=9)).date().isoformat()
    paid = {"_id": f"main/{HANAKO}", "late": {"day": today, "calls": 15}}
    database.conversations.insert_one(paid)
    hold(database, TARO, 3)
    # Neither of these is late: one is new, the other never had a token.
    hold(database, "U3", 1, ago=10)
    hold(database, "U4", 1, replyToken=None)
    found = cost(database)
    assert (found.events, found.pushes, found.letters) == (193, 8, 183)
    assert cost(database, f"main/{TARO}").letters == 0
    # All together may use a tenth of what was left of the month this morning.
    month = {"quotaMessages": 500, "quotaUsedMessages": 460}
    found = cost(database, lateRepliesToday=3, **month)
    assert (found.pushes, found.letters) == (1, 190)
    # A push to a group costs one for each member, and how many they are is not known here.
    hold(database, "C" + "5" * 32, 1)
    found = cost(database, lateRepliesToday=3, **month)
    assert (found.pushes, found.letters) == (1, 192)
    database.held.delete_many({"key": {"$regex": "^C"}})
    found = cost(database, quotaClosedSinceSeconds=1.8e9, **month)
    assert (found.pushes, found.letters) == (0, 191)


def test_what_waits_is_counted_in_its_scope_and_within_a_bound(database: Db) -> None:
    assert str(cost(database)) == "waiting events: 0"
    hold(database, HANAKO, 4)
    hold(database, TARO, 2)
    OperatorControl(database).pause(Scope("main"), by="taro")
    OperatorControl(database).pause(Scope("main", TARO), by="taro")
    assert cost(database).events == 4, "the other pause goes on"
    assert str(cost(database, lagDocuments=1)).startswith("waiting events: at least 4; ")
    hold(database, HANAKO, 600)
    assert str(cost(database)).startswith("waiting events: at least ")
    database.status.delete_many({})
    assert read_waiting(database, Scope("main")).is_more, "no dispatcher reports"
