"""The reminder: asks every day, at a time that the user sets, whether the medicine was taken.

It asks again, a little more urgently each time, until it is answered. In a group the reminder
belongs to the group. The data of a conversation: `at` is its daily time, and `draft` the valid part
of a time while the bot asks for the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from linebot.v3.webhooks import (
    FollowEvent,
    JoinEvent,
    LeaveEvent,
    MessageEvent,
    TextMessageContent,
    UnfollowEvent,
)

from linedesk import Bot, Talk, TimerEvent
from linedesk.bots.daytime import (
    HOUR,
    MINUTE,
    RANGES,
    answer_to,
    only_a_time,
    part_of_time,
    plain,
    whole_time,
)

ASKED = "asked"
ASKING = {HOUR: "asking_hour", MINUTE: "asking_minute"}
QUESTIONS = {HOUR: "何時ですか？", MINUTE: "何分ですか？"}
# An incomplete time is dropped after this.
PATIENCE_SECONDS = 300.0

WELCOME = (
    "毎日決まった時間に「飲んだ？」と聞きます。「8時30分」のように時間を送ってください。"
    "「設定教えて」で今の設定をお知らせし、「ばいばい」で設定を削除します。"
)
NO_TIME = "時間を設定してください"
NOTHING_SET = "設定されてないですよ"
WORDS_ONLY = "すみません、言葉しかわかりません。"
AS_IT_WAS = "わかりました。設定はそのままです。"

TELL = re.compile("設定を?教えて(ください|下さい)?")
BYE = ("ばいばい", "バイバイ")
NEVER_MIND = ("キャンセル", "やめる", "やめて", "中止")


def check(settings: Mapping[str, Any]) -> None:
    """Raises ValueError for settings with which no timer could fire."""
    try:
        ZoneInfo(settings["timezone"])
    except (KeyError, ValueError, OSError) as error:
        raise ValueError("timezone must be a time zone such as Asia/Tokyo") from error
    if not 0 < settings["again_seconds"] <= 24 * 3600:
        raise ValueError("again_seconds must be a number above 0, at most 86400")
    if not 0 <= settings["times"] <= 100:
        raise ValueError("times must be a whole number, 0 to 100")


bot = Bot(
    profiles="later",
    settings={"timezone": "Asia/Tokyo", "again_seconds": 600.0, "times": 10},
    check_settings=check,
)


# At any time.


@bot.add(MessageEvent, message=TextMessageContent)
def text(event: MessageEvent, talk: Talk) -> None:
    if not carry_out(event.message.text, talk):
        talk.reply(event.message.text if "at" in talk.data else NO_TIME)


@bot.add(MessageEvent)
def no_text(event: MessageEvent, talk: Talk) -> None:
    talk.reply(WORDS_ONLY if "at" in talk.data else NO_TIME)


@bot.add(FollowEvent)
@bot.add(JoinEvent)
def welcome(event: FollowEvent | JoinEvent, talk: Talk) -> None:
    talk.reply(WELCOME)


@bot.add(UnfollowEvent)
@bot.add(LeaveEvent)
def goodbye(event: UnfollowEvent | LeaveEvent, talk: Talk) -> None:
    delete(talk)
    talk.forget()


# While the rest of a time is being asked for.


@bot.add(MessageEvent, message=TextMessageContent, state=list(ASKING.values()))
def rest_of_time(event: MessageEvent, talk: Talk) -> None:
    asked = asked_part(talk)
    if said := whole_time(event.message.text) or answer_to(asked, event.message.text):
        take(said, talk)
    elif plain(event.message.text) in NEVER_MIND:
        talk.state = None
        talk.data.pop("draft", None)
        talk.reply(AS_IT_WAS)
    elif not carry_out(event.message.text, talk):
        no_time(event, talk)


@bot.default(state=list(ASKING.values()))
def no_time(event: Any, talk: Talk) -> None:
    """Ask again without extending the time-out, after which a busy group is left alone."""
    talk.reply(QUESTIONS[asked_part(talk)])


@bot.timeout(ASKING[HOUR])
@bot.timeout(ASKING[MINUTE])
def no_answer(event: TimerEvent, talk: Talk) -> None:
    talk.data.pop("draft", None)


# The daily question.


@bot.timer("ask")
def daily(event: TimerEvent, talk: Talk) -> None:
    talk.data.pop("draft", None)
    talk.state = ASKED
    ask(1, talk)


@bot.timer("again")
def again(event: TimerEvent, talk: Talk) -> None:
    ask(event.data["asked"] + 1, talk)


@bot.add(MessageEvent, message=TextMessageContent, state=ASKED)
def answered_in_words(event: MessageEvent, talk: Talk) -> None:
    """A time among other words is an answer (8時35分に飲んだ); a time alone is a new setting."""
    if not carry_out(event.message.text, talk, read=only_a_time):
        answered(event, talk)


@bot.default(state=ASKED)
def answered(event: Any, talk: Talk) -> None:
    stop_asking(talk)
    talk.reply("よくできました")


def ask(nth: int, talk: Talk) -> None:
    """Ask the question, more urgent each time, and set the timer for the next one.

    It is not asked once the next one is due. It is not repeated when the month's quota is used up.
    """
    again_seconds = talk.settings["again_seconds"]
    talk.push("飲んだ" + "？" * nth, until=talk.now + timedelta(seconds=again_seconds))
    if nth <= talk.settings["times"] and talk.quota.left != 0:
        talk.after(again_seconds, "again", asked=nth)


def stop_asking(talk: Talk) -> None:
    """Stop: the question was answered, or the reminder ends."""
    if talk.state == ASKED:
        talk.state = None
        talk.cancel("again")


# The user's commands.


def carry_out(
    text: str, talk: Talk, *, read: Callable[[str], Mapping[str, int]] = whole_time
) -> bool:
    """Carry out the command in a text; False if it has none. `read` finds a whole time."""
    words = plain(text)
    if TELL.fullmatch(words):
        talk.reply(f"{in_words(talk)}に設定されています" if "at" in talk.data else NOTHING_SET)
    elif words in BYE:
        talk.reply("設定を削除しました。 ばいばい" if delete(talk) else NOTHING_SET)
    elif said := read(text) or part_of_time(text):
        take(said, talk)
    else:
        return False
    return True


def take(said: Mapping[str, int], talk: Talk) -> None:
    """Set the time; ask for a wrong or missing part and keep the right one."""
    stop_asking(talk)
    parts = {**talk.data.get("draft", {}), **said}
    right = {part: number for part, number in parts.items() if number in RANGES[part]}
    wrong = [part for part in RANGES if part in parts and part not in right]
    missing = [part for part in RANGES if part not in parts]
    if wrong or missing:
        talk.data["draft"] = right
        ask_for([*wrong, *missing][0], talk)
    else:
        set_time(right, talk)


def ask_for(part: str, talk: Talk) -> None:
    talk.expect(ASKING[part], within=PATIENCE_SECONDS)
    talk.reply(QUESTIONS[part])


def asked_part(talk: Talk) -> str:
    """The part of a time that the last question asked for."""
    return HOUR if talk.state == ASKING[HOUR] else MINUTE


def set_time(at: Mapping[str, int], talk: Talk) -> None:
    talk.data.pop("draft", None)
    talk.data["at"] = dict(at)
    talk.state = None
    talk.every(f"{at[HOUR]}:{at[MINUTE]:02d}", "ask", tz=talk.settings["timezone"])
    talk.reply(f"{in_words(talk)}ですね。わかりました。")


def delete(talk: Talk) -> bool:
    """End everything; False where no time was set."""
    stop_asking(talk)
    talk.state = None
    talk.data.pop("draft", None)
    if talk.data.pop("at", None) is None:
        return False
    talk.cancel("ask")
    return True


def in_words(talk: Talk) -> str:
    """The daily time in Japanese."""
    at = talk.data["at"]
    return f"{at[HOUR]}時{at[MINUTE]}分"
