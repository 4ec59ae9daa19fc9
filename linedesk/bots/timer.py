"""The timer: answers a number of seconds at once, and again when they have passed.

In a group the timers belong to the group: any member sets them, and any member cancels them all.
"""

from __future__ import annotations

import re
import unicodedata

from linebot.v3.webhooks import (
    FollowEvent,
    JoinEvent,
    LeaveEvent,
    MessageEvent,
    TextMessageContent,
    UnfollowEvent,
)

from linedesk import Bot, Talk, TimerEvent

bot = Bot(profiles="later")

MOST_SECONDS = 30 * 24 * 3600
# As many as one event can cancel.
MOST_WAITING = 100

HELP = (
    "秒数を数字で送ってください。たとえば「180」で、180秒後にお知らせします。"
    "「キャンセル」で、待っているタイマーをすべて止めます。"
)
WELCOME = f"タイマーです。{HELP}"
OUT_OF_RANGE = f"すみません、1から{MOST_SECONDS}（30日）までの整数でお願いします。"
TOO_MANY = f"すみません、一度に待てるタイマーは{MOST_WAITING}個までです。"
NONE_WAITING = "待っているタイマーはありません。"

# After NFKC, which makes ASCII of full-width digits, signs and spaces. Keyboards write a minus in
# many ways, the long vowel mark among them.
_NUMBER = re.compile(
    r"(?P<minus>[-−–—‐ー]?)\s*\+?(?P<whole>\d{1,3}(?:,\d{3})+|\d+)(?P<part>\.\d*)?\s*秒?", re.ASCII
)


@bot.add(MessageEvent, message=TextMessageContent)
def text(event: MessageEvent, talk: Talk) -> None:
    words = unicodedata.normalize("NFKC", event.message.text).strip().rstrip("。!")
    if words == "キャンセル":
        cancel(talk)
    elif number := _NUMBER.fullmatch(words):
        start(seconds_of(number), talk)
    else:
        talk.reply(HELP)


@bot.add(MessageEvent)
def anything_else(event: MessageEvent, talk: Talk) -> None:
    talk.reply(HELP)


@bot.add(FollowEvent)
@bot.add(JoinEvent)
def welcome(event: FollowEvent | JoinEvent, talk: Talk) -> None:
    talk.reply(WELCOME)


@bot.add(UnfollowEvent)
@bot.add(LeaveEvent)
def goodbye(event: UnfollowEvent | LeaveEvent, talk: Talk) -> None:
    stop_all(talk)
    talk.forget()


@bot.timer("ring")
def ring(event: TimerEvent, talk: Talk) -> None:
    talk.data["waiting"] = [name for name in waiting(talk) if name != event.name]
    talk.push(f"{event.data['seconds']}秒経ちました")


def start(seconds: int | None, talk: Talk) -> None:
    """Set one more timer, if it can be."""
    if seconds is None:
        talk.reply(OUT_OF_RANGE)
    elif len(waiting(talk)) >= MOST_WAITING:
        talk.reply(TOO_MANY)
    else:
        # Named by its event: two timers of the same length have different names.
        name = f"ring:{talk.event_id}"
        talk.after(seconds, name, seconds=seconds)
        talk.data["waiting"] = [*waiting(talk), name]
        talk.reply(f"{seconds}秒後にお知らせします")


def cancel(talk: Talk) -> None:
    """Stop all timers and confirm it."""
    count = stop_all(talk)
    talk.reply(f"{count}個のタイマーを止めました。" if count else NONE_WAITING)


def stop_all(talk: Talk) -> int:
    """Stop all waiting timers; returns their number."""
    names = waiting(talk)
    for name in names:
        talk.cancel(name)
    talk.data.pop("waiting", None)
    return len(names)


def waiting(talk: Talk) -> list[str]:
    """The names of the timers that have not fired yet."""
    names: list[str] = talk.data.get("waiting", [])
    return names


def seconds_of(number: re.Match[str]) -> int | None:
    """The seconds in the text; None if they are out of range."""
    digits = number["whole"].replace(",", "").lstrip("0")
    too_long = len(digits) > len(str(MOST_SECONDS))
    if number["minus"] or not digits or too_long or (number["part"] or "").strip(".0"):
        return None
    return int(digits) if int(digits) <= MOST_SECONDS else None
