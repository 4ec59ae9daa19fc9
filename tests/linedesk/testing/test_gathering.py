"""Messages that a handler gets together, in the test kit."""

from __future__ import annotations

import pytest
from linebot.v3.webhooks import (
    MessageEvent,
    StickerMessageContent,
    TextMessageContent,
    UnsendEvent,
)

from linedesk import Bot, Talk, TimerEvent
from linedesk.testing import BotTest

bot = Bot()


@bot.add(MessageEvent, message=TextMessageContent, gather=2.0, most=3)
def together(events: list[MessageEvent], talk: Talk) -> None:
    words = [event.message.text for event in events]
    if "失敗" in words:
        raise RuntimeError("as planned")
    if "起こして" in words:
        talk.after(1.0, "wake")
    if "もう起きた" in words:
        talk.cancel("wake")
    talk.reply("、".join(words))


@bot.add(MessageEvent, message=StickerMessageContent)
def sticker(event: MessageEvent, talk: Talk) -> None:
    talk.reply("スタンプ")


@bot.add(UnsendEvent)
def unsend(event: UnsendEvent, talk: Talk) -> None: ...


@bot.timer("wake")
def wake(event: TimerEvent, talk: Talk) -> None:
    talk.push("おはよう")


def test_messages_wait_until_time_has_gone_by() -> None:
    test = BotTest(bot)
    assert test.says("U1", "一").sent == ()
    assert test.advance(1).sent == ()
    assert test.says("U1", "二").sent == ()
    assert test.advance(1.9).sent == ()
    assert test.advance(0.1).replies == ["一、二"]
    assert test.advance(60).sent == ()
    # As many as may be together wait no more.
    assert test.says("U1", "三").sent == test.says("U1", "四").sent == ()
    assert test.says("U1", "五").replies == ["三、四、五"]


def test_anything_else_ends_the_wait_and_comes_after_it() -> None:
    test = BotTest(bot)
    test.says("U1", "一")
    assert test.sticker("U1").replies == ["一", "スタンプ"]
    test.says("U1", "一", group="C1")
    assert test.says("U2", "二", group="C1").replies == ["一"]
    assert test.advance(2).replies == ["二"]


def test_a_timer_behind_the_messages_that_cancel_it_is_not_handled() -> None:
    test = BotTest(bot)
    test.says("U1", "起こして")
    test.advance(2)
    test.says("U1", "もう起きた")
    assert test.advance(60).replies == ["もう起きた"]
    assert test.timers("U1") == test.last.pushes == []


def test_a_message_that_is_taken_back_meanwhile_is_left_out() -> None:
    test = BotTest(bot)
    test.sends("U1", {"type": "text", "id": "77", "text": "秘密"})
    test.says("U1", "やあ")
    assert test.unsends("U1", "77").replies == ["やあ"]
    test.sends("U1", {"type": "text", "id": "78", "text": "秘密"})
    assert test.unsends("U1", "78").sent == ()
    assert test.advance(60).sent == ()


def test_a_handlers_exception_reaches_the_test_and_the_conversation_continues() -> None:
    test = BotTest(bot)
    test.says("U1", "失敗")
    with pytest.raises(RuntimeError, match="as planned"):
        test.advance(2)
    test.says("U1", "やあ")
    assert test.advance(2).replies == ["やあ"]
