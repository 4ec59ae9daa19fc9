"""The simulator's webhooks: LINE's form, signed, recorded, and readable for the SDK."""

import json
import socket
import threading
from itertools import pairwise

import pytest
import requests
from linebot.v3 import WebhookParser
from linebot.v3.exceptions import InvalidSignatureError
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


def test_a_follow_says_whether_it_ends_a_block(sim, bot, taro):
    sim.follow(taro)
    assert bot.last.events[0]["follow"] == {"isUnblocked": False}
    sim.block(taro)
    sim.follow(taro)
    assert bot.last.events[0]["follow"] == {"isUnblocked": True}


def test_a_wrong_secret_does_not_verify(sim, bot, taro):
    sim.say(taro, "やあ")
    with pytest.raises(InvalidSignatureError):
        WebhookParser("another").parse(bot.last.body.decode(), bot.last.headers["x-line-signature"])


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


def test_several_events_go_in_one_post(sim, bot, taro, hanako):
    delivery = sim.deliver(
        sim.drafts.text(taro, "1"), sim.drafts.text(hanako, "2"), sim.drafts.unfollow(taro)
    )
    assert len(bot.received) == 1
    assert [event.type for event in parsed(sim, bot.last)] == ["message", "message", "unfollow"]
    assert len(set(delivery.event_ids)) == 3


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


def test_a_hand_made_event_of_an_unknown_type_can_be_replied_to(sim, line, taro):
    source = {"type": "user", "userId": taro.user_id}
    made = events.event("sneeze", now=sim.platform.clock.time(), source=source)
    sim.deliver({**made, "replyToken": "f" * 32})
    assert line.reply("f" * 32).status_code == 200
    assert sim.replies_to(made["webhookEventId"])


def test_event_ids_are_ulids_of_the_events_time(sim, bot, taro, clock):
    early = sim.say(taro, "1").event_ids[0]
    clock.advance(1)
    late = sim.say(taro, "2").event_ids[0]
    assert len(early) == 26
    assert early < late


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


def test_a_failed_delivery_becomes_delivered_by_its_redelivery(sim, bot, taro):
    bot.status = 503
    delivery = sim.say(taro, "やあ")
    bot.status = 200
    sim.redeliver(delivery)
    assert [bubble.fate for bubble in sim.chat(taro)] == ["delivered"]


def test_waiting_ends_with_the_change_and_gives_up_in_time(sim, line, bot, taro):
    bot.handle = lambda event: line.reply(event["replyToken"])
    sim.say(taro, "やあ")
    assert [bubble.text for bubble in sim.wait_for(lambda: sim.answers(taro))] == ["はい"]
    with pytest.raises(TimeoutError):
        sim.wait_for(lambda: len(sim.answers(taro)) == 2, timeout=0.05)


def test_neither_secret_nor_token_nor_text_shows_in_a_repr(sim, line, taro):
    delivery = sim.say(taro, "秘密の話")
    line.reply(delivery.events[0]["replyToken"], "内緒の返事")
    shown = repr([sim.platform.options, sim.calls, sim.deliveries, sim.chat(taro)])
    for hidden in (sim.secret, sim.token, "秘密", "内緒", delivery.events[0]["replyToken"]):
        assert hidden not in shown


def test_calls_are_recorded_in_order_with_their_closest_starts(sim, line, taro):
    assert sim.closest_starts() is None
    for _ in range(3):
        line.push(taro.user_id)
    starts = [call.started for call in sim.calls]
    assert starts == sorted(starts)
    gaps = [late - early for early, late in pairwise(starts)]
    assert sim.closest_starts() == min(gaps) > 0


def test_closest_starts_are_of_one_host_and_of_the_calls_asked_for(sim, line, taro):
    message_id = sim.drafts.medium("image", taro)["message"]["id"]
    line.push(taro.user_id)
    line.get(f"/v2/bot/message/{message_id}/content")
    assert sim.closest_starts() is None
    line.push(taro.user_id)
    assert sim.closest_starts() == sim.calls[2].started - sim.calls[0].started
    assert sim.closest_starts(after=1) is None


def test_a_simulator_leaves_no_thread_behind(bot):
    before = set(threading.enumerate())
    with linesim.running(webhook_url=bot.url) as sim:
        user = sim.add_user("太郎")
        body = {"acts": [{"act": "text", "user": user.user_id, "text": "やあ"}]}
        requests.post(f"{sim.url}/sim/deliveries", json=body, timeout=10)
    left = {thread for thread in threading.enumerate() if thread.name.startswith("linesim")}
    assert not left - before
