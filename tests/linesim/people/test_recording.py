"""A chat as a test for BotTest: a real pytest runs the file against a bot of linedesk, which does
what the bot server of the recorded chat did.
"""

import inspect
import re
import sys
from dataclasses import replace

import pytest

from linesim.model.errors import NotPossible
from linesim.model.events import standby
from linesim.people.recording import as_test
from tests.waiting import ran

BOT = """
from linebot.v3.webhooks import UnfollowEvent, UnsendEvent
from linedesk import Bot

bot = Bot()
CARD = {"type": "sticker", "packageId": "446", "stickerId": "1988"}


@bot.default()
def any_other(event, talk):
    if "replyToken" not in talk.raw:
        return
    if "contentProvider" in talk.raw.get("message", {}):
        assert talk.content(event.message).size > 10_000
    talk.reply(told(talk.raw), CARD)
    if told(talk.raw).isdecimal():
        talk.after(int(told(talk.raw)), "late")


@bot.add(UnfollowEvent)
@bot.add(UnsendEvent)
def gone(event, talk):
    talk.push("gone")


@bot.timer("late")
def late(event, talk):
    talk.push(f"late {talk.state}")


"""


def told(event):
    found = event.get("message", event)
    return found.get("text") or f"{found['type']} {event.get('postback')}"


@pytest.fixture
def talking(sim, bot, line):
    """Delivers an event, and waits for that many messages of the bot in the chat."""

    def handle(event):
        to = event["source"].get("groupId") or event["source"]["userId"]
        if event["type"] == "unsend":
            line.push(to, "gone")
        if "replyToken" in event:
            card = {"type": "sticker", "packageId": "446", "stickerId": "1988"}
            body = {"messages": [{"type": "text", "text": told(event)}, card]}
            line.post("/v2/bot/message/reply", {"replyToken": event["replyToken"], **body})

    bot.handle = handle

    def talking(event, count=2):
        chat = event["source"].get("groupId") or event["source"]["userId"]
        before = len(sim.answers(chat))
        sim.deliver(event)
        sim.wait_for(lambda: len(sim.answers(chat)) == before + count)

    return talking


@pytest.fixture
def failing(tmp_path):
    """The numbers of those files, each beside its bot, that fail in one run of pytest."""

    def failing(*pairs):
        for number, (program, code) in enumerate(pairs):
            (tmp_path / f"mybot{number}.py").write_text(program + inspect.getsource(told))
            text = code.replace("from mybot ", f"from mybot{number} ")
            (tmp_path / f"test_{number}.py").write_text(text)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        ended = ran(command, cwd=tmp_path)
        assert "passed" in ended.stdout, ended.stdout
        return [int(found) for found in re.findall(r"FAILED test_(\d)", ended.stdout)]

    return failing


@pytest.fixture
def code_of(sim):
    sim.platform.options = replace(sim.platform.options, bot="mybot:bot")
    return lambda chat: as_test(sim.platform, chat)


NASTY = "'''\"\"\"\\\n# {x} \u202e😀"


def test_a_chat_of_every_action_passes_and_fails_with_another_bot(
    sim, line, taro, talking, code_of, failing
):
    drafts = sim.drafts
    taro.name = NASTY
    talking(drafts.follow(taro))
    talking(drafts.text(taro, NASTY))
    for kind in ("image", "video", "audio"):
        talking(drafts.medium(kind, taro))
    talking(drafts.sticker(taro, keywords=["love"]))
    talking(drafts.location(taro))
    talking(drafts.postback(taro, "a=1", params={"date": "2027-01-31"}))
    talking(drafts.text(taro, "間違い"))
    talking(drafts.unsend(sim.chat(taro)[-3].message_id, taro), 1)
    talking(drafts.text(taro, "60"))
    sim.advance(60)
    line.push(taro.user_id, "late None")
    sim.advance(86_400)
    talking(drafts.unfollow(taro), 0)
    talking(drafts.follow(taro))
    code = code_of(taro.user_id)
    assert "Actions played: 13; not played: 0." in code
    assert "assert said(kit.advance(60)) == ['late None']" in code
    # Without a move of the clock a slow handler may be the reason.
    for bubble in sim.chat(taro):
        bubble.ahead = 0.0
    waited = code_of(taro.user_id)
    assert "assert said(kit.says(U1, '60'), kit.advance(60)) == [" in waited
    changes = (("after(int", "after(1 + int"), ('"gone"', '"?"'), ("1988", "1989"))
    changed = [BOT.replace(old, new) for old, new in changes]
    assert failing((BOT, code), (BOT, waited), *((bot, code) for bot in changed)) == [2, 3, 4]


def test_a_group_with_its_members_and_a_mention(sim, taro, hanako, talking, code_of, failing):
    group = sim.add_group("皆", [taro], present=False)
    talking(sim.drafts.join(group))
    talking(sim.drafts.member_joined(group, hanako))
    talking(sim.drafts.text(hanako, "@linedesk やあ", chat=group))
    talking(sim.drafts.member_left(group, taro), 0)
    talking(sim.drafts.leave(group), 0)
    code = code_of(group.chat_id)
    assert "'isSelf': True" in code
    assert failing((BOT, code)) == []


def test_what_cannot_be_played_is_told(sim, bot, line, taro, talking):
    with pytest.raises(NotPossible):
        as_test(sim.platform, taro.user_id)
    line.push(taro.user_id, "お知らせ")
    talking(sim.drafts.medium("image", taro))
    talking(sim.drafts.unsend(sim.chat(taro)[1].message_id, taro), 1)
    sim.deliver(standby(sim.drafts.text(taro, "待機")))
    bot.status = 500
    sim.say(taro, "届かない")
    code = as_test(sim.platform, taro.user_id)
    assert "Actions played: 1; not played: 3." in code
    assert "# Not expected: a message of the bot" in code
    assert "# Not played: 'unsend', since the kit names no media by their ids." in code
    assert "# Not played: 'text', the bot did not get it." in code
    assert "# Not played: 'text', the bot was on standby." in code
    assert "届かない" not in code
