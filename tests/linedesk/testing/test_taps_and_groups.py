"""The test kit: mentions, quotes, edits and sizes of groups; taps on buttons, pickers, limits."""

import asyncio
from typing import Any

import pytest
from linebot.v3.messaging import (
    DatetimePickerAction,
    FlexMessage,
    MessageAction,
    PostbackAction,
    QuickReply,
    QuickReplyItem,
    RichMenuSwitchAction,
    TextMessage,
)
from linebot.v3.webhooks import MessageEditedEvent, MessageEvent, TextMessageContent

from linedesk import Bot, BotError, Talk
from linedesk.testing import BotTest, BotWarning, KitError
from tests.linedesk.testing.test_bot_test import bot_that

BUTTON = {"type": "button", "action": PostbackAction(label="はい", data="yes=1").to_dict()}
BODY = {"type": "box", "layout": "vertical", "contents": [BUTTON]}
FLEX = FlexMessage.from_dict(
    {"type": "flex", "altText": "確認", "contents": {"type": "bubble", "body": BODY}}
)
PICKER = DatetimePickerAction(
    label="日を選ぶ", data="day", mode="date", min="2027-01-05", max="2027-02-04"
)
IMAGEMAP = {
    "type": "imagemap",
    "baseUrl": "https://example.com/a",
    "altText": "地図",
    "baseSize": {"width": 1040, "height": 1040},
    "actions": [
        {"type": "message", "text": "左", "area": {"x": 0, "y": 0, "width": 9, "height": 9}}
    ],
}
CHOICE = TextMessage(
    text="どれ？",
    quick_reply=QuickReply(
        items=[
            QuickReplyItem(action=MessageAction(label="一つ", text="1")),
            QuickReplyItem(action=PICKER),
            QuickReplyItem(action={"type": "camera", "label": "写真"}),
        ]
    ),
)
MENU = {
    "areas": [
        {"bounds": {}, "action": {"type": "message", "label": "予約", "text": "予約する"}},
        {"bounds": {}, "action": {"type": "uri", "label": "地図", "uri": "https://example.com"}},
        {
            "bounds": {},
            "action": RichMenuSwitchAction(
                label="次", data="next", rich_menu_alias_id="b"
            ).to_dict(),
        },
    ]
}


def test_taps_find_the_last_messages_actions_by_their_label() -> None:
    seen: list[Any] = []

    def handle(event: Any, talk: Talk) -> None:
        seen.append(talk.raw.get("postback") or talk.raw["message"]["text"])
        talk.reply(FLEX, IMAGEMAP, CHOICE)

    test = bot_that(handle)
    test.says("U1", "?", group="C1")
    for label in ("はい", "左", "一つ"):
        test.taps("U2", label, group="C1")
    test.taps("U1", "予約", menu=MENU)
    test.taps("U1", "次", menu=MENU)
    switched = {"newRichMenuAliasId": "b", "status": "SUCCESS"}
    assert seen[1:] == [
        *({"data": "yes=1"}, "左", "1", "予約する"),
        {"data": "next", "params": switched},
    ]
    assert test.taps("U1", "地図", menu=MENU).sent == ()
    with pytest.raises(ValueError, match="'一つ', '日を選ぶ', '写真'"):
        test.taps("U2", "いいえ", group="C1")
    with pytest.raises(ValueError, match="use picks_date"):
        test.taps("U2", "日を選ぶ", group="C1")
    with pytest.raises(ValueError, match="image or location"):
        test.taps("U2", "写真", group="C1")


def test_a_quick_reply_is_gone_once_another_message_follows() -> None:
    test = bot_that(lambda event, talk: talk.reply(CHOICE, "次の文"))
    test.says("U1", "?")
    with pytest.raises(ValueError, match="no action '一つ'"):
        test.taps("U1", "一つ")


def test_a_date_is_picked_within_what_the_picker_offers() -> None:
    def handle(event: Any, talk: Talk) -> None:
        if event.type == "postback":
            talk.reply(f"{event.postback.data} {event.postback.params['date']}")
        else:
            talk.reply(CHOICE)

    test = bot_that(handle)
    test.says("U1", "?")
    with pytest.raises(ValueError, match="2027-01-05 to 2027-02-04"):
        test.picks_date("U1", "2027-03-01")
    assert test.picks_date("U1", "2027-01-31", "日を選ぶ").replies == ["day 2027-01-31"]


def test_a_handler_that_takes_longer_than_its_limit_fails_the_test() -> None:
    bot = Bot()
    bot.add(MessageEvent, limit=120)(lambda event, talk: talk.reply("はい"))
    test = BotTest(bot)
    test.takes(90)
    assert test.says("U1", "?").pushes == ["はい"]
    quick = bot_that(lambda event, talk: talk.reply("はい"))
    quick.takes(90)
    with pytest.raises(KitError, match=r"takes 90 s and its limit is 60 s.*limit=90"):
        quick.says("U1", "?")


def test_a_mention_is_seen_by_the_handler_and_answered_by_one_with_a_quote() -> None:
    def handle(event: Any, talk: Talk) -> None:
        mentionees = event.message.mention.mentionees
        if any(getattr(one, "is_self", False) for one in mentionees):
            talk.reply(talk.mention(talk.user_id or "") + " さん、{はい}", quote=True)
            talk.reply(f"{talk.members_count}人", quote=False)

    test = bot_that(handle)
    test.members["C1"] = 12
    assert test.sends_mention("U1", "𠮷 @bot @all 予約", group="C1").replies == [
        *("@U1 さん、{はい}", "12人")
    ]
    message = test.last.messages[0]
    assert (message["type"], message["quoteToken"]) == ("textV2", "q")
    assert test.sends_mention("U1", "@U2 元気？", group="C1").sent == ()
    with pytest.raises(ValueError, match="@bot"):
        test.sends_mention("U1", "だれか", group="C1")


def test_a_mention_goes_to_groups_only_and_into_no_f_string() -> None:
    reply = bot_that(lambda event, talk: talk.reply("＞" + talk.mention("U1")))
    assert reply.says("U1", "?", group="R1").texts == ["＞@U1"]
    with pytest.raises(BotError, match="groups and rooms"):
        reply.says("U1", "?")
    with pytest.raises(BotError, match="by \\+"):
        bot_that(lambda event, talk: talk.reply(f"{talk.mention('U1')}さん")).says("U1", "?")


def test_an_edit_reaches_a_gathered_message_before_its_handler_and_later_is_an_event() -> None:
    bot = Bot()

    @bot.add(MessageEvent, message=TextMessageContent, gather=5.0, most=3)
    def together(events: list[MessageEvent], talk: Talk) -> None:
        talk.reply("、".join(event.message.text for event in events))

    @bot.add(MessageEditedEvent)
    def edited(event: MessageEditedEvent, talk: Talk) -> None:
        talk.reply(f"訂正：{event.message.text}")

    test = BotTest(bot)
    test.says("U1", "一", group="C1")
    assert test.advance(4).sent == ()
    test.says("U1", "二", group="C1")
    assert test.advance(4.9).sent == ()
    assert test.edits("U1", "三", group="C1").replies == ["一、三"]
    assert test.advance(60).sent == ()
    assert test.edits("U1", "四", group="C1").replies == ["訂正：四"]
    # As many as may be together wait no more, and those of another person come apart.
    assert [test.says("U1", text).replies for text in "一二三"] == [[], [], ["一、二、三"]]
    test.says("U1", "一", group="C1")
    assert test.says("U2", "二", group="C1").replies == ["一"]
    assert test.advance(5).replies == ["二"]
    with pytest.raises(ValueError, match="no text"):
        test.edits("U3", "五", group="C1")


def test_a_coroutine_that_a_handler_returns_is_warned_of() -> None:
    async def later() -> None: ...

    with pytest.warns(BotWarning, match="a coroutine, which does not run"):
        bot_that(lambda event, talk: later()).says("U1", "やあ")


def test_an_async_handler_is_awaited_on_one_loop() -> None:
    bot, loops = Bot(), list[object]()

    @bot.add(MessageEvent, limit=120)
    async def answer(event: Any, talk: Talk) -> None:
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        with pytest.raises(BotError, match=r"await asyncio\.to_thread"):
            talk.content(event.message)
        talk.state = "asked"
        talk.reply(str((await asyncio.to_thread(talk.content, event.message)).size))

    @bot.failed
    async def sorry(event: Any, talk: Talk) -> None:
        await asyncio.sleep(0)
        talk.reply("申し訳ありません")

    test = BotTest(bot)
    assert test.image("U1", b"12345").texts == ["5"]
    assert test.state("U1") == "asked"
    with pytest.raises(BotError, match="not a photo"):
        test.says("U1", "やあ")
    test.fails()
    assert test.image("U1", b"1").texts == ["申し訳ありません"]
    test.takes(121)
    with pytest.raises(KitError, match="limit=121"):
        test.says("U1", "やあ")
    assert loops[0] is loops[1]
