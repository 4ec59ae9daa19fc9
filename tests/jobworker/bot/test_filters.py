"""Which handler runs where filters decide, from the author's view."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from linebot.v3.webhooks import (
    FollowEvent,
    ImageMessageContent,
    MessageEvent,
    PostbackEvent,
    TextMessageContent,
)

from linedesk import Bot, BotError, Talk
from linedesk.testing import BotTest


def answers(bot: Bot, word: str, *classes: Any, **options: Any) -> None:
    bot.add(*classes, **options)(lambda event, talk: talk.reply(word))


def test_the_first_filter_that_holds_in_a_state_comes_before_handlers_without_filters() -> None:
    bot = Bot()
    answers(bot, "文", MessageEvent, TextMessageContent)
    answers(bot, "何", MessageEvent)
    answers(bot, "予約", MessageEvent, text="予約")
    answers(bot, "番号", MessageEvent, text=re.compile(r"^\d+番"))
    answers(bot, "長い", MessageEvent, when=lambda event, talk: len(event.message.text) > 5)
    answers(bot, "遅い", MessageEvent, text=re.compile("番"))
    answers(bot, "状態", MessageEvent, TextMessageContent, state="s")
    answers(bot, "状態の番号", MessageEvent, text=re.compile("番"), state="s")

    @bot.add(PostbackEvent)
    def enter(event: Any, talk: Talk) -> None:
        talk.state = "s"

    test = BotTest(bot)
    said = {
        "予約": "予約",
        " 予約\n": "予約",
        "予約する": "文",
        "3番": "番号",
        "3番の予約です": "番号",
        "長い長い話": "文",
        "長い長い長い話": "長い",
        "何番": "遅い",
    }
    assert {text: test.says("U1", text).texts[0] for text in said} == said
    test.presses("U1", "x")
    assert [test.says("U1", text).texts[0] for text in ("予約", "3番")] == ["状態", "状態の番号"]


@pytest.mark.parametrize("text", ["@bot 予約", "👍🏽 @bot", "@bot @bot予約", "予約 ", "@bot 3番"])
def test_a_text_is_compared_without_the_mention_of_the_bot(text: str) -> None:
    """LINE counts the places of mentions in UTF-16 units."""
    bot = Bot()
    answers(bot, "予約", MessageEvent, text="予約", mentioned=True)
    answers(bot, "手", MessageEvent, text="👍🏽", mentioned=True)
    answers(bot, "番号", MessageEvent, text=re.compile(r"^\d番"), mentioned=True)
    mentionees = [
        {"index": len(text[: one.start()].encode("utf-16-le")) // 2, "length": 4, "type": "user"}
        for one in re.finditer("@bot", text)
    ]
    mention = {"mentionees": [{**one, "isSelf": True} for one in mentionees]}
    message = {"type": "text", "text": text, "mention": mention}
    meant = {"👍🏽 @bot": "手", "@bot 3番": "番号"}.get(text, "予約")
    said = BotTest(bot).sends("U1", message, group="C1" if mentionees else None)
    assert said.texts == [meant]


def test_a_mention_is_needed_in_a_group_and_not_in_a_chat_of_two() -> None:
    bot = Bot()
    answers(bot, "はい", MessageEvent, mentioned=True)
    test = BotTest(bot)

    def says(text: str, *, is_self: bool | None) -> list[Any]:
        who = {"type": "all"} if is_self is None else {"type": "user", "isSelf": is_self}
        mention = {"mentionees": [{"index": 0, "length": 2, **who}]}
        return test.sends(
            "U1", {"type": "text", "text": text, "mention": mention}, group="C1"
        ).texts

    assert test.says("U1", "やあ").texts == test.image("U1").texts == ["はい"]
    assert test.says("U1", "やあ", group="C1").texts == test.image("U1", group="C1").texts == []
    found = [says("@x やあ", is_self=one) for one in (True, False, None)]
    assert found == [["はい"], [], []]


def test_a_postback_s_data_chooses_the_handler_which_gets_it_as_a_dict() -> None:
    bot, seen = Bot(), []
    answers(bot, "ほか", PostbackEvent)

    @bot.add(PostbackEvent, postback="action=buy&kind=a")
    def buy(event: Any, talk: Talk) -> None:
        seen.append(talk.postback)
        talk.reply("買う")

    test = BotTest(bot)
    assert test.presses("U1", "kind=a&item=%E8%8C%B6+1&action=buy&note=").texts == ["買う"]
    assert seen == [{"kind": "a", "item": "茶 1", "action": "buy", "note": ""}]
    for data in ("action=buy", "action=buyer&kind=a", "buy", '{"action": "buy"}'):
        assert test.presses("U1", data).texts == ["ほか"]


def test_messages_are_gathered_while_the_filter_holds() -> None:
    bot, seen = Bot(), []

    @bot.add(MessageEvent, text=re.compile("^品"), gather=5)
    def items(events: Any, talk: Talk) -> None:
        seen.append([one.message.text for one in events])
        talk.reply(str(len(events)))

    answers(bot, "ほか", MessageEvent)
    test = BotTest(bot)
    for text in ("品1", "品2", "終わり", "品3"):
        test.says("U1", text)
    test.advance(10)
    assert (seen, [one.shown for one in test.sent]) == (
        [["品1", "品2"], ["品3"]],
        [["2"], ["ほか"], ["1"]],
    )


@pytest.mark.parametrize(
    ("add", "why"),
    [
        (lambda bot: bot.add(MessageEvent, text=5), "text= takes a text"),
        (lambda bot: bot.add(MessageEvent, text=" "), "text= takes a text"),
        (lambda bot: bot.add(PostbackEvent, text="a"), "text= is for MessageEvent"),
        (lambda bot: bot.add(MessageEvent, ImageMessageContent, text="a"), "text= is for"),
        (lambda bot: bot.add(FollowEvent, mentioned=True), "mentioned= is for MessageEvent"),
        (lambda bot: bot.add(MessageEvent, postback="a=1"), "postback= is for PostbackEvent"),
        (lambda bot: bot.add(PostbackEvent, postback=""), "postback= takes pairs"),
        (lambda bot: bot.add(MessageEvent, text=re.compile(b"a")), "text= takes a text"),
        (lambda bot: bot.add(MessageEvent, when=True), "is a function, not True"),
        (lambda bot: bot.add(MessageEvent, when=asyncio.sleep), "when= takes a plain function"),
        (lambda bot: bot.add(MessageEvent, when=lambda event: True), "does not take .event, talk"),
        (lambda bot: bot.add(MessageEvent, tries=0), "tries= takes a whole number, 1 to 100"),
        (lambda bot: bot.add(MessageEvent, backoff=[1, 0]), "backoff= takes seconds above 0"),
    ],
)
def test_a_filter_that_never_holds_is_refused(add: Callable[[Bot], Any], why: str) -> None:
    with pytest.raises(BotError, match=why):
        add(Bot())(lambda event, talk: None)


@pytest.mark.filterwarnings("ignore:coroutine")
def test_a_condition_that_returns_a_coroutine_fails_and_does_not_hold() -> None:
    bot = Bot()

    async def is_vip(talk: Talk) -> bool:
        return False

    answers(bot, "会員", MessageEvent, when=lambda event, talk: is_vip(talk))
    with pytest.raises(BotError, match="returned a coroutine"):
        BotTest(bot).says("U1", "?")
