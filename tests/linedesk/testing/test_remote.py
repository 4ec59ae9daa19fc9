"""`BotTest(bot, remote=True)`: a bot's test goes the way of worker processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from linebot.v3 import webhooks as line
from linebot.v3.messaging import TextMessage

from linedesk import Bot, BotError, MonthlyQuota, Talk
from linedesk.testing import BotTest, BotWarning
from tests.linedesk.testing.kit_bot import bot as kit_bot


def bot_that(handle: Callable[[Any, Talk], Any], **options: Any) -> BotTest:
    bot = Bot(**options)
    bot.default()(handle)
    return BotTest(bot, remote=True)


@pytest.mark.parametrize("remote", [False, True])
def test_a_bot_answers_as_on_the_dispatchers_threads(remote: bool) -> None:
    bot = Bot(profiles=True, per_member=True, settings={"greeting": "やあ"}, secrets=["KEY"])
    seen: list[Any] = []

    @bot.add(line.MessageEvent, message=line.TextMessageContent, gather=2.0)
    def text(events: Any, talk: Talk) -> None:
        words = "+".join(one.message.text for one in events)
        talk.reply(f"{talk.settings['greeting']} {talk.display_name} {words}")
        talk.push(TextMessage(text=talk.secrets["KEY"]), to="U2")
        talk.multicast(["U3", "U4"], "三")
        talk.data.update(at=talk.now, n=2**53 + 1, raw=b"\x00", pair=(1, 2))
        talk.after(60, "ring", when=datetime(2027, 1, 1, tzinfo=UTC))
        talk.expect("asked", within=600)

    @bot.timer("ring")
    def ring(event: Any, talk: Talk) -> None:
        seen.append((event.data, talk.state, dict(talk.data)))
        talk.push("鳴った")

    @bot.timeout("asked")
    def over(event: Any, talk: Talk) -> None:
        talk.push("時間切れ")

    @bot.add(line.PostbackEvent, state="asked")
    def tapped(event: Any, talk: Talk) -> None:
        talk.forget()
        talk.reply(f"{talk.quota.left}")

    test = BotTest(bot, secrets={"KEY": "a secret"}, remote=remote)
    test.quota = MonthlyQuota(limit=200, used=150)
    test.says("U1", "一")
    test.says("U1", "二")
    assert test.advance(2).texts == ["やあ U1 一+二", "a secret", "三"]
    began = test.now
    assert test.advance(60).pushes == ["鳴った"]
    ((data, state, kept),) = seen
    assert data == {"when": datetime(2027, 1, 1, tzinfo=UTC)}
    assert state == "asked"
    assert kept == {"at": began, "n": 2**53 + 1, "raw": b"\x00", "pair": [1, 2]}
    assert test.presses("U1", "x").replies == ["50"]
    assert test.data("U1") == {}
    test.says("U1", "三")
    assert test.advance(2 + 600).pushes[-1] == "時間切れ"


def test_the_tests_clock_does_not_move_while_a_handler_runs() -> None:
    said: list[datetime] = []

    def handle(event: Any, talk: Talk) -> None:
        until = time.monotonic() + 0.005
        while time.monotonic() < until:
            said.append(talk.now)

    test = bot_that(handle)
    test.says("U1", "一")
    assert set(said) == {test.now}


def test_what_a_handler_raises_reaches_the_test_and_nothing_is_done() -> None:
    def handle(event: Any, talk: Talk) -> None:
        talk.reply("lost")
        talk.data["lost"] = True
        raise KeyError("mine")

    test = bot_that(handle)
    with pytest.raises(KeyError, match="mine"):
        test.says("U1", "a")
    assert test.sent == []
    assert test.data("U1") == {}


@pytest.mark.parametrize(
    ("handle", "words"),
    [
        (lambda event, talk: talk.api.get_profile("U1"), "not in a worker process"),
        (lambda event, talk: talk.content(event), "not in a worker process"),
        (lambda event, talk: talk.data.update(kept=object()), "MongoDB cannot hold this: object"),
        (lambda event, talk: talk.data.update({1: 2}), "a field's name is a text, not int"),
        (lambda event, talk: talk.data.update(x="\ud800"), "surrogates not allowed"),
        (lambda event, talk: talk.reply(""), "an empty text"),
    ],
)
def test_what_a_worker_process_refuses_fails_in_the_test(
    handle: Callable[[Any, Talk], Any], words: str
) -> None:
    with pytest.raises(BotError, match=words):
        bot_that(handle).says("U1", "a")


def test_a_message_that_is_returned_is_warned_of() -> None:
    with pytest.warns(BotWarning, match="returns a message"):
        bot_that(lambda event, talk: "lost").says("U1", "a")


def test_a_rule_of_a_base_class_meets_no_event_there_either() -> None:
    bot = Bot()
    bot.add(line.Event)(lambda event, talk: talk.reply("never"))
    bot.add(line.MessageEvent)(lambda event, talk: talk.reply("message"))
    for remote in (False, True):
        assert BotTest(bot, remote=remote).says("U1", "a").replies == ["message"]


def test_time_passes_as_the_test_has_it() -> None:
    test = bot_that(lambda event, talk: talk.reply(f"{talk.now:%H:%M}"))
    test.advance(timedelta(minutes=5).total_seconds())
    assert test.says("U1", "a").replies == ["00:05"]


def test_a_whole_bot_of_the_kit_runs_remotely() -> None:
    test = BotTest(kit_bot, remote=True)
    answers = test.says("U1", "やあ")
    assert answers.sent == BotTest(kit_bot).says("U1", "やあ").sent
