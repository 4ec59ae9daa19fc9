"""A bot's messages become LINE's JSON, and long texts are cut where no user notices it."""

from datetime import UTC, datetime
from typing import Any

import pytest
from bson import ObjectId
from hypothesis import given, settings
from hypothesis import strategies as st
from linebot.v3.messaging import QuickReply, QuickReplyItem, StickerMessage, TextMessage
from linebot.v3.messaging.models import MessageAction

from jobworker.bot.messages import SEND_CHECKS, TEXT_UNITS, split_text, to_messages
from linedesk import BotError, WrongMessage
from linemessages import units
from tests import line_openapi
from tests.jobworker.bot.test_talk import talk_on

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
CLUSTERS = {
    "an emoji beyond the basic plane": "\U0001f600",
    "a family of joined emoji": FAMILY,
    "a skin tone": "\U0001f44d\U0001f3fd",
    "a flag of two letters": "\U0001f1ef\U0001f1f5",
    "a flag of tags": "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "a keycap": "1\ufe0f\u20e3",
    "a heart with its variation": "\u2764\ufe0f",
    "a combining dakuten": "か\u3099",
    "a half-width dakuten": "ｶﾞ",
    "accents on accents": "e\u0301\u0323",
    "a spacing vowel sign": "\u0915\u093f",
    "an ideograph with its variant": "葛\U000e0100",
}


@pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS.keys())
def test_a_cut_never_falls_inside(cluster: str) -> None:
    for filling in range(TEXT_UNITS - units(cluster), TEXT_UNITS + 1):
        text = "あ" * filling + cluster + "あ" * 10
        parts = split_text(text)
        assert "".join(parts) == text
        assert any(cluster in part for part in parts)


TEXTS = st.text(
    st.sampled_from([*"".join(CLUSTERS.values()), "a", "あ", "\n", "\r", " "]), min_size=1
) | st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@settings(max_examples=60, deadline=None)
@given(TEXTS, st.integers(min_value=101, max_value=120))
def test_joined_parts_are_the_text_and_each_fits(text: str, most: int) -> None:
    parts = split_text(text * 30, most=most)
    assert "".join(parts) == text * 30
    assert all(0 < units(part) <= most for part in parts)


def test_texts_sdk_objects_json_and_lists_of_them() -> None:
    quick = QuickReply(items=[QuickReplyItem(action=MessageAction(label="はい", text="はい"))])
    messages = to_messages(
        "こんにちは",
        [
            TextMessage(text="ね", quick_reply=quick),
            (StickerMessage(package_id="446", sticker_id="1988"),),
        ],
        {"type": "text", "text": "そのまま", "quickReply": quick},
    )
    for message in messages:
        line_openapi.check_messaging("Message", message)
    assert [message["type"] for message in messages] == ["text", "text", "sticker", "text"]
    for message in (messages[1], messages[3]):
        assert message["quickReply"]["items"][0]["action"]["text"] == "はい"
    assert "quoteToken" not in messages[1]


def test_a_long_text_message_is_split_like_a_text() -> None:
    quick = QuickReply(items=[QuickReplyItem(action=MessageAction(label="はい", text="はい"))])
    long = TextMessage(text="あ" * 5_001, quick_reply=quick, quote_token="q")
    first, second = to_messages(long)
    assert (len(first["text"]), first.keys() & {"quoteToken", "quickReply"}) == (
        *(5_000, {"quoteToken"}),
    )
    assert (second["text"], second.keys() & {"quoteToken", "quickReply"}) == ("あ", {"quickReply"})


def test_five_messages_at_the_most() -> None:
    assert len(to_messages(*"12345")) == 5
    with pytest.raises(BotError, match="messages in one send"):
        to_messages(*"123456")
    with pytest.raises(BotError, match="messages in one send"):
        to_messages("あ" * 25_001)


@pytest.mark.parametrize(
    "item",
    [
        None,
        5,
        b"bytes",
        TextMessage,
        {"type": "text", "text": datetime.now(UTC)},
        {"type": "text", "text": b"bytes"},
        {"type": "text", "text": ObjectId()},
        {"type": "text", "text": "\ud83d"},
        {"type": "text", "x": float("nan")},
        {"type": "text", "x": {1, 2}},
    ],
)
def test_what_is_no_json_object_is_refused_at_once(item: Any) -> None:
    with pytest.raises(BotError) as caught:
        to_messages(item)
    assert caught.value.reason == "invalid message"


BUBBLE = {"type": "flex", "altText": "ご予約", "contents": {"type": "bubble"}}


def test_a_message_that_line_refuses_raises_with_its_property() -> None:
    with pytest.raises(WrongMessage) as caught:
        talk_on().reply("はい", BUBBLE)
    message = "At least one block must be specified"
    assert caught.value.details == [{"message": message, "property": "messages[1].contents"}]
    assert str(caught.value) == f"messages[1].contents: {message}"


def test_what_may_be_new_at_line_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    talk = talk_on()
    for _ in range(3):
        talk.reply({"type": "text", "text": "はい", "mood": "秘密"})
    (told,) = caplog.messages
    assert "messages[].mood" in told
    assert "秘密" not in told


def test_send_check_off_takes_every_message() -> None:
    talk = talk_on(check=SEND_CHECKS["off"])
    talk.reply(BUBBLE)
    (effect,) = talk.decision().effects
    assert effect["messages"] == [BUBBLE]
