"""The bot of the chaos suite, with plain handlers and with async ones, and its expected answers.

The last digits of a message decide the bot's actions: most messages get a reply, some a push, some
both. Some handlers fail at first, and some are slow. This module also adds the points at which a
run stops or kills a dispatcher.
"""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from linebot.v3.webhooks import MessageEvent, TextMessageContent

from linedesk import Bot, Talk
from tests.chaos import points
from tests.chaos.chaos_timers import add_timers, set_timers

points.install()
bot, async_bot = Bot(), Bot()
add_timers(bot)
add_timers(async_bot)
_failed: set[str] = set()


def expected(event: Mapping[str, Any]) -> Sequence[str]:
    """The bot's answers to one event, each exactly once."""
    message = event.get("message")
    if event.get("type") != "message" or not isinstance(message, Mapping):
        return []
    text = str(message.get("text"))
    return [text, f"{text}+"] if number_of(text) % 7 == 3 else [text]


def number_of(text: str) -> int:
    return int(text.rpartition("-")[2])


@bot.add(MessageEvent, message=TextMessageContent, backoff=0.5)
def answer(event: MessageEvent, talk: Talk) -> None:
    text = event.message.text
    number = number_of(text)
    if number % 11 == 5 and text not in _failed:
        _failed.add(text)
        raise RuntimeError("a handler that fails once in each process")
    if number % 13 == 6:
        threading.Event().wait(0.05)
    talk.data["count"] = talk.data.get("count", 0) + 1
    if number % 5 == 2:
        talk.push(text)
    else:
        talk.reply(text)
    if number % 7 == 3:
        talk.push(f"{text}+")
    set_timers(text, number, talk)


@async_bot.add(MessageEvent, message=TextMessageContent, backoff=0.5)
async def answer_later(event: MessageEvent, talk: Talk) -> None:
    await asyncio.sleep(number_of(event.message.text) % 10 / 20)
    answer(event, talk)
