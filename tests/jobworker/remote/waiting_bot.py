"""A bot for worker processes of tests: it answers once a file is there."""

from pathlib import Path
from typing import Any

from linedesk import Bot
from tests.waiting import eventually

bot = Bot(settings={"answer_when": ""})


@bot.default()
def answer(event: Any, talk: Any) -> None:
    """Wait for the file that the settings name; without one answer at once."""
    path = talk.settings["answer_when"]
    if path:
        Path(path).with_suffix(".begun").touch()
        eventually(Path(path).exists, seconds=30)
    talk.reply("はい")
