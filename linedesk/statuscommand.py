"""`linedesk status`: everything on one screen, once or again each second."""

from __future__ import annotations

import sys
import threading
from typing import Any

import click
from pymongo.database import Database
from rich.console import Console
from rich.live import Live
from rich.text import Text

from console.history import read_history
from console.overview import Overview, read_overview
from console.words import brief, local
from linedesk.exits import Exit
from linedesk.opening import open_database
from linedesk.printing import echo_json
from linedesk.screen import fitted, grid, plain, sections
from linedesk.settings import Settings
from linedesk.signals import until_ctrl_c
from recvq.errors import StoreUnavailable

EVERY_SECONDS = 1.0


def show_status(settings: Settings, *, watch: bool, as_json: bool) -> int:
    """Print it; returns 1 where something stands still or soon will, as `linedesk doctor` does."""
    with open_database(settings, app_name="linedesk-status") as database:
        if not watch:
            seen = read_overview(database)
            _show(seen, as_json=as_json)
            return _code(seen)
        with until_ctrl_c() as over:
            _watch(database, over, as_json=as_json)
    return Exit.OK


def show_history(settings: Settings, *, hours: float, as_json: bool) -> None:
    """Print the rows of the last hours, the oldest first."""
    with open_database(settings, app_name="linedesk-history") as database:
        rows = read_history(database, hours=hours)
    for row in rows if as_json else ():
        echo_json(row)
    if not as_json:
        click.echo(HISTORY_HEAD)
        for row in rows:
            click.echo(_history_line(row))


HISTORY_HEAD = (
    f"{'at':<25} {'queue':>8} {'oldest':>9} {'lag':>8} {'busy':>4} "
    f"{'read/s':>8} {'decided/s':>9} {'calls/s':>8} {'wait p99':>9}"
)


def _history_line(row: dict[str, Any]) -> str:
    def number(name: str) -> str:
        value = row.get(name)
        return "-" if value is None else f"{value:,.1f}".removesuffix(".0")

    return (
        f"{local(row.get('at')):<25} {number('queueDocuments'):>8} "
        f"{brief(row.get('oldestUnfinishedSeconds')):>9} {number('lagDocuments'):>8} "
        f"{number('busyThreads'):>4} {number('readPerSecond'):>8} "
        f"{number('decidedPerSecond'):>9} {number('callsPerSecond'):>8} "
        f"{brief(row.get('waitP99')):>9}"
    )


def _code(seen: Overview) -> int:
    return Exit.FAILED if any(one.level == "bad" for one in seen.wrong) else Exit.OK


def _show(seen: Overview, *, as_json: bool) -> None:
    if as_json:
        echo_json(seen.as_json())
    elif sys.stdout.isatty():
        Console().print(grid(list(sections(seen)), cut=False))
    else:
        for line in plain(list(sections(seen))):
            click.echo(line)


def _watch(database: Database[Any], over: threading.Event, *, as_json: bool) -> None:
    if as_json or not sys.stdout.isatty():
        while not over.wait(EVERY_SECONDS):
            _show(read_overview(database), as_json=as_json)
        return
    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while not over.is_set():
            live.update(_screen(database, console), refresh=True)
            over.wait(EVERY_SECONDS)


def _screen(database: Database[Any], console: Console) -> Any:
    try:
        seen = read_overview(database)
    except StoreUnavailable as error:
        return Text(f"MongoDB does not answer ({error}); trying again, Ctrl-C ends", "bold red")
    return grid(fitted(seen, height=console.height), cut=True)
