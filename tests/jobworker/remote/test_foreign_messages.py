"""No message over RabbitMQ ends a thread, causes a wrong answer, or blocks others."""

from __future__ import annotations

import json
import secrets
from typing import Any

import pytest

from jobworker.bot.talk import Talk
from linedesk import Bot
from linedesk.operate.acts import OperatorControl
from linedesk.operate.dead_letters import explained
from linedesk.runtime.status_row import UNACCEPTED
from tests.jobworker.remote.house import House, states, until_working
from tests.jobworker.remote.wire import Gate, Message, Stranger, Wire
from tests.waiting import eventually

DEEP = b'{"type":"beat","worker":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
LONG = "い" * 200
BEAT: Message = {
    "type": "beat",
    "worker": "w",
    "name": "forged",
    "address": "linedesk.worker.none",
    "threads": 4,
    "contract": 1,
    "bot": "b",
    "release": "1",
    "upSeconds": 1,
    "leaving": False,
    "attempts": [],
    "decided": [],
}
GARBAGE = [
    b"",
    b"\x00\xff\xfe",
    b"null",
    b"[]",
    b"{}",
    b'{"type":7}',
    b'{"type":"nothing known"}',
    b'{"type":"beat"',
    b'{"type":"beat","x":NaN}',
    DEEP,
    *(
        json.dumps({"type": kind}).encode()
        for kind in ("beat", "hello", "decision", "leaving", "job", "taken", "abandon", "welcome")
    ),
    *(
        json.dumps({"type": kind, "attempt": attempt, "epoch": epoch}).encode()
        for kind in ("taken", "abandon", "decision", "job", "welcome")
        for attempt in (None, [], {"a": 1}, "\ud800", "x" * 100_000)
        for epoch in (None, "x", 10**400, -1)
    ),
]
WRONG_BEATS: list[tuple[str, Any]] = [
    ("threads", 10_000),
    ("threads", -1),
    ("threads", 10**400),
    ("threads", "many"),
    ("upSeconds", 10**400),
    ("upSeconds", "long"),
    ("contract", 10**400),
    ("contract", None),
    ("address", ""),
    ("address", LONG),
    ("address", "x" * 300),
    ("address", "\ud800"),
    ("address", 7),
    ("decided", 7),
    ("attempts", 7),
    ("attempts", ["x"] * 100_000),
    ("attempts", "x" * 100_000),
]


def answering_bot(**more: Any) -> Bot:
    bot = Bot(**more)
    bot.default()(lambda event, talk: talk.reply(talk.raw["message"]["text"]))
    return bot


def test_garbage_ends_no_thread_of_a_leader(house: House) -> None:
    user, room = house.sim.add_user("花子"), house.leader()
    house.worker(answering_bot())
    until_working(room, "box/1")
    with Stranger(house.node) as stranger:
        for body in GARBAGE:
            stranger.to_leaders(body)
        for name, value in WRONG_BEATS:
            stranger.to_leaders(json.dumps({**BEAT, name: value}).encode())
        room.says(user, "a")
        room.until_quiet()
        # All of them have arrived, because this one comes behind them.
        stranger.to_leaders({**BEAT, "name": "last"})
        eventually(lambda: "last" in states(room))
    assert set(states(room)) == {"box/1", "last"}
    assert house.texts(user) == ["a"]
    assert room.desk._workers is not None
    assert room.desk._workers.stalled() is None
    assert not room.desk._workers._watch.dead


@pytest.mark.parametrize(
    ("name", "value"), [("contract", 2**70), ("contract", -1), ("upSeconds", "x" * 100_000)]
)
def test_a_beat_with_a_value_out_of_all_bounds_is_dropped_in_few_words(
    house: House, caplog: pytest.LogCaptureFixture, name: str, value: Any
) -> None:
    room = house.leader()
    with Stranger(house.node) as stranger:
        stranger.to_leaders({**BEAT, "worker": "v", name: value})
        stranger.to_leaders({**BEAT, "name": "last"})
        eventually(lambda: "last" in states(room))
    assert set(states(room)) == {"last"}
    (dropped,) = [text for text in caplog.messages if "not understood" in text]
    assert len(dropped) < 300


def test_a_worker_of_another_contract_is_not_said_to_be_missing(house: House) -> None:
    room = house.leader()
    assert "no worker connected" in room.desk.status()
    with Stranger(house.node) as stranger:
        stranger.to_leaders({**BEAT, "contract": 2})
        eventually(lambda: "no worker usable" in room.desk.status())


def test_garbage_ends_no_thread_of_a_worker(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobworker.remote.worker.LEADER_SILENT_SECONDS", 1.0)
    user, room, wire = house.sim.add_user("花子"), house.leader(), Wire(house.node)
    worker = house.worker(answering_bot(), wire)
    until_working(room, "box/1")
    with Stranger(house.node) as stranger:
        for body in GARBAGE:
            # The wire between would not read it.
            worker._arrived(body)
            stranger.to(wire.brokers[0].address, b'{"type":"nothing known"}')
    for text in "abc":
        room.says(user, text)
    room.until_quiet()
    assert house.texts(user) == [*"abc"]
    assert not worker._beats.dead
    # The word that its decision was taken may be on its way.
    eventually(lambda: not worker._held)


def test_a_name_that_mongodb_cannot_store_is_made_one_that_it_can(house: House) -> None:
    room = house.leader()
    with Stranger(house.node) as stranger:
        stranger.to_leaders(json.dumps({**BEAT, "name": "\ud800", "release": "\ud800"}).encode())
        (row,) = eventually(room.desk.workers)
    house.database.jobs.insert_one({"workers": [row]})
    assert row["name"] == "?"


def test_half_a_surrogate_fails_as_it_does_without_workers(house: House) -> None:
    user, room, bot = house.sim.add_user("花子"), house.leader(tries=1), Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        match talk.raw["message"]["text"]:
            case "reply":
                talk.reply("\ud800")
            case "raise":
                raise ValueError("\ud800")
        talk.reply("はい")

    house.worker(bot)
    for text in ("reply", "raise", "a"):
        room.says(user, text)
    room.until_quiet()
    assert house.texts(user) == ["はい"]
    assert len(room.letters()) == 2


def test_beats_that_name_attempts_of_no_leader_hold_up_no_answer(house: House) -> None:
    user, wire = house.sim.add_user("花子"), Wire(house.node)
    room = house.leader(wire)
    house.worker(answering_bot())
    until_working(room, "box/1")
    unknown = [secrets.token_hex(16) for _ in range(10_000)]
    with Stranger(house.node) as stranger:
        for _ in range(100):
            stranger.to_leaders({**BEAT, "attempts": unknown})
        for text in "abc":
            room.says(user, text)
        room.until_quiet(seconds=60)
    assert house.texts(user) == [*"abc"]
    assert not {one["attempt"] for one in wire.out.of("abandon")} & set(unknown)


def test_a_name_with_line_feeds_is_one_line(house: House) -> None:
    room = house.leader()
    with Stranger(house.node) as stranger:
        forged = "box/1\n✕ Critical\x1b[2J\u2028\u202e"
        stranger.to_leaders({**BEAT, "name": forged, "bot": forged, "release": forged})
        (row,) = eventually(room.desk.workers)
    for field in ("name", "bot", "release"):
        assert row[field].isprintable()
        assert row[field].startswith("box/1?✕ Critical?")


def test_a_forged_attempt_decides_nothing(house: House) -> None:
    user, gate, wire = house.sim.add_user("花子"), house.gate(), Wire(house.node)
    room = house.leader(wire)
    house.worker(waiting_bot(gate))
    room.says(user, "a")
    gate.until_reached()
    (job,) = wire.out.of("job")
    with Stranger(house.node) as stranger:
        for attempt in ("", "0" * 32, secrets.token_hex(16), job["attempt"].upper() + " "):
            stranger.to_leaders(
                {
                    "type": "decision",
                    "attempt": attempt,
                    "address": "linedesk.worker.none",
                    "outcome": "decided",
                    "actions": [{"do": "reply", "messages": [{"type": "text", "text": "偽"}]}],
                }
            )
        gate.open()
        room.until_quiet()
    assert house.texts(user) == ["a"]
    assert room.letters() == []


def test_rules_that_no_leader_asked_for_change_nothing(house: House) -> None:
    user, room = house.sim.add_user("花子"), house.leader()
    worker = house.worker(answering_bot())
    until_working(room, "box/1")
    with Stranger(house.node) as stranger:
        empty = {"perMember": False, "rules": []}
        for version in (worker._bot.version, "unheard of"):
            stranger.to_leaders({"type": "hello", "bot": version, "rules": empty})
        stranger.to_leaders(BEAT)
        eventually(lambda: "forged" in states(room))
        room.says(user, "a")
        room.until_quiet()
    assert house.texts(user) == ["a"]


def test_a_worker_whose_rules_are_none_gets_no_jobs_and_the_others_do(house: House) -> None:
    user, room, wire = house.sim.add_user("花子"), house.leader(), Wire(house.node)
    wire.out.change = lambda one: [{**one, "rules": [1]} if one["type"] == "hello" else one]
    house.worker(answering_bot(settings={"x": "1"}), wire, name="wrong", threads=20)
    eventually(lambda: states(room).get("wrong") == "rules_refused")
    house.worker(answering_bot(), name="right", threads=1)
    room.says(user, "a")
    room.until_quiet()
    assert house.texts(user) == ["a"]


MESSAGE = {"type": "text", "text": "い"}


@pytest.mark.parametrize(
    ("actions", "cause"),
    [
        (None, "invalid decision"),
        ("reply", "invalid decision"),
        ([None], "invalid decision"),
        ([{"do": "no such action"}], "invalid decision"),
        ([{"do": "__class__"}], "invalid decision"),
        ([{"do": "reply"}], "invalid decision"),
        ([{"do": "reply", "messages": "x"}], "invalid decision"),
        ([{"do": "reply", "messages": [7]}], "invalid message"),
        ([{"do": "push", "messages": [MESSAGE], "to": {"$ne": 1}}], ""),
        ([{"do": "push", "messages": [MESSAGE], "until": "tomorrow"}], "invalid decision"),
        ([{"do": "multicast", "to": "all", "messages": [MESSAGE]}], "invalid decision"),
        ([{"do": "state", "state": {"$gt": ""}}], ""),
        ([{"do": "after", "seconds": 10**400, "name": "x"}], ""),
        ([{"do": "after", "seconds": -1, "name": "x"}], "invalid timer"),
        ([{"do": "after", "seconds": 1, "name": "x", "data": [1]}], "invalid decision"),
        ([{"do": "after", "seconds": 1, "name": "x", "now": "long ago"}], "invalid decision"),
        ([{"do": "at", "time": "2030-01-01T00:00:00", "name": "x"}], "invalid decision"),
        ([{"do": "at", "time": "0001-01-01T00:00:00+09:00", "name": "x"}], "invalid decision"),
        ([{"do": "at", "time": "9999-12-31T23:59:59-09:00", "name": "x"}], "invalid decision"),
        ([{"do": "cancel", "name": 7}], ""),
        ([{"do": "forget"}] * 10_001, "invalid decision"),
    ],
)
def test_actions_that_cannot_be_done_fail_and_their_neighbour_is_answered(
    house: House, actions: Any, cause: str
) -> None:
    check_wrong(house, {"actions": actions}, cause)


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({"data": []}, "invalid decision"),
        ({"data": {"x": {"$date": "never"}}}, "invalid decision"),
        ({"data": {"x": {"$date": "0001-01-01T00:00:00+09:00"}}}, "invalid decision"),
        ({"data": {"x": "y" * (16 * 1024 * 1024 - 1_000)}}, ""),
        ({"data": {"x": 10**400}}, ""),
        ({"data": json.loads('{"a":' * 400 + "1" + "}" * 400)}, ""),
        ({"outcome": "well"}, "invalid decision"),
        ({"outcome": None}, "invalid decision"),
        ({"outcome": "failed", "what": {"a": 1}, "place": None, "traceback": 7}, "failed"),
        ({"outcome": "failed", "what": "い\n" * 10_000, "lasting": "yes"}, "い い"),
    ],
)
def test_decisions_that_are_none_fail_and_their_neighbour_is_answered(
    house: House, more: Message, cause: str
) -> None:
    check_wrong(house, more, cause)


def check_wrong(house: House, more: Message, cause: str) -> None:
    user, other = (house.sim.add_user(name) for name in "甲乙")
    wire = Wire(house.node)

    def spoil(message: Message) -> list[Message]:
        is_it = message["type"] == "decision" and message.get("actions", [{}])[0].get(
            "messages", [{}]
        ) == [{"type": "text", "text": "spoilt"}]
        return [{**message, **more} if is_it else message]

    wire.out.change = spoil
    room = house.leader(tries=2)
    house.worker(answering_bot(), wire)
    room.says(user, "spoilt")
    room.says(user, "a")
    room.says(other, "b")
    room.until_quiet()
    assert house.texts(other) == ["b"]
    assert house.texts(user) == ["a"]
    (letter,) = room.letters()
    assert explained(letter).startswith("handler: ")
    assert cause in explained(letter)
    assert letter["attempts"] == 1 or "outcome" in more or cause != "invalid decision"
    assert not house.database.conversations.find_one({"_id": {"$regex": user.user_id}}).get("data")


def test_a_decision_that_is_too_large_fails_in_its_worker(house: House) -> None:
    user = house.sim.add_user("花子")
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        if talk.raw["message"]["text"] == "large":
            for _ in range(400):
                talk.push(*({"type": "text", "text": "い" * 5_000} for _ in range(5)))
        talk.reply("はい")

    room = house.leader()
    house.worker(bot)
    room.says(user, "large")
    room.says(user, "a")
    room.until_quiet()
    assert house.texts(user) == ["はい"]
    (letter,) = room.letters()
    assert explained(letter) == "handler: BotError: cannot be stored"


def test_workers_cannot_fill_a_leader_without_bound(house: House) -> None:
    user, room = house.sim.add_user("花子"), house.leader()
    with Stranger(house.node) as stranger:
        for number in range(1_500):
            stranger.to_leaders({**BEAT, "worker": f"w{number}", "name": f"n{number}"})
        eventually(lambda: len(room.desk.workers()) >= 1_000)
        stranger.to_leaders({**BEAT, "worker": "w1", "name": "last"})
        eventually(lambda: "last" in states(room))
    assert len(room.desk.workers()) == 1_000
    # They are silent now, and make place for one that is none of them.
    house.worker(answering_bot())
    room.says(user, "a")
    room.until_quiet(seconds=30)
    assert house.texts(user) == ["a"]


def test_versions_that_no_operator_accepts_leave_no_rules_behind(house: House) -> None:
    OperatorControl(house.database).accept_bot("another", by="hanako")
    room = house.leader(confirms_bots=True)
    empty = {"perMember": False, "rules": []}
    with Stranger(house.node) as stranger:
        for number in range(20):
            stranger.to_leaders({**BEAT, "bot": f"b{number}"})
            stranger.to_leaders({"type": "hello", "bot": f"b{number}", "rules": empty})
        eventually(lambda: states(room) == {"forged": UNACCEPTED})
        stranger.to_leaders({**BEAT, "name": "last", "bot": "b19"})
        eventually(lambda: "last" in states(room))
    assert room.desk._workers is not None
    assert set(room.desk._workers.versions._known) == {"b19"}


def waiting_bot(gate: Gate) -> Bot:
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        gate.wait()
        talk.reply(talk.raw["message"]["text"])

    return bot
