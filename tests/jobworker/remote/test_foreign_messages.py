"""No message over RabbitMQ ends a thread, causes a wrong answer, or blocks others."""

import json
from typing import Any

import pytest

from jobworker.bot.talk import Talk
from linedesk import Bot
from linedesk.operate.dead_letters import explained
from tests.jobworker.remote.house import SHORT, House, states, until_working
from tests.jobworker.remote.wire import Message, Stranger, Wire
from tests.jobworker.worker_harness import echo
from tests.waiting import eventually

DEEP = b'{"type":"beat","worker":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
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
    ("threads", 10**400),
    ("upSeconds", 10**400),
    ("contract", 10**400),
    ("address", ""),
    ("address", "\ud800"),
    ("address", 7),
    ("decided", 7),
    ("attempts", 7),
    ("attempts", ["x"] * 100_000),
    ("attempts", "x" * 100_000),
]


def test_garbage_ends_no_thread_of_a_leader(house: House) -> None:
    user, room = house.sim.add_user("花子"), house.leader()
    house.worker(echo())
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


def test_garbage_ends_no_thread_of_a_worker(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobworker.remote.worker.LEADER_SILENT_SECONDS", 1.0)
    user, room, wire = house.sim.add_user("花子"), house.leader(), Wire(house.node)
    worker = house.worker(echo(), wire)
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


def test_rules_that_no_leader_asked_for_change_nothing(house: House) -> None:
    user, room = house.sim.add_user("花子"), house.leader()
    worker = house.worker(echo())
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


MESSAGE = {"type": "text", "text": "い"}


ACTIONS: list[tuple[Any, str]] = [
    ([{"do": "no such action"}], "invalid decision"),
    ([{"do": "reply", "messages": [7]}], "invalid message"),
    ([{"do": "push", "messages": [MESSAGE], "to": {"$ne": 1}}], ""),
    ([{"do": "at", "time": "0001-01-01T00:00:00+09:00", "name": "x"}], "invalid decision"),
    ([{"do": "forget"}] * 10_001, "invalid decision"),
]


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        *(({"actions": actions}, cause) for actions, cause in ACTIONS),
        ({"data": {"x": {"$date": "never"}}}, "invalid decision"),
        ({"data": {"x": "y" * (16 * 1024 * 1024 - 1_000)}}, ""),
        ({"data": json.loads('{"a":' * 400 + "1" + "}" * 400)}, ""),
        ({"outcome": "well"}, "invalid decision"),
        ({"outcome": "failed", "what": {"a": 1}, "place": None, "traceback": 7}, "failed"),
    ],
)
def test_decisions_that_are_none_fail_and_their_neighbour_is_answered(
    house: House, more: Message, cause: str
) -> None:
    user, other = (house.sim.add_user(name) for name in "甲乙")
    wire = Wire(house.node)

    def spoil(message: Message) -> list[Message]:
        is_it = message["type"] == "decision" and message.get("actions", [{}])[0].get(
            "messages", [{}]
        ) == [{"type": "text", "text": "spoilt"}]
        return [{**message, **more} if is_it else message]

    wire.out.change = spoil
    # A decision of 16 MB takes a busy machine seconds, in which no beat comes through.
    patient = SHORT | {"jobworker.remote.leader.SILENT_SECONDS": 20.0}
    room = house.leader(limits=patient, tries=2)
    house.worker(echo(), wire)
    room.says(user, "spoilt")
    room.says(user, "a")
    room.says(other, "b")
    room.until_quiet(seconds=60.0)
    assert house.texts(other) == ["b"]
    assert house.texts(user) == ["a"]
    (letter,) = room.letters()
    assert explained(letter).startswith("handler: ")
    assert cause in explained(letter)
    assert not house.database.conversations.find_one({"_id": {"$regex": user.user_id}}).get("data")


def test_workers_cannot_fill_a_leader_without_bound(house: House) -> None:
    limits = SHORT | {"jobworker.remote.leader.MOST_WORKERS": 50}
    user, room = house.sim.add_user("花子"), house.leader(limits=limits)
    with Stranger(house.node) as stranger:
        for number in range(75):
            stranger.to_leaders({**BEAT, "worker": f"w{number}", "name": f"n{number}"})
        eventually(lambda: len(room.desk.workers()) >= 50)
        stranger.to_leaders({**BEAT, "worker": "w1", "name": "last"})
        eventually(lambda: "last" in states(room))
    assert len(room.desk.workers()) == 50
    # They are silent now, and make place for one that is none of them.
    house.worker(echo())
    room.says(user, "a")
    room.until_quiet(seconds=30)
    assert house.texts(user) == ["a"]
