"""`linedesk demo`: a user chats with a bot through every real part, on this machine."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from linedesk.compose.private_mongod import server_version
from linedesk.compose.supervisor import Signals, signals_on
from linedesk.demo import scenarios
from linedesk.demo.conversation import DemoConversation
from linedesk.demo.environment import DemoEnvironment
from linedesk.demo.scenarios import Scene
from linedesk.demo.timed_events import DemoTimers
from linedesk.demo.transcript import doubles, open_console, print_legend, print_scene, print_summary
from linedesk.runtime.exit_codes import Exit
from linedesk.settings.errors import DemoFailed, DemoInterrupted


@dataclass(frozen=True)
class Show:
    """A bot's scripted conversation, and a hint for trying it."""

    scenes: Callable[[DemoConversation, DemoTimers], Iterator[Scene]]
    hint: str


SHOWS: Mapping[str, Show] = {
    "parrot": Show(scenarios.parrot_scenes, "Send any text, a photo, a sticker or a location."),
    "timer": Show(scenarios.timer_scenes, "Write 180, and move the clock ahead on the page: +1分."),
    "reminder": Show(
        scenarios.reminder_scenes, "Write 8時30分, and move the clock ahead on the page: +1時間."
    ),
}


def run_demo(bot: str, *, once: bool, port: int | None) -> int:
    """Start everything and play the bot's conversation (`once`), or serve the chat page until
    Ctrl-C.

    It always removes its processes and files. Raises DemoFailed.
    """
    console = open_console()
    signals = Signals()
    try:
        with (
            signals_on(signals),
            tempfile.TemporaryDirectory(prefix="linedesk-demo-") as folder,
            DemoEnvironment(
                Path(folder), bot=f"linedesk.bots.{bot}:bot", signals=signals, chat_port=port
            ) as stage,
        ):
            _set(stage, console)
            if once:
                _play(bot, stage, console)
            else:
                _leave_to_a_person(bot, stage, console)
    except DemoInterrupted as interruption:
        return 128 + interruption.number if once else Exit.OK
    return Exit.OK


def _set(stage: DemoEnvironment, console: Console) -> None:
    began = time.monotonic()
    stage.require_port()
    with console.status("starting MongoDB ..."), _step("starting MongoDB"):
        stage.start_mongod()
    with console.status("starting simulator, front desk and dispatcher ..."), _step("starting"):
        stage.start_rooms()
    seconds = time.monotonic() - began
    console.print(
        f"Set up in {seconds:.1f} s: MongoDB, simulator, front desk, dispatcher.", style="dim"
    )


def _play(bot: str, stage: DemoEnvironment, console: Console) -> None:
    talk, timers = DemoConversation(stage), DemoTimers(stage)
    print_legend(console)
    with console.status("playing the conversation ..."):
        for scene in SHOWS[bot].scenes(talk, timers):
            print_scene(console, scene, bot=bot)
    talk.refresh()
    timers.require_no_more()
    print_summary(
        console,
        talk.events,
        webhooks=talk.webhooks,
        timers=timers.all,
        closest_seconds=stage.get("/sim/state")["closestStarts"],
        mongod_version=server_version(stage.mongod.uri),
    )
    if doubles(talk.events):
        raise DemoFailed(f"{doubles(talk.events)} events were answered more than once")


def _leave_to_a_person(bot: str, stage: DemoEnvironment, console: Console) -> None:
    for name in ("佐藤花子", "田中太郎"):
        stage.post("/sim/users", {"name": name, "friend": True})
    console.print()
    console.print(f"Chat with the {bot} bot:  {stage.linesim_url}/")
    console.print(f"Webhook:  {stage.frontdesk_url}/callback", style="dim")
    console.print(SHOWS[bot].hint)
    console.print("Ctrl-C stops everything and removes all data.", style="dim")
    while True:
        stage.stay()


@contextmanager
def _step(name: str) -> Iterator[None]:
    try:
        yield
    except DemoFailed as error:
        raise DemoFailed(f"{name}: {error}") from error
