"""The simulator's webhooks: LINE's form, signed, recorded, and readable for the SDK."""

import json
import socket

import pytest
from linebot.v3 import WebhookParser
from linebot.v3.webhooks import (
    AudioMessageContent,
    FileMessageContent,
    FollowEvent,
    ImageMessageContent,
    JoinEvent,
    LeaveEvent,
    LocationMessageContent,
    MemberJoinedEvent,
    MemberLeftEvent,
    MessageEvent,
    PostbackEvent,
    StickerMessageContent,
    TextMessageContent,
    UnfollowEvent,
    UnsendEvent,
    VideoMessageContent,
)

import linesim
from linesim.model import events
from linesim.model.deliveries import sign
from linesim.model.errors import NotPossible, UnknownChat
from tests.line_openapi import check_webhook


@pytest.fixture
def taro(sim):
    return sim.add_user("太郎")


@pytest.fixture
def hanako(sim):
    return sim.add_user("花子")


@pytest.fixture
def group(sim, taro):
    return sim.add_group("家族", [taro])


def parsed(sim, received):
    """The SDK's events of a POST; also checks the body against LINE's own description."""
    check_webhook(json.loads(received.body))
    signature = received.headers["x-line-signature"]
    return WebhookParser(sim.secret).parse(received.body.decode(), signature)


MESSAGES = {
    "text": (lambda drafts, user, chat: drafts.text(user, "やあ😀", chat=chat), TextMessageContent),
    "sticker": (
        lambda drafts, user, chat: drafts.sticker(user, chat=chat),
        StickerMessageContent,
    ),
    "location": (
        lambda drafts, user, chat: drafts.location(user, chat=chat),
        LocationMessageContent,
    ),
    **{
        kind: (
            lambda drafts, user, chat, kind=kind: drafts.medium(kind, user, chat=chat),
            content_class,
        )
        for kind, content_class in {
            "image": ImageMessageContent,
            "video": VideoMessageContent,
            "audio": AudioMessageContent,
            "file": FileMessageContent,
        }.items()
    },
}


@pytest.mark.parametrize("kind", MESSAGES)
@pytest.mark.parametrize("place", ["user", "group", "room"])
def test_every_kind_of_message_is_lines_own(sim, bot, taro, kind, place):
    chat = None if place == "user" else sim.add_group("皆", [taro], kind=place)
    draft, content_class = MESSAGES[kind]
    delivery = sim.deliver(draft(sim.drafts, taro, chat))
    (event,) = parsed(sim, bot.last)
    assert type(event) is MessageEvent
    assert type(event.message) is content_class
    assert event.source.type == place
    assert event.source.user_id == taro.user_id
    assert event.webhook_event_id == delivery.event_ids[0]
    assert delivery.delivered


OTHERS = {
    "follow": (lambda sim, user, group: sim.follow(user), FollowEvent),
    "unfollow": (lambda sim, user, group: sim.block(user), UnfollowEvent),
    "postback": (lambda sim, user, group: sim.postback(user, "a=1"), PostbackEvent),
    "picked": (
        lambda sim, user, group: sim.postback(user, "a", params={"date": "2026-11-21"}),
        PostbackEvent,
    ),
    "join": (lambda sim, user, group: sim.deliver(sim.drafts.join(group)), JoinEvent),
    "leave": (lambda sim, user, group: sim.deliver(sim.drafts.leave(group)), LeaveEvent),
    "memberJoined": (
        lambda sim, user, group: sim.deliver(sim.drafts.member_joined(group, sim.add_user("健太"))),
        MemberJoinedEvent,
    ),
    "memberLeft": (
        lambda sim, user, group: sim.deliver(sim.drafts.member_left(group, user)),
        MemberLeftEvent,
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_every_other_event_is_lines_own(sim, bot, taro, group, kind):
    act, event_class = OTHERS[kind]
    act(sim, taro, group)
    (event,) = parsed(sim, bot.last)
    assert type(event) is event_class
    replyable = {FollowEvent, PostbackEvent, JoinEvent, MemberJoinedEvent}
    assert bool(getattr(event, "reply_token", None)) is (event_class in replyable)


def test_an_unsend_names_the_message_and_takes_its_content(sim, bot, line, taro):
    sent = sim.deliver(sim.drafts.medium("image", taro))
    message_id = sent.events[0]["message"]["id"]
    sim.unsend(taro, message_id)
    (event,) = parsed(sim, bot.last)
    assert (type(event), event.unsend.message_id) == (UnsendEvent, message_id)
    assert line.get(f"/v2/bot/message/{message_id}/content").status_code == 410
    assert sim.chat(taro)[0].unsent
    with pytest.raises(UnknownChat):
        sim.unsend(taro, message_id)


@pytest.mark.parametrize(
    ("secret", "body", "signature"),
    [
        (
            "8c570fa6dd201bb328f1c1eac23a96d8",
            '{"destination":"U8e742f61d673b39c7fff3cecb7536ef0","events":[]}',
            "GhRKmvmHys4Pi8DxkF4+EayaH0OqtJtaZxgTD9fMDLs=",
        ),
        (
            "channel_secret",
            "bodybodybodybody",
            "/gg9a+LvFevTH1sd7XCQycD7tsWclCsInj7MhBHxN7k=",
        ),
    ],
)
def test_signatures_are_lines(secret, body, signature):
    assert sign(secret, body.encode()) == signature


def test_the_connectivity_check_is_signed_and_empty(sim, bot):
    assert sim.deliver().status == 200
    assert parsed(sim, bot.last) == []
    assert json.loads(bot.last.body) == {"destination": sim.bot_user_id, "events": []}


def test_a_redelivery_repeats_the_event_and_says_so(sim, bot, taro):
    delivery = sim.say(taro, "やあ")
    sim.redeliver(delivery)
    first, again = bot.received[0].events[0], bot.received[1].events[0]
    parsed(sim, bot.last)
    assert again == {**first, "deliveryContext": {"isRedelivery": True}}
    assert first["deliveryContext"] == {"isRedelivery": False}
    assert len(sim.chat(taro)) == 1


def test_a_standby_event_has_no_token(sim, bot, taro):
    sim.deliver(events.standby(sim.drafts.text(taro, "やあ")))
    (event,) = parsed(sim, bot.last)
    assert (event.mode, event.reply_token) == ("standby", None)


@pytest.mark.parametrize(
    ("status", "delivered", "fate"), [(200, True, "delivered"), (503, False, "failed")]
)
def test_a_delivery_is_recorded_with_its_answer(sim, bot, taro, status, delivered, fate):
    bot.status = status
    delivery = sim.say(taro, "やあ")
    assert (delivery.status, delivery.delivered, delivery.error) == (status, delivered, None)
    assert delivery.milliseconds >= 0
    assert [(bubble.fate, bubble.status) for bubble in sim.chat(taro)] == [(fate, status)]
    assert sim.deliveries == [delivery]


def test_a_bot_server_that_hangs_up_or_is_not_there(sim, bot, taro):
    bot.status = None
    assert sim.say(taro, "1").error == "could_not_connect"
    sim.webhook_url = "http://127.0.0.1:1/"
    assert sim.say(taro, "2").error == "could_not_connect"
    sim.webhook_url = None
    assert sim.say(taro, "3").error == "no_webhook_url"
    assert [bubble.error for bubble in sim.chat(taro)] == [
        "could_not_connect",
        "could_not_connect",
        "no_webhook_url",
    ]


def test_a_bot_server_that_does_not_answer_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with linesim.running(webhook_url=url, webhook_timeout_seconds=0.1) as sim:
            delivery = sim.say(sim.add_user("太郎"), "やあ")
    assert (delivery.status, delivery.error) == (None, "request_timeout")


def test_what_line_would_not_let_a_user_do_is_refused(sim, taro, hanako, group):
    with pytest.raises(NotPossible, match="not a member"):
        sim.say(hanako, "やあ", chat=group)
    sim.deliver(sim.drafts.leave(group))
    with pytest.raises(NotPossible, match="not in this chat"):
        sim.say(taro, "やあ", chat=group)
    sim.block(taro)
    with pytest.raises(NotPossible, match="blocked"):
        sim.say(taro, "やあ")
    with pytest.raises(UnknownChat):
        sim.say("U" + "0" * 32, "やあ")


def test_neither_secret_nor_token_nor_text_shows_in_a_repr(sim, line, taro):
    delivery = sim.say(taro, "秘密の話")
    line.reply(delivery.events[0]["replyToken"], "内緒の返事")
    shown = repr([sim.platform.options, sim.calls, sim.deliveries, sim.chat(taro)])
    for hidden in (sim.secret, sim.token, "秘密", "内緒", delivery.events[0]["replyToken"]):
        assert hidden not in shown
