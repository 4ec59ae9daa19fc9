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
from linesim.model.errors import NotPossible, UnknownChat
from tests.line_openapi import check_webhook


@pytest.fixture
def group(sim, taro):
    return sim.add_group("家族", [taro])


def parsed(sim, received):
    """The SDK's events of a POST; also checks the body against LINE's own description."""
    check_webhook(json.loads(received.body))
    signature = received.headers["x-line-signature"]
    return WebhookParser(sim.secret).parse(received.body.decode(), signature)


MESSAGES = {
    "text": TextMessageContent,
    "sticker": StickerMessageContent,
    "location": LocationMessageContent,
    "image": ImageMessageContent,
    "video": VideoMessageContent,
    "audio": AudioMessageContent,
    "file": FileMessageContent,
}
CASES = [*(("user", kind) for kind in MESSAGES), ("group", "text"), ("room", "image")]


@pytest.mark.parametrize(("place", "kind"), CASES)
def test_every_kind_of_message_is_lines_own(sim, bot, taro, kind, place):
    chat = None if place == "user" else sim.add_group("皆", [taro], kind=place)
    if kind in ("sticker", "location"):
        draft = getattr(sim.drafts, kind)(taro, chat=chat)
    elif kind == "text":
        draft = sim.drafts.text(taro, "やあ😀", chat=chat)
    else:
        draft = sim.drafts.medium(kind, taro, chat=chat)
    delivery = sim.deliver(draft)
    (event,) = parsed(sim, bot.last)
    assert type(event) is MessageEvent
    assert type(event.message) is MESSAGES[kind]
    assert event.source.type == place
    assert event.source.user_id == taro.user_id
    assert event.webhook_event_id == delivery.event_ids[0]
    assert delivery.delivered


def test_the_bot_and_members_are_mentioned_by_name_in_groups_only(sim, bot, taro):
    group = sim.add_group("皆", [taro])
    text = "😀@linedesk @太郎 @All @だれか"
    sim.deliver(sim.drafts.text(taro, text, chat=group))
    (event,) = parsed(sim, bot.last)
    me, other, everyone = event.message.mention.mentionees
    assert (me.index, me.length, me.is_self) == (2, 9, True)
    assert (other.index, other.length, other.is_self, other.user_id) == (12, 3, False, taro.user_id)
    assert (everyone.type, everyone.length) == ("all", 4)
    sim.deliver(sim.drafts.text(taro, text))
    assert parsed(sim, bot.last)[0].message.mention is None


OTHERS = {
    "follow": (lambda sim, user, group: sim.follow(user), FollowEvent),
    "unfollow": (lambda sim, user, group: sim.block(user), UnfollowEvent),
    "postback": (lambda sim, user, group: sim.postback(user, "a=1"), PostbackEvent),
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
