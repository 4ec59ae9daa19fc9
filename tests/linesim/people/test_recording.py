"""A chat as a test for BotTest: a real pytest runs the file against a bot of linedesk, which does
what the bot server of the recorded chat did.
"""

import inspect
import subprocess
import sys
from dataclasses import replace

import pytest

from linesim.model.errors import NotPossible
from linesim.people.recording import test_of as the_test_of

BOT = """
from linebot.v3.webhooks import UnfollowEvent, UnsendEvent
from linedesk import Bot

bot = Bot()
CARD = {"type": "sticker", "packageId": "446", "stickerId": "1988"}


@bot.default()
def any_other(event, talk):
    if "replyToken" not in talk.raw:
        return
    size = 0
    if hasattr(getattr(event, "message", None), "content_provider"):
        size = len(talk.content(event.message, "x").path.read_bytes())
    talk.reply(f"{told(talk.raw)} {size}", CARD)
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
            size = 0
            if "contentProvider" in event.get("message", {}):
                content = line.get(f"/v2/bot/message/{event['message']['id']}/content")
                size = len(content.content)
            text = {"type": "text", "text": f"{told(event)} {size}"}
            card = {"type": "sticker", "packageId": "446", "stickerId": "1988"}
            body = {"replyToken": event["replyToken"], "messages": [text, card]}
            line.post("/v2/bot/message/reply", body)

    bot.handle = handle

    def talking(event, count=2):
        chat = event["source"].get("groupId") or event["source"]["userId"]
        before = len(sim.answers(chat))
        sim.deliver(event)
        sim.wait_for(lambda: len(sim.answers(chat)) == before + count)

    return talking


@pytest.fixture
def passes(sim, tmp_path):
    """Whether pytest passes the chat's file beside this bot."""

    def passes(chat, program=BOT):
        sim.platform.options = replace(sim.platform.options, bot="mybot:bot")
        (tmp_path / "mybot.py").write_text(program + inspect.getsource(told))
        (tmp_path / "test_it.py").write_text(the_test_of(sim.platform, chat))
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode in (0, 1), ran.stdout
        return ran.returncode == 0 or print(ran.stdout)

    return passes


NASTY = "'''\"\"\"\\\n# {x} \u202e😀"


def test_a_chat_of_every_action_passes_and_fails_with_another_bot(sim, line, taro, talking, passes):
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
    code = the_test_of(sim.platform, taro.user_id)
    assert "Actions played: 13; not played: 0." in code
    assert "assert said(kit.advance(60)) == ['late None']" in code
    assert passes(taro.user_id)
    for old, new in (("after(int", "after(1 + int"), ('"gone"', '"?"'), ("1988", "1989")):
        assert not passes(taro.user_id, BOT.replace(old, new))


def test_a_push_that_came_without_a_move_of_the_clock_is_expected_with_its_action(
    sim, line, taro, talking, passes
):
    talking(sim.drafts.text(taro, "60"))
    sim.advance(60)
    line.push(taro.user_id, "late None")
    for bubble in sim.chat(taro):
        bubble.ahead = 0.0
    code = the_test_of(sim.platform, taro.user_id)
    assert "assert said(kit.says(U1, '60'), kit.advance(60)) == [" in code
    assert passes(taro.user_id)


def test_a_group_with_its_members_and_a_mention(sim, taro, hanako, talking, passes):
    group = sim.add_group("皆", [taro], present=False)
    talking(sim.drafts.join(group))
    talking(sim.drafts.member_joined(group, hanako))
    talking(sim.drafts.text(hanako, "@linedesk やあ", chat=group))
    talking(sim.drafts.member_left(group, taro), 0)
    talking(sim.drafts.leave(group), 0)
    assert "'isSelf': True" in the_test_of(sim.platform, group.chat_id)
    assert passes(group.chat_id)


def test_what_cannot_be_played_is_told(sim, bot, line, taro, talking):
    with pytest.raises(NotPossible):
        the_test_of(sim.platform, taro.user_id)
    line.push(taro.user_id, "お知らせ")
    talking(sim.drafts.medium("image", taro))
    talking(sim.drafts.unsend(sim.chat(taro)[1].message_id, taro), 1)
    bot.status = 500
    sim.say(taro, "届かない")
    code = the_test_of(sim.platform, taro.user_id)
    assert "Actions played: 1; not played: 2." in code
    assert "# Not expected: a message of the bot" in code
    assert "# Not played: 'unsend', since the kit names no media by their ids." in code
    assert "# Not played: 'text', the bot did not get it." in code
    assert "届かない" not in code
