"""`linedesk demo`: a user chats with a bot through every real part, on this machine."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

import linesim
from linedesk.launch import play
from linedesk.launch.play import Play, Scene
from linedesk.launch.stage import Stage
from linedesk.launch.supervisor import Signals, signals_on
from linedesk.launch.transcript import open_console, print_legend, print_scene, print_summary
from linedesk.runtime.exit_codes import Exit
from linedesk.settings.errors import DemoFailed, DemoInterrupted
from linedesk.setup.private_mongod import server_version
from linesim import Sim


@dataclass(frozen=True)
class Show:
    """A bot's scripted conversation, and a hint for trying it."""

    scenes: Callable[[Play], Iterator[Scene]]
    hint: str


SHOWS: Mapping[str, Show] = {
    "parrot": Show(play.parrot_scenes, "Send any text, a photo, a sticker or a location."),
    "timer": Show(play.timer_scenes, "Write 180, and move the clock ahead on the page: +1分."),
    "reminder": Show(
        play.reminder_scenes, "Write 8時30分, and move the clock ahead on the page: +1時間."
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
            _line(port) as sim,
            Stage(Path(folder), sim, signals=signals) as stage,
        ):
            _set(bot, stage, console)
            if once:
                _play(bot, stage, console)
            else:
                _leave_to_a_person(bot, stage, console)
    except DemoInterrupted as interruption:
        return 128 + interruption.number if once else Exit.OK
    return Exit.OK


@contextmanager
def _line(port: int | None) -> Iterator[Sim]:
    """linesim, with its chat page on this port. Raises DemoFailed if that is in use."""
    with ExitStack() as started:
        try:
            sim = started.enter_context(linesim.running(port=port or 0))
        except OSError as error:
            raise DemoFailed(
                f"cannot serve on 127.0.0.1:{port}: {error.strerror}; choose another --port"
            ) from error
        yield sim


def _set(bot: str, stage: Stage, console: Console) -> None:
    began = time.monotonic()
    with console.status("starting MongoDB ..."), _step("starting MongoDB"):
        stage.start_mongod()
    with console.status("starting front desk and dispatcher ..."), _step("starting"):
        stage.play(f"linedesk.bots.{bot}:bot")
    seconds = time.monotonic() - began
    console.print(
        f"Set up in {seconds:.1f} s: MongoDB, simulator, front desk, dispatcher.", style="dim"
    )


def _play(bot: str, stage: Stage, console: Console) -> None:
    talk = Play(stage)
    print_legend(console)
    with console.status("playing the conversation ..."):
        for scene in SHOWS[bot].scenes(talk):
            print_scene(console, scene, bot=bot)
    print_summary(
        console, talk, talk.judge("the end"), mongod_version=server_version(stage.mongod.uri)
    )


def _leave_to_a_person(bot: str, stage: Stage, console: Console) -> None:
    for name in ("佐藤花子", "田中太郎"):
        stage.sim.add_user(name)
    console.print()
    console.print(f"Chat with the {bot} bot:  {stage.sim.url}/")
    console.print(f"Webhook:  {stage.sim.webhook_url}", style="dim")
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
