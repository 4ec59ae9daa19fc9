"""A bot of the test kit's own tests, with a bit of everything."""

from typing import Any

from linebot.v3.webhooks import MessageEvent, TextMessageContent

from linedesk import Bot, Talk, TimerEvent

bot = Bot(per_member=True, settings={"step_seconds": 60.0})


@bot.add(MessageEvent, message=TextMessageContent)
def text(event: Any, talk: Talk) -> None:
    {
        "count": count,
        "name": ask_name,
        "daily": lambda talk: talk.every("07:30", "morning"),
        "stop": lambda talk: talk.cancel("morning"),
        "fail": fail,
    }.get(event.message.text, lambda talk: talk.reply(f"聞こえました：{event.message.text}"))(talk)


def count(talk: Talk) -> None:
    """Three timers, each set by the one before."""
    talk.data["count"] = 0
    talk.after(talk.settings["step_seconds"], "step", of=3)
    talk.reply("数えます")


@bot.timer("step")
def step(event: TimerEvent, talk: Talk) -> None:
    talk.data["count"] += 1
    talk.push(str(talk.data["count"]))
    if talk.data["count"] < event.data["of"]:
        talk.after(talk.settings["step_seconds"], "step", **event.data)


@bot.timer("morning")
def morning(event: TimerEvent, talk: Talk) -> None:
    talk.push("おはようございます")


def ask_name(talk: Talk) -> None:
    talk.expect("asking_name", within=300)
    talk.reply("お名前は？")


@bot.add(MessageEvent, message=TextMessageContent, state="asking_name")
def name(event: Any, talk: Talk) -> None:
    talk.state = None
    talk.data["name"] = event.message.text
    talk.reply(f"{event.message.text}さんですね")


@bot.timeout("asking_name")
def no_name(event: TimerEvent, talk: Talk) -> None:
    talk.push("また今度")


def fail(talk: Talk) -> None:
    talk.reply("これは届かない")
    talk.data["lost"] = True
    talk.after(1, "step", of=1)
    raise RuntimeError("as planned")
