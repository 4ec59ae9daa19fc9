"""Prints the demo's conversation: messages, times of each part, and a closing summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from statistics import median
from zoneinfo import ZoneInfo

from rich.console import Console
from rich.table import Table
from rich.text import Text

from linedesk.launch.play import Event, Play, Scene
from linesim import Report

TOKYO = ZoneInfo("Asia/Tokyo")
# The width for a file or a pipe.
WIDTH_WITHOUT_TERMINAL = 120


def open_console() -> Console:
    """A console on stdout with the terminal's width, without colours if they are disabled."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH_WITHOUT_TERMINAL)
    return console


def print_legend(console: Console) -> None:
    """Print the meaning of the three columns of figures."""
    for line in (
        "In milliseconds. 200: from LINE's webhook to the front desk's answer 200.",
        "started: from its arrival at the front desk to the handler's start, which does not wait "
        "for",
        "that answer. answered: from LINE's webhook to the bot's call of LINE.",
        "Calls are sent at least 100 ms apart, including the call for a new user's profile.",
    ):
        console.print(line, style="dim")


def print_scene(console: Console, scene: Scene, *, bot: str) -> None:
    """Print a scene as a table: each event with its answers below it, or the messages of timers."""
    console.print()
    console.print(Text(scene.title, style="bold"))
    console.print(_by_the_clock(scene, bot) if scene.rings else _conversation(scene, bot))
    if scene.remark:
        console.print(scene.remark, style="dim")


def print_summary(console: Console, play: Play, report: Report, *, mongod_version: str) -> None:
    """The figures of the whole conversation."""
    events = play.events
    answered = [event.answered_ms(call) for event in events for call in event.answers]
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row("events", f"{len(events)} in {len(play.sim.deliveries)} webhooks, all stored")
    table.add_row("answers", f"{len(answered)}, none missing")
    table.add_row("double answers", str(len(report.answered_twice)))
    stored = [event.delivery.milliseconds or 0.0 for event in events]
    table.add_row("200 to webhooks", _spread(stored))
    table.add_row("answered", _spread(answered))
    if play.rings:
        table.add_row("by the clock", _punctuality([ring.late_ms for ring in play.rings]))
    table.add_row("closest two calls", _closest(min(report.closest_starts.values(), default=None)))
    table.add_row("MongoDB", mongod_version)
    console.print()
    console.print(Text("summary", style="bold"))
    console.print(table)


def _conversation(scene: Scene, bot: str) -> Table:
    table = _table({"200": 8, "started": 8, "answered": 8})
    for event in scene.events:
        table.add_row(Text(event.deed.who), *_cells(event))
        for _ in event.answers:
            table.add_row(*_said(bot, event.deed.answer or ""))
    return table


def _by_the_clock(scene: Scene, bot: str) -> Table:
    table = _table({"due in Tokyo": 17, "ms late": 8})
    table.add_row(Text(f"⏰ +{timedelta(seconds=round(scene.advanced))}"))
    for ring in scene.rings:
        due = f"{datetime.fromtimestamp(ring.due, TOKYO):%d %b %H:%M:%S}"
        table.add_row(*_said(f"{bot} to {ring.who}", ring.text), due, f"{ring.late_ms:.0f}")
    return table


def _table(figures: Mapping[str, int]) -> Table:
    """A table with two columns of text and columns of figures with these widths."""
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    table.add_column("who", width=24, overflow="fold")
    table.add_column("message", ratio=1, overflow="fold")
    for name, width in figures.items():
        table.add_column(name, width=width, justify="right", no_wrap=True)
    return table


def _said(bot: str, text: str) -> tuple[Text, Text]:
    return Text(f"  {bot}", style="green"), Text(text, style="green")


def _cells(event: Event) -> tuple[Text, str, str, str]:
    started = f"{event.started_ms:.1f}" if event.started_ms is not None else ""
    answered = f"{event.answered_ms(event.answers[0]):.1f}" if event.answers else "-"
    return Text(event.deed.shown), f"{event.delivery.milliseconds:.1f}", started, answered


def _spread(milliseconds: Sequence[float]) -> str:
    return f"after {median(milliseconds):.1f} ms (median), {max(milliseconds):.1f} ms at most"


def _punctuality(late_ms: Sequence[float]) -> str:
    return f"{len(late_ms)}, none early, {max(late_ms):.0f} ms late at most"


def _closest(seconds: float | None) -> str:
    return (
        "fewer than two calls"
        if seconds is None
        else f"{seconds * 1000:.1f} ms apart on arrival; they are sent at least 100 ms apart"
    )
