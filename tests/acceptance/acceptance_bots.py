"""Bots that the acceptance tests run in the real dispatcher."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

from linebot.v3.webhooks import MessageEvent, TextMessageContent

from linedesk import Bot, Talk, TimerEvent

pusher = Bot()
counter = Bot()
waiting = Bot(settings={"go": ""})
patient = Bot()
herald = Bot()


@pusher.add(MessageEvent, message=TextMessageContent)
def push(event: MessageEvent, talk: Talk) -> None:
    for number in range(int(event.message.text)):
        # More than half of the most messages in a call: no two pushes fit into one call.
        talk.push(*[f"{number}"] * 3)


@counter.add(MessageEvent, message=TextMessageContent)
def count(event: MessageEvent, talk: Talk) -> None:
    talk.data["count"] = talk.data.get("count", 0) + 1
    talk.reply(f"{talk.data['count']}: {event.message.text}")


def repeating(odd: str, harm: Callable[[], object]) -> Bot:
    """Repeats each text; at the odd one it does harm before."""
    bot = Bot()

    @bot.add(MessageEvent, message=TextMessageContent)
    def answer(event: MessageEvent, talk: Talk) -> None:
        if event.message.text == odd:
            harm()
        talk.reply(event.message.text)

    return bot


def fail() -> None:
    raise RuntimeError("planted")


def never_return() -> None:
    threading.Event().wait(60)


echo = repeating("", never_return)
faulty = repeating("boom", fail)
stuck = repeating("stuck", never_return)
slow = repeating("考えて", lambda: threading.Event().wait(2))


@patient.add(MessageEvent, message=TextMessageContent, gather=20.0, most=3)
def together(events: list[MessageEvent], talk: Talk) -> None:
    talk.data["handled"] = [*talk.data.get("handled", ()), *(one.message.text for one in events)]
    talk.reply("、".join(event.message.text for event in events))


@herald.start_timers("news")
def begin_news(event: TimerEvent, talk: Talk) -> None:
    talk.push("はじめます")


@herald.timer("news")
def tell_news(event: TimerEvent, talk: Talk) -> None:
    talk.push("ニュース")


def until_there(file: str) -> None:
    while not Path(file).exists():
        threading.Event().wait(0.05)


@waiting.add(MessageEvent, limit=600.0)
async def wait_for_the_file(event: MessageEvent, talk: Talk) -> None:
    talk.data["n"] = talk.data.get("n", 0) + 1
    hangs = event.message.text == "hang"
    await asyncio.to_thread(until_there, "/nowhere" if hangs else talk.settings["go"])
    talk.reply(f"{talk.data['n']}")
