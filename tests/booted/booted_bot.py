"""The bot on the booted machine: an echo, slow where asked, that sets a timer now and then."""

import logging
import threading

from linebot.v3.webhooks import MessageEvent, TextMessageContent

from linedesk import Bot, Talk, TimerEvent

log = logging.getLogger("bots.booted")

SLOW_SECONDS = 4.0
SLOW_WORDS = "slow handler began"
FIRE_SECONDS = 2.0

bot = Bot()


@bot.add(MessageEvent, message=TextMessageContent)
def echo(event: MessageEvent, talk: Talk) -> None:
    text = event.message.text
    if text.startswith("slow"):
        log.warning(SLOW_WORDS)
        threading.Event().wait(SLOW_SECONDS)
    talk.reply(text)
    if sets_timer(text):
        talk.after(FIRE_SECONDS, f"ring:{text}", text=text)


@bot.timer("ring")
def ring(event: TimerEvent, talk: Talk) -> None:
    talk.push(ring_text(event.data["text"]))


def sets_timer(text: str) -> bool:
    return text.rpartition("-")[2].endswith("5")


def ring_text(text: str) -> str:
    return f"{text} rings"
