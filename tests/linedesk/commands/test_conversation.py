"""`linedesk conversation show` as an operator meets it."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId
from click.testing import Result

from linedesk.store.client import Client
from linedesk.store.records.effects import place_of
from tests.jobworker.worker_harness import a_send
from tests.linedesk.commands.terminals import Run, typed
from tests.linedesk.commands.test_dead import an_event_letter
from tests.rows import Db
from tests.servers import one_for_all

SECRET = "ひみつのことば"
HANAKO, TARO = "U" + "1" * 32, "U" + "2" * 32
GROUP = "C" + "3" * 32


@pytest.fixture(scope="module")
def database(client: Client) -> Iterator[Db]:
    """One for all, since nothing is written."""
    with one_for_all(client) as database:
        yield database


@pytest.fixture
def show(mongo_uri: str, people: Db) -> Run:
    environ = {"MONGODB_URI": mongo_uri, "MONGODB_DATABASE": people.name}
    return typed(environ, "conversation", "show")


def a_conversation(key: str, *, channel: str = "main", **more: Any) -> dict[str, Any]:
    known = {"kind": "user", "profile": None, "friend": True, "state": None, "data": {}, "n": 1}
    return {
        "_id": f"{channel}/{key}",
        "channel": channel,
        "key": key,
        "at": datetime.now(UTC),
        **known,
        **more,
    }


def a_row(id_: str, **more: Any) -> dict[str, Any]:
    channel, key, *_ = id_.split("/")
    name = id_.rpartition("/")[2]
    run_at = datetime.now(UTC) + timedelta(hours=2, minutes=5, seconds=30)
    known = {"n": 1, "runAt": run_at, "every": None}
    return {"_id": id_, "channel": channel, "key": key, "name": name, "data": {}, **known, **more}


@pytest.fixture(scope="module")
def people(database: Db) -> Db:
    """Two users, one of them in the middle of much, and their group."""
    now = datetime.now(UTC)
    messages = [{"type": "text", "text": SECRET}]
    sends = [
        a_send(id="01A/0", at=now - timedelta(minutes=3), messages=messages),
        a_send(id="01A/1", at=now - timedelta(minutes=2), messages=messages),
    ]
    members = {TARO: {"displayName": "太郎"}, HANAKO: {"displayName": "花子"}}
    place = {"state": "注文中", "until": None, "data": {"品": "お茶"}}
    database.conversations.insert_many(
        [
            a_conversation(
                HANAKO,
                profile={"displayName": "花子"},
                state="asking_hour",
                until=now + timedelta(seconds=250),
                data={"at": {"hour": 8}, "名前": "はな"},
                n=12,
                outbox={place_of(3, n): one.as_document() for n, one in enumerate(sends)},
                call={"at": now, "as": "push", "key": "K", "members": [place_of(3, 0)]},
            ),
            a_conversation(TARO, profile={"displayName": "太郎"}, friend=False),
            a_conversation(GROUP, kind="group", friend=None, members=members, states={TARO: place}),
            a_conversation("U9", channel="shop", profile={"displayName": "次郎"}),
        ]
    )
    daily = {"at": "08:30", "tz": "Asia/Tokyo"}
    database.schedule.insert_many(
        [
            a_row(f"main/{HANAKO}/ask", every=daily),
            a_row(f"main/{HANAKO}/again", runAt=now - timedelta(minutes=5), data={"asked": 1}),
            a_row(f"main/{HANAKO}/gone", runAt=None, endedAt=now),
            a_row(f"main/{HANAKO}/~state"),
            a_row(f"main/{HANAKO}0/other"),
            a_row(f"main/{GROUP}/{TARO}/ring"),
        ]
    )
    own = {"channel": "main", "key": HANAKO}
    since = now - timedelta(hours=1)
    database.held.insert_many(
        {"n": n, **own, "why": "slow", "since": since, "document": {}} for n in (1, 2)
    )
    database.deadletters.insert_many(
        [
            an_event_letter("01X", key=HANAKO),
            an_event_letter("01Y", key=HANAKO, replayedAt=now),
            an_event_letter("01Z", key=TARO),
        ]
    )
    return database


def lines_of(answer: Result) -> dict[str, list[str]]:
    """The page's lines by their label."""
    found: dict[str, list[str]] = {}
    label = ""
    for line in answer.stdout.splitlines():
        label = line[:13].strip() or label
        found.setdefault(label, []).append(line[14:])
    return found


def test_the_page_shows_everything_except_texts(show: Run) -> None:
    answer = show(HANAKO)
    page = lines_of(answer)
    assert page["who"] == ["花子 (user, friend)"]
    assert page["state"][0].startswith("asking_hour, until ")
    assert page["data"] == ['{"at": {"hour": 8}, "名前": "はな"}']
    assert [line.split()[0] for line in page["timers"]] == ["again", "ask"]
    assert page["outbox"][0].startswith("2 waiting, oldest from ")
    assert page["held"][0].startswith("2 documents, the first held since ")
    assert page["dead letters"] == ["1"]
    assert SECRET not in answer.stdout


def test_a_group_tells_its_members_states_and_timers(show: Run) -> None:
    page = lines_of(show(GROUP))
    assert page["who"] == ["太郎、花子 (group)"]
    assert page["members"] == [f'太郎 {TARO}: 注文中 {{"品": "お茶"}}']
    assert page["timers"][0].startswith("ring of 太郎  20")


def test_json_tells_the_same_to_a_program_and_texts_where_they_are_wanted(show: Run) -> None:
    answer = show("--json", HANAKO)
    told = json.loads(answer.stdout)
    assert (told["id"], told["name"], told["state"]) == (f"main/{HANAKO}", "花子", "asking_hour")
    assert [(one["name"], one["every"]) for one in told["timers"]] == [
        ("again", None),
        ("ask", "08:30 Asia/Tokyo"),
    ]
    assert (told["outbox"]["count"], told["outbox"]["tried"]) == (2, 1)
    assert (told["held"]["count"], told["deadLetters"], told["records"]) == (2, 1, 12)
    assert SECRET not in answer.stdout
    told = json.loads(show("--text", "--json", HANAKO).stdout)
    assert told["outbox"]["effects"][0]["messages"][0]["text"] == SECRET


def test_a_conversation_is_found_by_id_start_channel_or_name(show: Run) -> None:
    for word, id_ in {"U11": f"main/{HANAKO}", "main/C": f"main/{GROUP}", "次": "shop/U9"}.items():
        assert json.loads(show("--json", word).stdout)["id"] == id_
    told = show("花子", code=1).stderr
    assert "'花子' matches several conversations:" in told
    assert f"linedesk: main/{GROUP} group 太郎、花子\n" in told
    assert "linedesk: no conversation '三郎'\n" in show("三郎", code=1).stderr


def test_a_record_that_a_person_has_changed_is_shown(show: Run, people: Db) -> None:
    people.conversations.insert_one({"_id": "z/odd", "data": {"id": ObjectId()}})
    people.schedule.insert_one({"_id": "z/odd/x", "runAt": datetime.now(UTC)})
    assert lines_of(show("z/odd"))["timers"][0].startswith("x  20")
