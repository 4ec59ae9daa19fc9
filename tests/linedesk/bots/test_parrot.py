"""The parrot's answers, in private and in groups."""

from collections.abc import Iterator
from typing import Any

import pytest

import linesim
from linedesk.bots.parrot import bot
from linedesk.store.client import Client
from linesim import Sim
from tests.jobworker.worker_harness import Room
from tests.servers import one_for_all

HEARD = {
    "text": "はい、おはよう😀、ですね。",
    "image": "写真ですね...",
    "video": "動画ですね...",
    "audio": "ボイスメッセージですね...",
    "file": "ファイルですね...",
    "location": "位置情報ですね...",
    "sticker": "スタンプですね",
}


@pytest.fixture(scope="module")
def room(client: Client) -> Iterator[Room]:
    """One desk and one simulator for all: every test has its own users."""
    with (
        one_for_all(client) as database,
        linesim.running(rate_limits=False) as sim,
        Room(database, sim, bot) as room,
    ):
        yield room


@pytest.fixture
def sim(room: Room) -> Sim:
    return room.sim


def texts(sim: Sim, chat: Any) -> list[str | None]:
    return [bubble.text for bubble in sim.answers(chat)]


def draft(sim: Sim, what: str, *who: Any, **where: Any) -> dict[str, Any]:
    if what == "text":
        return sim.drafts.text(*who, "おはよう😀", **where)
    if what in ("location", "sticker"):
        return getattr(sim.drafts, what)(*who, **where)  # type: ignore[no-any-return]
    return sim.drafts.medium(what, *who, **where)  # type: ignore[arg-type]


def test_its_answers_in_private_have_the_users_name(room: Room, sim: Sim) -> None:
    users = {what: sim.add_user("花子") for what in HEARD}
    for what, user in users.items():
        room.send(draft(sim, what, user))
    room.until_quiet()
    for what, user in users.items():
        assert texts(sim, user) == [f"花子さん、{HEARD[what]}"]


@pytest.mark.parametrize("kind", ["group", "room"])
def test_its_answers_in_a_group_name_the_member(room: Room, sim: Sim, kind: Any) -> None:
    user = sim.add_user("太郎", friend=False)
    group = sim.add_group("仲間", [user], kind=kind)
    for what in HEARD:
        room.send(draft(sim, what, user, chat=group))
        room.until_quiet()
    assert texts(sim, group) == [f"太郎さん、{answer}" for answer in HEARD.values()]
    assert texts(sim, user) == []


def test_a_follow_is_welcomed_and_an_unfollow_removes_what_is_personal(
    room: Room, sim: Sim
) -> None:
    user = sim.add_user("花子", friend=False)
    room.send(sim.drafts.follow(user))
    room.until_quiet()
    assert texts(sim, user) == ["ようこそ！"]
    found = room.conversation(user.user_id)
    assert (found["friend"], found["profile"]["displayName"]) == (True, "花子")
    room.database.conversations.update_one(
        {"key": user.user_id}, {"$set": {"state": "a", "data": {"tel": "1"}}, "$inc": {"n": 1}}
    )
    room.send(sim.drafts.unfollow(user))
    room.until_quiet()
    found = room.conversation(user.user_id)
    assert [found[name] for name in ("friend", "profile", "state", "data")] == [
        *(False, None, None, {})
    ]


def test_the_longest_text_is_said_back_whole(room: Room, sim: Sim) -> None:
    user, long = sim.add_user("花子"), "あ" * 5_000
    room.says(user, long)
    room.until_quiet()
    assert "".join(text or "" for text in texts(sim, user)) == f"花子さん、はい、{long}、ですね。"
