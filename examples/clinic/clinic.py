"""A clinic's bot: bookings with a reminder, news, photos, slow answers, and a word in groups."""

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from linebot.v3.webhooks import FollowEvent, ImageMessageContent, MessageEvent, PostbackEvent

from linedesk import Bot, ContentGone, Talk, TimerEvent

bot = Bot(settings={"photos": "photos"})

JAPAN = ZoneInfo("Asia/Tokyo")
DAY, SUNDAY = timedelta(days=1), 6
HOURS = "診療時間は月〜土の9:00〜18:00です。"
GUIDE = "「予約」「キャンセル」「質問 …」と送ってください。写真も送れます。"
NEWS = {
    "news:week": ("月 12:00", f"今週の{HOURS}"),
    "news:month": ("毎月1日 9:00", "今月の健康診断を受け付けています。「予約」と送ってください。"),
}


@bot.add(FollowEvent)
def welcome(event: FollowEvent, talk: Talk) -> None:
    for name, (rule, _) in NEWS.items():
        talk.every(rule, name)
    talk.reply(f"みなと医院です。{GUIDE}")


@bot.timer("news")
def news(event: TimerEvent, talk: Talk) -> None:
    talk.push(NEWS[event.name][1])


# Defined first, so in groups it takes each mention; with mentioned=True the others are for 1:1.
@bot.add(MessageEvent, mentioned=True, when=lambda event, talk: talk.key != talk.user_id)
def in_group(event: MessageEvent, talk: Talk) -> None:
    name = talk.mention(talk.user_id) + " さん、" if talk.user_id else ""
    talk.reply(name + f"{HOURS}ご予約は1:1のトークでお願いします。")


@bot.add(MessageEvent, text="予約", mentioned=True)
def begin(event: MessageEvent, talk: Talk) -> None:
    ask(talk, "下のボタンで日時を選んでください。")


@bot.add(PostbackEvent, postback="action=pick", state="booking")
def pick(event: PostbackEvent, talk: Talk) -> None:
    visit = moment_of(event.postback.params["datetime"])
    if visit < talk.now or visit.weekday() == SUNDAY or not 9 <= visit.hour < 18:
        ask(talk, f"{HOURS}ほかの日時を選んでください。")
        return
    talk.expect("booking", within=600)
    talk.reply(confirmation(visit, picker(talk)))


@bot.add(PostbackEvent, postback="action=book", state="booking")
def book(event: PostbackEvent, talk: Talk) -> None:
    visit = moment_of(talk.postback["at"])
    talk.state = None
    talk.data["visit"] = visit
    talk.cancel("reminder")
    reminder = (visit - DAY).replace(hour=18, minute=0)
    if reminder > talk.now:
        talk.at(reminder, "reminder")
    talk.reply(f"{in_words(visit)}に承りました。")


@bot.add(PostbackEvent, postback="action=stop", state="booking")
def stop(event: PostbackEvent, talk: Talk) -> None:
    talk.state = None
    talk.reply("ご予約をやめました。")


@bot.timeout("booking")
def too_late(event: TimerEvent, talk: Talk) -> None:
    talk.push("またいつでも「予約」と送ってください。")


@bot.add(PostbackEvent)
def old_button(event: PostbackEvent, talk: Talk) -> None:
    talk.reply("このボタンは期限切れです。もう一度「予約」と送ってください。")


@bot.timer("reminder")
def remind(event: TimerEvent, talk: Talk) -> None:
    talk.push(f"ご予約の{in_words(talk.data['visit'])}にお待ちしております。")


@bot.add(MessageEvent, text="キャンセル", mentioned=True)
def cancel(event: MessageEvent, talk: Talk) -> None:
    visit = talk.data.pop("visit", None)
    talk.cancel("reminder")
    is_ahead = visit is not None and visit > talk.now
    talk.reply("ご予約を取り消しました。" if is_ahead else "ご予約はありません。")


@bot.add(MessageEvent, message=ImageMessageContent, mentioned=True)
def keep(event: MessageEvent, talk: Talk) -> None:
    folder = Path(talk.settings["photos"])
    folder.mkdir(exist_ok=True)
    try:
        talk.content(event.message, folder / f"{event.message.id}.jpg")
    except ContentGone:
        return  # the user has unsent it
    talk.reply("写真をお預かりしました。")


@bot.add(MessageEvent, text=re.compile("^質問"), mentioned=True, limit=120.0)
def answer(event: MessageEvent, talk: Talk) -> None:
    talk.reply(ask_model(event.message.text, timeout=90))


def ask_model(question: str, *, timeout: float) -> str:
    """Stands in for a language model, which may take a minute and more."""
    return f"「{question}」については、診察のときに医師にお尋ねください。"


@bot.add(MessageEvent, mentioned=True)
def guide(event: MessageEvent, talk: Talk) -> None:
    talk.reply(GUIDE)


@bot.failed
def sorry(event: Any, talk: Talk) -> None:
    if talk.reply_token:
        talk.reply("申し訳ありません。うまくいきませんでした。お電話でご連絡ください。")


def ask(talk: Talk, words: str) -> None:
    talk.expect("booking", within=600)
    choice = {"items": [{"type": "action", "action": picker(talk)}]}
    talk.reply({"type": "text", "text": words, "quickReply": choice})


def picker(talk: Talk) -> dict[str, str]:
    today = talk.now.astimezone(JAPAN).date()
    action = {"type": "datetimepicker", "label": "日時を選ぶ", "data": "action=pick"}
    bounds = {"min": f"{today + DAY}T09:00", "max": f"{today + 60 * DAY}T17:59"}
    return {**action, "mode": "datetime", **bounds}


def confirmation(visit: datetime, another: dict[str, str]) -> dict[str, Any]:
    words, at = f"{in_words(visit)}でよろしいですか？", f"{visit:%Y-%m-%dT%H:%M}"
    yes = {"type": "postback", "label": "予約する", "data": f"action=book&at={at}"}
    no = {"type": "postback", "label": "やめる", "data": "action=stop"}
    buttons = [{"type": "button", "action": action} for action in (yes, another, no)]
    parts = [{"type": "text", "text": words, "wrap": True}, *buttons]
    body = {"type": "box", "layout": "vertical", "contents": parts}
    return {"type": "flex", "altText": words, "contents": {"type": "bubble", "body": body}}


def moment_of(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=JAPAN)


def in_words(moment: datetime) -> str:
    return f"{moment.astimezone(JAPAN):%-m月%-d日%-H:%M}"
