"""A bot whose handler does not return for one text, and answers all others."""

import threading

from linebot.v3.webhooks import MessageEvent, TextMessageContent

from linedesk import Bot, Talk

bot = Bot()


@bot.add(MessageEvent, message=TextMessageContent, backoff=1.0)
def answer(event: MessageEvent, talk: Talk) -> None:
    if event.message.text == "hang":
        # Past its limit of a second; for ever, and the dispatcher would end for its lost threads.
        threading.Event().wait(5)
    talk.reply(event.message.text)
