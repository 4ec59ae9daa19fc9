"""The promises of docs/how-to/change-a-bot.md, checked with the real processes.

Each test runs one version of a bot, lets conversations wait, and runs another version on the same
database.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from linedesk.launch.stage import DATABASE
from linedesk.operate.dead_letters import explained
from linedesk.store.documents import Document
from linedesk.store.records.timers import RUN_AT
from linesim import Sim
from tests.real_stack import RealStack, real_stack
from tests.waiting import eventually

pytestmark = pytest.mark.long

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "change-a-bot.md").read_text("utf-8")
BLOCKS = dict(re.findall(r"^```python\n# (\w+)\.py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
HEAD = """
from linebot.v3.webhooks import MessageEvent, TextMessageContent
from linedesk import Bot, LineAway
"""
# Does what its user says, in the words of Python.
OBEYS = f"""{HEAD}
bot = Bot()

@bot.add(MessageEvent, message=TextMessageContent)
def text(event, talk):
    exec(event.message.text)

@bot.timer("soup")
def soup(event, talk):
    talk.push("old soup")
"""
TELLS = f"""{HEAD}
bot = Bot()

@bot.add(MessageEvent)
def text(event, talk):
    talk.reply(f"state {{talk.state}}, data {{talk.data}}")
"""
OF_MEMBERS = OBEYS.replace("Bot()", "Bot(per_member=True)")


class Desk:
    """The real processes, one user, and the versions of a bot that run one after the other."""

    def __init__(self, stack: RealStack, folder: Path) -> None:
        self.stack = stack
        self._folder = folder
        self.user = stack.sim.add_user("花子")

    @property
    def sim(self) -> Sim:
        return self.stack.sim

    def runs(self, bot: str) -> None:
        """Start the dispatcher with this version."""
        module = f"bot_{uuid.uuid4().hex}"
        (self._folder / f"{module}.py").write_text(bot, "utf-8")
        self.stack.play(f"{module}:bot", PYTHONPATH=f"{self._folder}")

    def sends(self, text: str, group: Any = None) -> None:
        """Deliver a message of the user."""
        self.stack.deliver(self.sim.drafts.text(self.user, text, chat=group))

    def says(self, text: str, group: Any = None) -> list[str | None]:
        """Deliver a message of the user, and return the bot's answers."""
        chat = group or self.user
        before = len(self.sim.answers(chat))
        self.sends(text, group)
        self.stack.wait_until_quiet()
        return self.answers(chat)[before:]

    def later(self, **time: float) -> list[str | None]:
        """Move the time, and return what the bot sends meanwhile."""
        before = len(self.sim.answers(self.user))
        self.stack.move_to(self.stack.now() + timedelta(**time))
        return self.answers(self.user)[before:]

    def answers(self, chat: Any) -> list[str | None]:
        return [bubble.text for bubble in self.sim.answers(chat)]

    def conversation(self) -> Document:
        found = self.stack.database["conversations"].find_one({"key": self.user.user_id})
        return found or {}

    def timers(self) -> list[str]:
        rows = self.stack.database["schedule"].find({RUN_AT: {"$ne": None}}).sort("_id")
        return [row["name"] for row in rows]

    def causes(self) -> list[str]:
        """The causes of the dead letters so far."""
        letters = self.stack.database["deadletters"].find({"replayedAt": None}).sort("firstAt")
        return [explained(letter) for letter in letters]

    def command(self, *arguments: str) -> str:
        """Run a command of linedesk, and return what it prints."""
        environ = {"PATH": os.environ["PATH"], "MONGODB_URI": self.stack.mongod.uri}
        return subprocess.run(
            [sys.executable, "-m", "linedesk", *arguments],
            env={**environ, "MONGODB_DATABASE": DATABASE},
            cwd=self._folder,
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout


@pytest.fixture(scope="module")
def shared_stack() -> Iterator[RealStack]:
    with real_stack() as stack:
        yield stack


@pytest.fixture
def desk(shared_stack: RealStack, tmp_path: Path) -> Desk:
    shared_stack.clear()
    return Desk(shared_stack, tmp_path)


def test_a_timer_without_a_handler_is_a_dead_letter_until_it_is_replayed_in_a_version_that_has_one(
    desk: Desk,
) -> None:
    desk.runs(OBEYS)
    # At no time of the day does the daily timer fire within the next minute.
    daily = (desk.stack.now() + timedelta(hours=12)).astimezone(ZoneInfo("Asia/Tokyo"))
    desk.says(f"talk.after(60, 'soup'); talk.every('{daily:%H:%M}', 'menu')")
    desk.runs(TELLS)
    assert desk.later(seconds=61) == []
    assert desk.causes() == ["handler: NoTimerHandler"]
    assert desk.says("?") == ["state None, data {}"]
    for days in (1, 2):
        desk.later(days=1)
        assert desk.causes() == ["handler: NoTimerHandler"] * (1 + days)
    assert desk.timers() == ["menu"]
    # Going back.
    desk.runs(OBEYS)
    assert desk.command("dead", "list", "--cause", "NoTimerHandler").count("NoTimerHandler") == 3
    desk.command("dead", "replay", "--cause", "NoTimerHandler", "--yes")
    eventually(lambda: desk.answers(desk.user)[-1] == "old soup")
    desk.stack.wait_until_quiet()
    assert desk.causes() == ["handler: NoTimerHandler"] * 2


def test_after_a_switch_to_per_member_the_groups_state_is_not_read_and_its_timers_fire(
    desk: Desk,
) -> None:
    group = desk.sim.add_group("家族", members=[desk.user])
    desk.runs(OBEYS)
    desk.says("talk.state = 'size'; talk.data['a'] = 1; talk.after(60, 'soup')", group)
    desk.runs(OF_MEMBERS)
    assert desk.says("talk.cancel('soup'); talk.reply(str(talk.state))", group) == ["None"]
    assert desk.timers() == ["soup"]
    desk.later(seconds=61)
    assert desk.answers(group)[-1] == "old soup"
    desk.runs(TELLS)
    assert desk.says("?", group) == ["state size, data {'a': 1}"]


def test_the_pages_new_version_continues_what_its_old_version_began(desk: Desk) -> None:
    desk.runs(BLOCKS["shop_1"])
    assert desk.says("シャツ") == ["サイズは？"]
    desk.runs(BLOCKS["shop"])
    assert desk.says("M") == ["Mサイズで承りました。"]
    assert desk.conversation()["data"] == {"version": 2, "order": {"size": "M"}}
    assert desk.timers() == ["news"]
    assert desk.later(days=1) == []
    assert (desk.timers(), desk.causes()) == ([], [])
    # Going back amid an order.
    assert desk.says("靴") == ["サイズは？"]
    desk.runs(BLOCKS["shop_1"])
    assert desk.says("M") == ["サイズは？"]
    # In the hour before 18:00 in Japan the day's news come first.
    assert desk.later(seconds=3601)[-1:] == ["ご注文の途中です。"]
    assert desk.causes() == ["handler: NoTimerHandler"]
