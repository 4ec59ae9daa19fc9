"""`linedesk demo`: a user chats with a bot through every real part, on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

import linesim
from linedesk.launch.stage import Stage
from linedesk.launch.supervisor import Signals, signals_on
from linedesk.runtime.exit_codes import Exit
from linedesk.settings.errors import DemoFailed, DemoInterrupted
from linedesk.store.documents import SCHEDULE, Document
from linesim import Report, Sim, Timer

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
                closest = _play(bot, stage, console).closest_starts.values()
                apart = f"{min(closest, default=0.0) * 1000:.1f} ms"
                console.print(f"Each was answered once. Calls of LINE began {apart} apart or more.")
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


def _play(bot: str, stage: Stage, console: Console) -> Report:
    """Say each line once its predecessor is answered; linesim's judge reads LINE's record of it."""
    sim, answers, timers = stage.sim, dict[str, str](), list[Timer]()
    users = {who: sim.add_user(who) for who in dict.fromkeys(one.who for one in SHOWS[bot].lines)}

    def judged() -> Report:
        return linesim.check(
            sim,
            expect=lambda event: (answers[event["webhookEventId"]],),
            expect_timers=timers,
        )

    for line in SHOWS[bot].lines:
        who = users[line.who]
        if line.says is None:
            row = _next_timer(stage, who.user_id)
            due = row["runAt"].timestamp()
            timers.append(Timer(who.user_id, line.answer, due, within_seconds=ANSWER_SECONDS))
            sim.advance(max(0.0, due - stage.now().timestamp()))
            console.print(f"⏰ {row['runAt']:%d %b %H:%M:%S} UTC", style="dim")
        else:
            event = sim.drafts.text(who, line.says)
            answers[event["webhookEventId"]] = line.answer
            stage.deliver(event)
            console.print(f"{line.who}: {line.says}")
        try:
            stage.wait_for(lambda: not judged().problems(), "dispatcher", seconds=ANSWER_SECONDS)
        except DemoFailed as error:
            raise DemoFailed(f"{'; '.join(judged().problems())}: {error}") from error
        console.print(f"  {bot}: {line.answer}", style="green")
    return judged()


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
