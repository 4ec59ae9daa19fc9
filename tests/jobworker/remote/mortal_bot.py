"""A bot for worker processes that die: `die` ends its process, and it repeats all else."""

import os
from typing import Any

from jobworker.bot.talk import Talk
from linedesk import Bot

bot = Bot()


@bot.default()
def answer(event: Any, talk: Talk) -> None:
    text = str(talk.raw["message"]["text"])
    if text == "die":
        os._exit(9)
    talk.reply(text)


@bot.failed
def sorry(event: Any, talk: Talk) -> None:
    talk.reply("申し訳ありません。")
