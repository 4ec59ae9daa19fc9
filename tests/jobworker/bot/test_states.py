"""Conversations as state machines, from a user's message to the document in MongoDB."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from linebot.v3.webhooks import FollowEvent, MessageEvent, TextMessageContent, UnfollowEvent

from jobworker.bot.talk import TalkContext
from jobworker.record.conversations import StoredConversation
from linedesk import Bot, BotError, Talk
from linedesk.store.documents import Document, make_document
from linedesk.store.timers import make_timer_document
from linesim import Sim
from tests.jobworker.worker_harness import Room

MakeRoom = Callable[..., Room]


def an_order(**options: Any) -> Bot:
    """Takes an order: first the item, then the number; within five minutes each."""
    bot = Bot(**options)

    @bot.add(MessageEvent, message=TextMessageContent)
    def idle(event: Any, talk: Talk) -> None:
        if event.message.text == "注文":
            talk.expect("asking_what", within=300)
            talk.reply("何にしますか？")
        else:
            talk.reply("いらっしゃいませ")

    @bot.add(MessageEvent, message=TextMessageContent, state="asking_what")
    def what(event: Any, talk: Talk) -> None:
        talk.data["what"] = event.message.text
        talk.state = "asking_how_many"
        talk.reply("いくつですか？")

    @bot.add(MessageEvent, message=TextMessageContent, state="asking_how_many")
    def how_many(event: Any, talk: Talk) -> None:
        talk.state = None
        talk.reply(f"{talk.data.pop('what')}を{event.message.text}")

    @bot.default(state=["asking_what", "asking_how_many"])
    def again(event: Any, talk: Talk) -> None:
        talk.reply("文字でお願いします")

    @bot.timeout("asking_what")
    def too_late(event: Any, talk: Talk) -> None:
        talk.push(f"またどうぞ {talk.state}")

    @bot.add(FollowEvent)
    def welcome(event: Any, talk: Talk) -> None:
        talk.reply(f"ようこそ {talk.state}")

    @bot.add(UnfollowEvent)
    def goodbye(event: Any, talk: Talk) -> None:
        talk.forget()

    return bot


def a_talk() -> Talk:
    event = {"webhookEventId": "E1", "source": {"type": "user", "userId": "U1"}}
    document = make_document(event, channel="main", accept_time=datetime.now(UTC))
    return Talk(
        document,
        TalkContext(lambda: StoredConversation("main/U1"), api=lambda: None, content=lambda: None),
    )


def texts(room: Room, chat: Any) -> list[str | None]:
    return [bubble.text for bubble in room.sim.answers(chat)]


def hears(room: Room, user: Any, text: str, **where: Any) -> str | None:
    """The bot's answers."""
    room.says(user, text, **where)
    room.until_quiet()
    return texts(room, where.get("chat", user))[-1]


def rows(room: Room) -> list[Document]:
    return list(room.database.schedule.find({"runAt": {"$ne": None}}))


def ring(room: Room, row: Document) -> None:
    """As the dispatcher does when the row is due."""
    room.put_document(make_timer_document(row, accept_time=datetime.now(UTC)))
    room.until_quiet()


@pytest.fixture(autouse=True)
def _no_timers_left(database: Any) -> None:
    database.schedule.delete_many({})


def test_a_message_goes_to_the_handler_of_the_state(room: MakeRoom, sim: Sim) -> None:
    shop, user, other = room(an_order()), sim.add_user("花子"), sim.add_user("太郎")
    assert hears(shop, user, "こんにちは") == "いらっしゃいませ"
    assert hears(shop, user, "注文") == "何にしますか？"
    assert hears(shop, other, "こんにちは") == "いらっしゃいませ"
    assert hears(shop, user, "お茶") == "いくつですか？"
    assert hears(shop, user, "二つ") == "お茶を二つ"
    assert hears(shop, user, "二つ") == "いらっしゃいませ"
    found = shop.conversation(user.user_id)
    assert (found["state"], found["data"]) == (None, {})


def test_the_fallback_takes_what_a_person_does_and_no_news(room: MakeRoom, sim: Sim) -> None:
    shop, user = room(an_order()), sim.add_user("花子")
    hears(shop, user, "注文")
    shop.send(sim.drafts.sticker(user))
    shop.send(sim.drafts.postback(user, "a=1"))
    shop.send(sim.drafts.follow(user))
    shop.until_quiet()
    expected = ["文字でお願いします", "文字でお願いします", "ようこそ asking_what"]
    assert texts(shop, user)[1:] == expected


def test_state_and_answer_are_one_record_and_a_handler_that_fails_changes_neither(
    room: MakeRoom, sim: Sim
) -> None:
    bot, fails = Bot(), threading.Event()

    @bot.add(MessageEvent)
    def step(event: Any, talk: Talk) -> None:
        talk.data["n"] = talk.data.get("n", 0) + 1
        talk.expect("waiting", within=60)
        talk.after(5, "later")
        talk.reply(f"{talk.data['n']}")
        if fails.is_set():
            fails.clear()
            raise RuntimeError("once")

    place, user = room(bot), sim.add_user("花子")
    fails.set()
    assert hears(place, user, "a") == "1"
    assert hears(place, user, "b") == "2"
    found = place.conversation(user.user_id)
    assert (found["state"], found["data"], found["n"]) == ("waiting", {"n": 2}, 2)
    assert {row["name"]: row["n"] for row in rows(place)} == {"~state": 2, "later": 2}


def test_a_state_is_left_when_its_time_is_over(room: MakeRoom, sim: Sim) -> None:
    shop, user = room(an_order()), sim.add_user("花子")
    before = datetime.now(UTC)
    hears(shop, user, "注文")
    (row,) = rows(shop)
    until = shop.conversation(user.user_id)["until"]
    assert timedelta(seconds=299) < until - before < timedelta(seconds=310)
    assert timedelta(0) <= row["runAt"] - until <= timedelta(milliseconds=1)
    ring(shop, row)
    assert texts(shop, user)[-1] == "またどうぞ None"
    found = shop.conversation(user.user_id)
    assert (found["state"], found["until"]) == (None, None)
    assert hears(shop, user, "お茶") == "いらっしゃいませ"


@pytest.mark.parametrize("state", ["", 1, None, ["a"], True])
def test_a_state_is_a_text(state: Any) -> None:
    talk = a_talk()
    with pytest.raises(BotError, match="a state is a text"):
        talk.expect(state, within=60)
    if state is not None:
        with pytest.raises(BotError, match="a state is a text"):
            talk.state = state
    assert talk.decision().is_empty


def test_in_a_group_the_state_is_each_member_s_if_the_bot_says_so(room: MakeRoom, sim: Sim) -> None:
    shop = room(an_order(per_member=True))
    hanako, taro = sim.add_user("花子"), sim.add_user("太郎")
    group = sim.add_group("仲間", [hanako, taro])
    hears(shop, hanako, "注文", chat=group)
    assert hears(shop, taro, "こんにちは", chat=group) == "いらっしゃいませ"
    hears(shop, taro, "注文", chat=group)
    assert hears(shop, hanako, "お茶", chat=group) == "いくつですか？"
    found = shop.conversation(group.chat_id)
    assert found["state"] is None
    assert {who: place["state"] for who, place in found["states"].items()} == {
        hanako.user_id: "asking_how_many",
        taro.user_id: "asking_what",
    }
    (row,) = rows(shop)
    assert row["_id"] == f"main/{group.chat_id}/{taro.user_id}/~state"
    ring(shop, row)
    left = shop.conversation(group.chat_id)["states"]
    assert {who: place["state"] for who, place in left.items()} == {
        hanako.user_id: "asking_how_many"
    }
    assert texts(shop, group)[-1] == "またどうぞ None"
    assert hears(shop, hanako, "二つ", chat=group) == "お茶を二つ"
    assert shop.conversation(group.chat_id)["states"] == {}


def test_forget_empties_state_and_data_and_ends_the_state_s_time(room: MakeRoom, sim: Sim) -> None:
    shop, user = room(an_order()), sim.add_user("花子")
    hears(shop, user, "注文")
    shop.database.conversations.update_one(
        {"key": user.user_id}, {"$set": {"data.what": "お茶"}, "$inc": {"n": 1}}
    )
    shop.send(sim.drafts.unfollow(user))
    shop.until_quiet()
    found = shop.conversation(user.user_id)
    names = ("state", "until", "data", "profile")
    assert [found[name] for name in names] == [None, None, {}, None]
    assert rows(shop) == []
