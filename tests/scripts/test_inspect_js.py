"""scripts/inspect.js through the real mongosh: its answers, that it hides users' messages, and that
it scans nothing large.

One shell runs all the calls, since its start is slow.
"""

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId, json_util

from linedesk.setup.collections import create_collections
from linedesk.store.client import Client
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import Document, make_heartbeat
from linedesk.store.records.effects import place_of
from tests.linedesk.operate.hand import a_call, a_row, a_run
from tests.rows import Db, put_rows
from tests.scripts.test_create_collection import mongosh as mongosh
from tests.waiting import ran

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "inspect.js"
PAGE = (ROOT / "docs" / "how-to" / "mongo-shell.md").read_text("utf-8")
# Its output behind the shell's prompt; the ids exist nowhere here.
TYPED = re.findall(r"^rs0 \[primary\] line_bot> (.*)$", PAGE, re.MULTILINE)
SECRET = "秘密の言葉"
USER = {"channel": "main", "key": "U1"}
OWN_ID = ObjectId()
AWARE = json_util.JSONOptions(tz_aware=True, tzinfo=UTC)
NOW = datetime.now(UTC).replace(microsecond=0)
# The call for each answer; the server's profiler records its reads.
QUESTIONS = {
    "status": "linedesk.status()",
    "lag": "linedesk.lag()",
    "answered": "linedesk.story('e1')",
    "by document": f"linedesk.story('{OWN_ID}')",
    "given up": "linedesk.story('e2')",
    "held": "linedesk.story('e3')",
    "in the outbox": "linedesk.story('e4')",
    "unknown": "linedesk.story('e-of-nobody')",
    "with text": "linedesk.story('e1', { text: true })",
    "user": "linedesk.user('U1')",
    "user with text": "linedesk.user('main/U1', { text: true })",
    "nobody": "linedesk.user('U-of-nobody')",
    "dead": "linedesk.dead()",
}


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def event(number: int, **more: Any) -> Document:
    message = {"type": "text", "id": f"100{number}", "text": SECRET}
    told = {"type": "message", "mode": "active", "replyToken": "token", "message": message}
    return {"eventId": f"e{number}", **USER, "acceptTime": ago(60 - number), "event": told, **more}


def run(number: int, **more: Any) -> Document:
    return a_run(f"e{number}", at=ago(59 - number), key="U1", **more)


def call(number: int, **more: Any) -> Document:
    own = {"requestId": f"request-{number}", "key": "U1", **more}
    return a_call(f"e{number}", at=ago(58 - number), **own)


def process(role: str, pid: int, *, silent: float = -300, **figures: Any) -> Document:
    """A row of `status`, by default one that stays fresh however long the shell takes to start."""
    own = {"startedAt": ago(3600), "words": "所在地 fine", "figures": figures}
    return a_row(role, pid, silent=silent, now=datetime.now(UTC), **own)


DESK = {"acceptedEvents": 7, "spoolDocuments": 0, "spoolBytes": 0, "recvqUnreadShare": 0.01}
LEADER: Document = {
    "leading": 1,
    "queueDocuments": 3,
    "oldestUnfinishedSeconds": 90,
    "lagDocuments": 1,
    "lagSeconds": 0.4,
    "recvqUnreadShare": 0.02,
    "recvqLeftSeconds": 7200,
    "oplogLeftSeconds": 30 * 86400,
}


def fill(database: Db) -> None:
    """A small house in which each kind of thing happened once."""
    ids = [OWN_ID, *(ObjectId() for _ in range(4))]
    documents = [{"_id": id_, **event(number)} for number, id_ in enumerate(ids, start=1)]
    database["recvq"].insert_many([*documents, {"_id": ObjectId(), **make_heartbeat(NOW)}])
    progress = {"feed": "changestream", "after": documents[1]["_id"], "finished": [], "at": NOW}
    token = {"_data": f"82{int(ago(2).timestamp()):08X}00000001"}
    row = {"_id": "dispatcher", **progress, "token": token, "ring": [documents[4]["_id"]]}
    database["progress"].insert_one(row)
    put_rows(
        database["jobs"],
        run(1),
        *(run(2, outcome="failed", error="KeyError", attempt=n) for n in (1, 2)),
        run(4),
        run(5, outcome="finished", effects=0, ms=900),
        {**run(6), "key": "U2"},
        alone=2,
    )
    refused = call(4, status=500, requestId=None, ms=3000)
    put_rows(database["calls"], call(1), refused, call(6, key="U2"), alone=1)
    send = {"id": "e4/0", "type": "send", "eventId": "e4", "way": "reply", "at": ago(54)}
    send |= {"messages": [{"text": SECRET}], "token": "token", "retryKey": "retry-key"}
    person = {"displayName": "花子", "statusMessage": SECRET, "at": NOW}
    conversation = {"_id": "main/U1", **USER, "kind": "user", "profile": person, "n": 3, "at": NOW}
    conversation |= {"state": "asked", "data": {"said": SECRET}, "applied": ["e1", "e5"]}
    database["conversations"].insert_one({**conversation, "outbox": {place_of(7, 1): send}})
    held = {"_id": documents[2]["_id"], "n": 9, **USER, "document": documents[2], "since": ago(50)}
    database["held"].insert_one({**held, "why": "the handler failed 2 times"})
    timer = {**USER, "name": "tea", "n": 1, "setBy": "e1", "data": SECRET, "every": None}
    rings = NOW + timedelta(hours=1)
    tea = {"_id": "main/U1/tea", **timer, "runAt": rings}
    other = {"_id": "main/U1/お茶の時間", "name": "お茶の時間", "setBy": "e0"}
    database["schedule"].insert_many([tea, {**tea, **other}])
    letter = {**USER, "attempts": 3, "traceback": SECRET, "firstAt": ago(58)}
    database["deadletters"].insert_many(
        [
            {"_id": "e2", **letter, "document": documents[1], "cause": "handler: KeyError"}
            | {"lastAt": ago(55)},
            {"_id": "e7/0", **letter, "effect": {**send, "eventId": "e7"}, "cause": "LINE: 400"}
            | {"lastAt": ago(500_000)},
        ]
    )
    pause = {"act": "pause", "channel": "main", "key": "U9", "by": "mika", "at": ago(90)}
    half = {"_id": "pause/main", "act": "pause", "channel": "main"}
    database["control"].insert_many([{"_id": "pause/main/U9", **pause, "why": "moving"}, half])
    leader = process("dispatcher", 812, **LEADER)
    stale = process("dispatcher", 700, silent=60, **{**LEADER, "queueDocuments": 999})
    ended = {**process("frontdesk", 600, silent=60), "state": "ended"}
    desks = [process("frontdesk", pid, **DESK) for pid in (801, 802)]
    desks[1]["figures"]["recvqUnreadShare"] = 0.03
    database["status"].insert_many([leader, stale, ended, *desks])


def ask(mongosh: list[str], uri: str, database: Db, code: str) -> str:
    place = uri.replace("/?", f"/{database.name}?")
    answer = ran(
        [*mongosh, place, "--quiet", "--norc", "--eval", code],
        env={**os.environ, "TZ": "Asia/Tokyo"},
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


@pytest.fixture(scope="module")
def house(client: Client) -> Db:
    database = client["test_inspect_js"]
    client.drop_database(database)
    create_collections(database, capped_bytes=MEGABYTE)
    fill(database)
    return database


@pytest.fixture(scope="module")
def answers(mongosh: list[str], mongo_uri: str, house: Db) -> Mapping[str, Any]:
    house.command("profile", 2)
    tell = "const tell = (name, told) => print(`\\n##${name}\\n${EJSON.stringify(told)}`);"
    asked = "".join(f"tell({name!r}, {code});" for name, code in QUESTIONS.items())
    rows = {line: ".toArray()" if line.startswith("db.") else "" for line in TYPED}
    typed = "".join(f"tell({line!r}, {line}{rows[line]});" for line in TYPED)
    told = ask(mongosh, mongo_uri, house, f"load({str(SCRIPT)!r}); {tell} {asked} {typed}")
    house.command("profile", 0)
    parts = (part.partition("\n") for part in told.split("\n##")[1:])
    return {name: json_util.loads(answer, json_options=AWARE) for name, _, answer in parts}


def test_status_has_each_processs_report(answers: Mapping[str, Any], house: Db) -> None:
    status = answers["status"]
    said = {row["pid"]: row for row in house["status"].find({"state": {"$ne": "ended"}})}
    assert {row["pid"]: row for row in status["processes"]} == said
    assert set(said) == {700, 801, 802, 812}
    # The row of a killed process still says `working`.
    assert status["silent"] == ["dispatcher/box/700"]
    assert status["dispatcher"]["pid"] == 812
    assert {row["_id"] for row in status["pauses"]} == {"pause/main", "pause/main/U9"}


def test_lag_shows_the_dispatchers_figures_and_the_stored_rows(
    answers: Mapping[str, Any], house: Db
) -> None:
    lag = answers["lag"]
    shared = LEADER.keys() & lag.keys()
    assert len(shared) == len(LEADER) - 1
    assert {name: lag[name] for name in shared} == {name: LEADER[name] for name in shared}
    progress = house["progress"].find_one({"_id": "dispatcher"})
    assert progress is not None
    assert lag["progress"] == {
        "feed": "changestream",
        "savedAt": NOW,
        "after": progress["after"],
        "afterAt": ago(58),
        "finishedBeyond": 0,
    }
    assert lag["recvq"] == {"oldestAt": ago(59), "newestAt": NOW}
    assert lag["oplog"]["oldestAt"] <= lag["oplog"]["newestAt"]


def test_a_story_goes_from_the_webhook_to_lines_request_id(answers: Mapping[str, Any]) -> None:
    story = answers["answered"]
    assert (story["eventId"], story["conversation"]) == ("e1", "main/U1")
    rows = [one["from"] for one in story["steps"]]
    assert rows == ["recvq", "jobs", "calls", "conversations", "schedule"]
    assert [one["at"] for one in story["steps"][:3]] == [ago(59), ago(58), ago(57)]
    assert story["steps"][1]["row"]["outcome"] == "recorded"
    assert story["steps"][2]["row"]["requestId"] == "request-1"
    assert answers["by document"] == story


@pytest.mark.parametrize(
    ("question", "rows", "shown"),
    [
        ("given up", ["recvq", "jobs", "jobs", "deadletters"], {"error": "KeyError"}),
        ("held", ["recvq", "held"], {"why": "the handler failed 2 times"}),
        ("in the outbox", ["conversations", "jobs", "calls", "recvq"], {"id": "e4/0"}),
        ("unknown", [], {}),
    ],
)
def test_a_story_shows_the_rows_of_an_event_in_order(
    question: str, rows: list[str], shown: Document, answers: Mapping[str, Any]
) -> None:
    steps = answers[question]["steps"]
    assert sorted(one["from"] for one in steps) == sorted(rows)
    times = [one["at"] for one in steps if one.get("at")]
    assert times == sorted(times)
    assert any(shown.items() <= one["row"].items() for one in steps) or not rows
    missing = [name for name in ("recvq", "jobs", "calls") if name not in rows]
    assert answers[question]["missing"] == missing


def test_a_user_is_shown_with_all_its_data(answers: Mapping[str, Any]) -> None:
    user = answers["user"]
    assert [user[name] for name in ("conversation", "name", "state")] == [
        "main/U1",
        "花子",
        "asked",
    ]
    assert user["data"] == ["said"]
    assert [one["id"] for one in user["outbox"]] == ["e4/0"]
    assert [one["name"] for one in user["timers"]] == ["tea", "お茶の時間"]
    assert [one["eventId"] for one in user["events"]] == ["e5", "e1"]
    assert [one["eventId"] for one in user["runs"]] == ["e5", "e4", "e2", "e2", "e1"]
    assert [one["status"] for one in user["calls"]] == [500, 200]
    assert user["looked"]["jobs"] == {"rows": 6, "backTo": ago(58)}
    assert [answers[one]["isKept"] for one in ("user", "nobody")] == [True, False]


def test_dead_shows_the_newest_letters(answers: Mapping[str, Any]) -> None:
    dead = answers["dead"]
    assert dead["open"] == 2
    assert [row["_id"] for row in dead["letters"]] == ["e2", "e7/0"]
    assert dead["letters"][0]["cause"] == "handler: KeyError"


def test_what_people_wrote_shows_only_where_it_is_asked_for(answers: Mapping[str, Any]) -> None:
    for name, answer in answers.items():
        shown = json_util.dumps(answer, ensure_ascii=False)
        assert not re.search('retry-key|"token"', shown), name
        assert (SECRET in shown) == ("with text" in name), name


def test_nothing_large_is_scanned(answers: Mapping[str, Any], house: Db) -> None:
    """By MongoDB's profiler: an index, or a bounded number of the newest rows."""
    asked = {"appName": re.compile("^mongosh"), "op": {"$in": ["query", "command", "getmore"]}}
    found = house["system.profile"].find(asked)
    rows = list(found)
    assert len(rows) > len(answers)
    tiny = ("status", "control", "progress", "leases")
    for row in rows:
        command = row["command"]
        assert not {"count", "distinct"} & command.keys(), command
        if "aggregate" in command:
            assert command.get("maxTimeMS") == 2000, command
            if row.get("planSummary") == "COLLSCAN":
                assert command["hint"] == {"$natural": -1}, command
                assert command["pipeline"][0]["$limit"] <= 5000, command
        elif row.get("planSummary") == "COLLSCAN" and command.get("find") not in tiny:
            assert command["sort"] in ({"$natural": -1}, {"$natural": 1}), command
            assert command["limit"] <= 5000
        if "find" in command:
            assert command.get("maxTimeMS") == 2000, command


def test_what_the_page_shows_can_be_typed(answers: Mapping[str, Any]) -> None:
    assert len(TYPED) >= 7
    assert all(answers[line] is not None for line in TYPED)
