"""The parrot's answers, in private and in groups."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import linesim
from linedesk.bots.parrot import bot
from linedesk.setup.collections import create_collections
from linedesk.store.client import Client
from linedesk.store.collections import MEGABYTE
from linesim import Sim
from tests.jobworker.worker_harness import Room

HEARD: dict[str, tuple[Callable[..., dict[str, Any]], str]] = {
    "a text": (lambda sim, *who, **where: sim.drafts.text(*who, "おはよう😀", **where),
               "はい、おはよう😀、ですね。"),
    "a photo": (lambda sim, *who, **where: sim.drafts.medium("image", *who, **where),
                "写真ですね..."),
    "a video": (lambda sim, *who, **where: sim.drafts.medium("video", *who, **where),
                "動画ですね..."),
    "a voice message": (lambda sim, *who, **where: sim.drafts.medium("audio", *who, **where),
                        "ボイスメッセージですね..."),
    "a file": (lambda sim, *who, **where: sim.drafts.medium("file", *who, **where),
               "ファイルですね..."),
    "a location": (lambda sim, *who, **where: sim.drafts.location(*who, **where),
                   "位置情報ですね..."),
    "a sticker": (lambda sim, *who, **where: sim.drafts.sticker(*who, **where),
                  "スタンプですね"),
}  # fmt: skip


@pytest.fixture(scope="module")
def shared(client: Client) -> Iterator[Room]:
    """One desk and one simulator for all: every test has its own users."""
    database = client[f"test_parrot_{uuid.uuid4().hex[:12]}"]
    create_collections(database, capped_bytes=MEGABYTE)
    with linesim.running(rate_limits=False) as sim, Room(database, sim, bot) as room:
        yield room
    client.drop_database(database.name)


@pytest.fixture
def room(shared: Room) -> Iterator[Room]:
    yield shared
    shared.sim.clear_faults()


@pytest.fixture
def sim(room: Room) -> Sim:
    return room.sim


def texts(sim: Sim, chat: Any) -> list[str | None]:
    return [bubble.text for bubble in sim.answers(chat)]


@pytest.mark.parametrize(("draft", "answer"), HEARD.values(), ids=HEARD.keys())
def test_its_answer_in_private(
    room: Room, sim: Sim, draft: Callable[..., dict[str, Any]], answer: str
) -> None:
    user = sim.add_user("花子")
    room.send(draft(sim, user))
    room.until_quiet()
    assert texts(sim, user) == [f"花子さん、{answer}"]
    assert sim.calls[-1].endpoint == "reply"


@pytest.mark.parametrize("kind", ["group", "room"])
@pytest.mark.parametrize(("draft", "answer"), HEARD.values(), ids=HEARD.keys())
def test_its_answer_in_a_group_names_the_member(
    room: Room, sim: Sim, draft: Callable[..., dict[str, Any]], answer: str, kind: Any
) -> None:
    user = sim.add_user("太郎", friend=False)
    group = sim.add_group("仲間", [user], kind=kind)
    room.send(draft(sim, user, chat=group))
    room.until_quiet()
    assert texts(sim, group) == [f"太郎さん、{answer}"]
    assert texts(sim, user) == []


@pytest.mark.parametrize(("draft", "answer"), HEARD.values(), ids=HEARD.keys())
def test_its_answer_if_line_returns_no_name(
    room: Room, sim: Sim, draft: Callable[..., dict[str, Any]], answer: str
) -> None:
    user = sim.add_user("花子")
    sim.answer_next("profile", 404)
    room.send(draft(sim, user))
    room.until_quiet()
    assert texts(sim, user) == [answer]


def test_a_follow_is_welcomed_and_stores_the_profile(room: Room, sim: Sim) -> None:
    user = sim.add_user("花子", friend=False)
    room.send(sim.drafts.follow(user))
    room.until_quiet()
    assert texts(sim, user) == ["ようこそ！"]
    found = room.conversation(user.user_id)
    assert (found["friend"], found["profile"]["displayName"]) == (True, "花子")


def test_an_unfollow_removes_what_is_personal(room: Room, sim: Sim) -> None:
    user = sim.add_user("花子")
    room.says(user, "やあ")
    room.until_quiet()
    room.database.conversations.update_one(
        {"key": user.user_id}, {"$set": {"state": "a", "data": {"tel": "1"}}, "$inc": {"n": 1}}
    )
    room.send(sim.drafts.unfollow(user))
    room.until_quiet()
    found = room.conversation(user.user_id)
    assert (found["friend"], found["profile"], found["state"], found["data"]) == (
        False,
        None,
        None,
        {},
    )
    assert texts(sim, user) == ["花子さん、はい、やあ、ですね。"]


def test_the_longest_text_is_said_back_whole(room: Room, sim: Sim) -> None:
    user, long = sim.add_user("花子"), "あ" * 5_000
    room.says(user, long)
    room.until_quiet()
    assert "".join(text or "" for text in texts(sim, user)) == f"花子さん、はい、{long}、ですね。"


@pytest.mark.parametrize("act", ["join", "member_joined", "leave"])
def test_unknown_messages_are_ignored(room: Room, sim: Sim, act: str) -> None:
    user = sim.add_user("花子")
    group = sim.add_group("仲間", [user], present=act != "join")
    args = (group, sim.add_user("太郎")) if act == "member_joined" else (group,)
    room.send(getattr(sim.drafts, act)(*args))
    room.until_decided()
    assert (texts(sim, group), room.letters()) == ([], [])
