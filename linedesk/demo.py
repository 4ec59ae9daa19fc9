"""`linedesk demo`: a person chats with the parrot bot through every real part, on this machine."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from linedesk.conversation import Conversation
from linedesk.embedded import server_version
from linedesk.errors import DemoFailed, DemoInterrupted
from linedesk.exits import Exit
from linedesk.script import scenes
from linedesk.stage import Stage
from linedesk.supervisor import Signals, signals_on
from linedesk.transcript import doubles, open_console, print_legend, print_scene, print_summary


def run_demo(*, once: bool, port: int | None) -> int:
    """Set the stage and play the conversation (`once`), or leave it to a person until Ctrl-C.

    Whatever happens, no process and no file stays behind. Raises DemoFailed.
    """
    console = open_console()
    signals = Signals()
    try:
        with (
            signals_on(signals),
            tempfile.TemporaryDirectory(prefix="linedesk-demo-") as folder,
            Stage(Path(folder), signals=signals, chat_port=port) as stage,
        ):
            _set(stage, console)
            if once:
                _play(stage, console)
            else:
                _leave_to_a_person(stage, console)
    except DemoInterrupted as interruption:
        return 128 + interruption.number if once else Exit.OK
    return Exit.OK


def _set(stage: Stage, console: Console) -> None:
    began = time.monotonic()
    with console.status("starting MongoDB ..."), _step("starting MongoDB"):
        stage.start_mongod()
    with console.status("starting simulator, front desk and dispatcher ..."), _step("starting"):
        stage.start_rooms()
    seconds = time.monotonic() - began
    console.print(
        f"Set up in {seconds:.1f} s: MongoDB, simulator, front desk, dispatcher.", style="dim"
    )


def _play(stage: Stage, console: Console) -> None:
    talk = Conversation(stage)
    print_legend(console)
    with console.status("the conversation is going on ..."):
        for scene in scenes(talk):
            print_scene(console, scene)
    talk.refresh()
    print_summary(
        console,
        talk.events,
        webhooks=talk.webhooks,
        closest_seconds=stage.get("/sim/state")["closestStarts"],
        mongod_version=server_version(stage.mongod.uri),
    )
    if doubles(talk.events):
        raise DemoFailed(f"{doubles(talk.events)} events were answered more than once")


def _leave_to_a_person(stage: Stage, console: Console) -> None:
    for name in ("佐藤花子", "田中太郎"):
        stage.post("/sim/users", {"name": name, "friend": True})
    console.print()
    console.print(f"Chat with the bot:  {stage.linesim_url}/")
    console.print("Ctrl-C ends everything and leaves nothing behind.", style="dim")
    while True:
        stage.stay()


@contextmanager
def _step(name: str) -> Iterator[None]:
    try:
        yield
    except DemoFailed as error:
        raise DemoFailed(f"{name}: {error}") from error
