"""A bot for worker processes that die: `die` ends its process, `wait` waits for a file.

Each run of its handler is a line of the file `runs` in the folder that MORTAL_BOT names.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from jobworker.bot.talk import Talk
from linedesk import Bot

bot = Bot()


@bot.default()
def answer(event: Any, talk: Talk) -> None:
    folder, text = Path(os.environ["MORTAL_BOT"]), str(talk.raw["message"]["text"])
    with (folder / "runs").open("a") as runs:
        runs.write(f"{os.getpid()} {text}\n")
    if text == "die":
        os._exit(9)
    pause = threading.Event()
    while text == "wait" and not (folder / "go").exists():
        pause.wait(0.01)
    talk.reply(text)


@bot.failed
def sorry(event: Any, talk: Talk) -> None:
    talk.reply("申し訳ありません。")
