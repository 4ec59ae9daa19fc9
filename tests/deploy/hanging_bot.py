"""A bot whose handler does not return for one text, and answers all others."""

from __future__ import annotations

import threading

from linebot.v3.webhooks import MessageEvent, TextMessageContent

from linedesk import Bot, Talk

bot = Bot()


@bot.add(MessageEvent, message=TextMessageContent, backoff=1.0)
def answer(event: MessageEvent, talk: Talk) -> None:
    if event.message.text == "hang":
        threading.Event().wait(600)
    talk.reply(event.message.text)
