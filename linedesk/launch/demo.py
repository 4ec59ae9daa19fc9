"""`linedesk demo`: a user chats with a bot through every real part, on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

import linesim
from linedesk.launch.stage import Stage
from linedesk.launch.supervisor import Signals, signals_on
from linedesk.runtime.exit_codes import Exit
from linedesk.settings.errors import DemoFailed, DemoInterrupted
from linedesk.store.documents import SCHEDULE, Document
from linesim import Sim

ANSWER_SECONDS = 15.0
HANAKO, TARO = "佐藤花子", "田中太郎"


@dataclass(frozen=True)
class Line:
    """A message of a user and the bot's answer; without a message the clock goes to that time."""

    who: str
    says: str | None
    answer: str


@dataclass(frozen=True)
class Show:
    """A bot's conversation for --once, and a hint for trying it."""

    lines: Sequence[Line]
    hint: str


SHOWS: Mapping[str, Show] = {
    "parrot": Show(
        (
            Line(HANAKO, "こんにちは", "佐藤花子さん、はい、こんにちは、ですね。"),
            Line(TARO, "改行も\n大丈夫？", "田中太郎さん、はい、改行も\n大丈夫？、ですね。"),
            Line(HANAKO, "またね", "佐藤花子さん、はい、またね、ですね。"),
        ),
        "Send any text, a photo, a sticker or a location.",
    ),
    "timer": Show(
        (
            Line(HANAKO, "180", "180秒後にお知らせします"),
            Line(TARO, "60", "60秒後にお知らせします"),
            Line(TARO, None, "60秒経ちました"),
            Line(HANAKO, None, "180秒経ちました"),
        ),
        "Write 180, and move the clock ahead on the page: +1分.",
    ),
}


def run_demo(bot: str, *, once: bool, port: int | None) -> int:
    """Start everything and play the bot's conversation (`once`), or serve the chat page until
    Ctrl-C.

    It always removes its processes and files. Raises DemoFailed.
    """
    console = Console(highlight=False)
    signals = Signals()
    try:
        with (
            signals_on(signals),
            tempfile.TemporaryDirectory(prefix="linedesk-demo-") as folder,
            _line(port) as sim,
            Stage(Path(folder), sim, signals=signals) as stage,
        ):
            with console.status("starting MongoDB, front desk and dispatcher ..."):
                stage.start_mongod()
                stage.play(f"linedesk.bots.{bot}:bot")
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


def _play(bot: str, stage: Stage, console: Console) -> None:
    """Say each line once its predecessor is answered. Raises DemoFailed for any other answer."""
    sim, lines = stage.sim, SHOWS[bot].lines
    users = {who: sim.add_user(who) for who in dict.fromkeys(line.who for line in lines)}
    answers: dict[str, list[str]] = {who: [] for who in users}
    for line in lines:
        user, expected = users[line.who], answers[line.who]
        if line.says is None:
            due = _next_timer(stage, user.user_id)["runAt"]
            sim.advance(max(0.0, (due - stage.now()).total_seconds()))
            console.print(f"⏰ {due:%d %b %H:%M:%S} UTC", style="dim")
        else:
            stage.deliver(sim.drafts.text(user, line.says))
            console.print(f"{line.who}: {line.says}")
        expected.append(line.answer)
        answered = partial(_has, sim, user.user_id, expected)
        stage.wait_for(answered, "dispatcher", seconds=ANSWER_SECONDS)
        console.print(f"  {bot}: {line.answer}", style="green")
    console.print("Each was answered once.")


def _has(sim: Sim, user_id: str, answers: Sequence[str]) -> bool:
    return [bubble.text for bubble in sim.answers(user_id)] == answers


def _next_timer(stage: Stage, user_id: str) -> Document:
    # A state's time-out sends nothing by itself; its name begins with ~.
    waits = {"key": user_id, "runAt": {"$type": "date"}, "name": {"$not": {"$regex": "^~"}}}
    rows = stage.database[SCHEDULE]
    return stage.wait_for(lambda: rows.find_one(waits, sort=[("runAt", 1)]), "dispatcher")


def _leave_to_a_person(bot: str, stage: Stage, console: Console) -> None:
    for name in (HANAKO, TARO):
        stage.sim.add_user(name)
    console.print()
    console.print(f"Chat with the {bot} bot:  {stage.sim.url}/")
    console.print(f"Webhook:  {stage.sim.webhook_url}", style="dim")
    console.print(SHOWS[bot].hint)
    console.print("Ctrl-C stops everything and removes all data.", style="dim")
    while True:
        stage.stay()
