"""The guarantees for a bot, wherever its handlers run."""

from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest
from linebot.v3.messaging import StickerMessage, TextMessage
from linebot.v3.webhooks import MessageEvent

from jobworker.bot.talk import Talk
from linedesk import Bot
from linedesk.operate.dead_letters import event_again
from linedesk.store.timers import make_timer_document
from linesim import Sim
from tests.jobworker.worker_harness import Rooms, a_bot, texts


def said(talk: Talk) -> str:
    return str(talk.raw["message"]["text"])


def test_a_reply_its_second_half_and_pushes_leave_as_they_were_made(room: Rooms, sim: Sim) -> None:
    user, other = sim.add_user("花子"), sim.add_user("太郎")

    def handler(event: Any, talk: Talk) -> None:
        talk.reply("一", TextMessage(text="二"))
        talk.reply(StickerMessage(package_id="446", sticker_id="1988"))
        talk.push("三")
        talk.push("四", to=other.user_id, until=datetime.now(UTC) + timedelta(hours=1))
        once: Any = (one.user_id for one in (user, other))
        talk.multicast(once, "五")

    desk = room(a_bot(handler))
    document = desk.says(user, "やあ")
    desk.until_quiet()
    assert texts(sim, user) == ["一", "二", None, "三", "五"]
    assert texts(sim, other) == ["四", "五"]
    (call,) = sim.replies_to(document["eventId"])
    assert len(call.body["messages"]) >= 3


def test_state_and_data_come_back_as_they_were_left(room: Rooms, sim: Sim) -> None:
    user = sim.add_user("花子")
    stored = {
        "when": datetime(2026, 11, 23, 1, 2, 3, 456_000, tzinfo=UTC),
        "large": 2**53 + 1,
        "small": -3,
        "share": 0.5,
        "whole": 2.0,
        "raw": b"\x00\xff",
        "id": bson.ObjectId("0123456789abcdef01234567"),
        "list": [1, None, True, {"深い": "値"}],
        "$odd": "a name that JSON knows nothing of",
    }
    seen: list[Any] = []
    bot = Bot()

    @bot.default()
    def first(event: Any, talk: Talk) -> None:
        seen.append((talk.state, dict(talk.data)))
        talk.data.update(stored)
        talk.state = "second"

    @bot.add(MessageEvent, state="second")
    def second(event: Any, talk: Talk) -> None:
        seen.append((talk.state, dict(talk.data)))
        del talk.data["raw"]
        talk.state = None

    desk = room(bot)
    for text in "abc":
        desk.says(user, text)
    desk.until_quiet()
    assert seen[0] == (None, {})
    assert seen[1] == ("second", stored)
    assert isinstance(seen[1][1]["whole"], float)
    assert seen[2] == (None, {name: one for name, one in stored.items() if name != "raw"})
    assert desk.conversation(user.user_id)["data"] == stored


def test_timers_are_set_at_the_time_of_the_handler(room: Rooms, sim: Sim) -> None:
    user = sim.add_user("花子")
    began = datetime.now(UTC)

    def handler(event: Any, talk: Talk) -> None:
        talk.after(60, "ring:1", n=1, when=datetime(2027, 1, 1, tzinfo=UTC))
        talk.at(datetime(2030, 1, 1, tzinfo=UTC), "later")
        talk.every("07:30", "daily", tz="Asia/Tokyo")
        talk.after(5, "gone")
        talk.cancel("gone")

    bot = a_bot(handler)
    rung: list[Any] = []

    @bot.timer("ring")
    def ring(event: Any, talk: Talk) -> None:
        rung.append((event.name, event.data))
        talk.push("鳴った")

    desk = room(bot)
    desk.says(user, "a")
    desk.until_quiet()
    rows = {row["name"]: row for row in desk.database.schedule.find()}
    assert rows["gone"]["runAt"] is None
    assert rows["later"]["runAt"] == datetime(2030, 1, 1, tzinfo=UTC)
    assert rows["daily"]["every"] == {"at": "07:30", "tz": "Asia/Tokyo"}
    assert 55 < (rows["ring:1"]["runAt"] - began).total_seconds() < 75
    desk.put_document(make_timer_document(rows["ring:1"], accept_time=datetime.now(UTC)))
    desk.until_quiet()
    assert rung == [("ring:1", {"n": 1, "when": datetime(2027, 1, 1, tzinfo=UTC)})]
    assert texts(sim, user) == ["鳴った"]


def test_groups_have_mentions_quotes_and_their_size(
    room: Rooms, sim: Sim, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobworker.bot.places._warned", {})
    hanako, taro = sim.add_user("花子"), sim.add_user("太郎")
    group = sim.add_group("友達", members=[hanako, taro])
    seen: list[Any] = []

    def handler(event: Any, talk: Talk) -> str:
        seen.append((talk.event_id, talk.try_number, talk.members_count))
        if talk.try_number < 3:
            raise KeyError("again")
        talk.reply(talk.mention(hanako.user_id) + "さん", quote=True)
        return "not sent"

    desk = room(a_bot(handler), tries=2)
    event = desk.says(hanako, "a", chat=group)
    desk.until_quiet()
    (letter,) = desk.letters()
    desk.put_document(
        event_again(letter, name=f"replay:{event['eventId']}:1", now=datetime.now(UTC))
    )
    desk.until_quiet()
    assert [one[:2] for one in seen] == [(event["eventId"], number) for number in (1, 2, 3)]
    # A worker process knows the number once LINE was asked for it before a push.
    desk.says(hanako, "b", chat=group)
    desk.until_quiet()
    assert seen[-1][2] == 2
    (sent,) = [bubble.message for bubble in sim.answers(group)]
    assert (sent["text"], sent["quoteToken"]) == (
        "{user1}さん",
        event["event"]["message"]["quoteToken"],
    )
    assert sent["substitution"]["user1"]["mentionee"]["userId"] == hanako.user_id
    told = [one.getMessage() for one in caplog.records]
    warned = [one for one in told if "returns a message" in one]
    assert len(warned) == 1
    assert "test_conformance.py:" in warned[0]


def test_settings_secrets_and_quota_are_there(room: Rooms, sim: Sim) -> None:
    user = sim.add_user("花子")
    bot = Bot(settings={"greeting": "やあ"}, secrets=["KEY"])
    bot.default()(
        lambda event, talk: talk.reply(
            f"{talk.settings['greeting']} {talk.secrets['KEY']} {talk.quota.is_closed}"
        )
    )
    desk = room(bot, settings={"greeting": "はい"}, secrets={"KEY": "secret-key"})
    desk.says(user, "a")
    desk.until_quiet()
    assert texts(sim, user) == ["はい secret-key False"]
