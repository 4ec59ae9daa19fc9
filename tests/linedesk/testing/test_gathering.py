"""Messages that a handler gets together, in the test kit."""

from __future__ import annotations

from linebot.v3.webhooks import MessageEvent, StickerMessageContent, TextMessageContent

from linedesk import Bot, Talk
from linedesk.testing import BotTest

bot = Bot()


@bot.add(MessageEvent, message=TextMessageContent, gather=2.0, most=3)
def together(events: list[MessageEvent], talk: Talk) -> None:
    talk.reply("、".join(event.message.text for event in events))


@bot.add(MessageEvent, message=StickerMessageContent)
def sticker(event: MessageEvent, talk: Talk) -> None:
    talk.reply("スタンプ")


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
