"""`linedesk status`: an overview and its problems as one screen of a terminal, once or again each
second, and the rows of `history`. Labels and lines: problems first, then who waits.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import click
from pymongo.database import Database
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from linedesk.cli.people import (
    NAME_CELLS,
    conversation_id,
    cut,
    endpoint_words,
    shortened,
)
from linedesk.compose.database import open_database
from linedesk.console import processes
from linedesk.console.format import brief, clock, echo_json, for_long, local, one_line, visible
from linedesk.console.health import HealthProblem, overview_as_json, problems_of
from linedesk.console.history import read_history
from linedesk.console.overview import GateView, Latency, Overview, read_overview
from linedesk.console.processes import Process, WorkersView
from linedesk.runtime.exit_codes import Exit
from linedesk.runtime.signals import until_ctrl_c
from linedesk.settings.settings import Settings
from linedesk.store.errors import StoreUnavailable
from linedesk.store.records.calls import CallRecord, is_taken
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.history import (
    BUSY_THREADS,
    CALL_RATE,
    DECIDED_RATE,
    LAG_DOCUMENTS,
    OLDEST_SECONDS,
    QUEUE_DOCUMENTS,
    READ_RATE,
    WAIT_P99,
)
from linedesk.store.records.letters import LAST_AT

LABEL_WIDTH = 9
LEVELS = {"bad": ("✕ Critical", "bold red"), "warn": ("▲ Warning", "yellow")}
# Of each kind of row as many as help.
MANY = 10
# What a screen does without where it is too small, in this order.
LEFT_OUT = (
    *("calls", "room", "latency", "LINE", "events", "workers", "threads", "processes"),
    *("dead", "queue"),
)

Section = tuple[str, list[Text]]


def fitted(seen: Overview, *, height: int, width: int) -> list[Section]:
    """As much of it as has room on so many lines of this width.

    Problems are folded rather than cut. Other rows become fewer first, then whole kinds of rows
    are left out, and problems become fewer last.
    """
    told: list[Section] = []
    for problems in range(MANY, 0, -1):
        for most in range(MANY, 0, -1):
            told = _folded(sections(seen, most=most, problems=problems), width)
            if _lines_of(told) <= height:
                return told
        for label in LEFT_OUT:
            told = [one for one in told if one[0] != label]
            if _lines_of(told) <= height:
                return told
    return told


def _folded(told: Iterable[Section], width: int) -> list[Section]:
    """With the lines of the problems as a screen of this width shows them."""
    beside = width - LABEL_WIDTH - 1
    console = Console(width=beside)
    (label, lines), *others = told
    folded = [part for line in lines for part in shortened(line).wrap(console, beside)]
    return [(label, folded), *others]


def _lines_of(told: Sequence[Section]) -> int:
    return sum(len(lines) for _, lines in told)


def sections(seen: Overview, *, most: int = MANY, problems: int = MANY) -> Iterator[Section]:
    """Everything, label by label; of problems and of each other kind at most so many rows."""
    found = problems_of(seen)
    yield "linedesk", [_head(seen, found), *_problems(found, problems)]
    if seen.waiting:
        yield "waiting", [_waiting(one, seen) for one in seen.waiting[:most]]
    if seen.letters:
        yield "dead", [_letter(row, seen) for row in seen.letters[:most]]
    yield "processes", [_process(one) for one in seen.processes] or [Text("none known", "dim")]
    yield "events", [_rates(seen)]
    yield "queue", [_queue(seen)]
    yield "latency", [_latencies(seen.latencies)]
    yield (
        "threads",
        [_threads(seen), *(_doing(one, seen) for one in seen.threads.doing[:most])],
    )
    if seen.workers is not None:
        yield "workers", list(_workers(seen, seen.workers, most))
    yield "LINE", [_line(seen)]
    yield "room", [_room(seen)]
    if seen.calls:
        yield "calls", [_call(row, seen) for row in seen.calls[:most]]


def grid(told: Sequence[Section], *, cut: bool) -> Table:
    """For a terminal, with ids shortened: a line each, cut at its width, or else folded."""
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(width=LABEL_WIDTH, no_wrap=True)
    table.add_column(ratio=1, no_wrap=cut, overflow="ellipsis" if cut else "fold")
    for label, lines in told:
        for n, line in enumerate(lines):
            table.add_row(Text("" if n else label, style="bold"), shortened(line))
    return table


def plain(told: Sequence[Section]) -> Iterator[str]:
    """The same without colours, uncut."""
    for label, lines in told:
        for n, line in enumerate(lines):
            yield f"{'' if n else label:<{LABEL_WIDTH}} {line.plain}".rstrip()


def _head(seen: Overview, problems: Sequence[HealthProblem]) -> Text:
    bad = sum(one.level == "bad" for one in problems)
    warn = len(problems) - bad
    head = Text(f"{local(seen.at)}  ")
    if not problems:
        return head.append("OK", "bold green")
    counts = [f"{bad} Critical"] if bad else []
    counts += [f"{warn} Warning"] if warn else []
    return head.append(", ".join(counts), "bold red" if bad else "yellow")


def _problems(found: Sequence[HealthProblem], most: int) -> Iterator[Text]:
    for one in found[:most]:
        name, style = LEVELS[one.level]
        told = Text.assemble((f"{name}: {one.about}: ", style), visible(one.saw))
        yield told.append(f" → {visible(one.do)}", "dim")
    if len(found) > most:
        yield Text(f"and {len(found) - most} more", "yellow")


def _process(one: Process) -> Text:
    state = one.state
    if not one.is_fresh:
        for_ = for_long(one.silent_seconds)
        state = f"ended {for_} ago" if one.state == processes.ENDED else f"last seen {for_} ago"
    style = "green" if one.is_fresh and one.state == "working" else "yellow"
    told = Text(f"{one.role} {one.pid} on {one.host} ")
    return told.append(state, style if one.is_fresh else "bold red").append(
        f"  {visible(one.words)}"
    )


def _rates(seen: Overview) -> Text:
    rates = seen.rates
    named = {
        "accepted": rates.accepted,
        "read": rates.read,
        "decided": rates.decided,
        "calls": rates.calls,
        "rings": rates.fired,
        "refused": rates.refused or None,
        "spooled": rates.spooled or None,
        "failed": rates.failed or None,
    }
    told = [f"{name} {value:.1f}/s" for name, value in named.items() if value is not None]
    return Text("  ".join(told) or "not known: no process reports")


def _queue(seen: Overview) -> Text:
    queue = seen.queue
    if queue.documents is None:
        return Text("not known: no dispatcher runs", "yellow")
    told = [f"{queue.documents:,.0f} unfinished"]
    if queue.documents:
        told.append(f"the oldest {brief(queue.oldest_seconds)}")
    told.append(f"lag {queue.lag_documents or 0:,.0f} ({brief(queue.lag_seconds or 0.0)})")
    told.append(f"in hand {queue.in_hand or 0:,.0f}")
    told.append(f"held {queue.held or 0:,.0f} of {queue.held_keys or 0:,.0f} keys")
    told.append(f"outboxes {queue.outbox_effects or 0:,.0f}")
    return Text("  ".join(told))


def _latencies(found: Sequence[Latency]) -> Text:
    timed = [one for one in found if one.count and one.name in ("store", "wait", "handler")]
    calls = [one for one in found if one.count and one.name == "call"]
    if calls:
        timed.append(max(calls, key=lambda one: one.count))
    told = [f"{one.name} {brief(one.p50)} / {brief(one.p99)}" for one in timed]
    return Text("  ".join([*told, "(p50 / p99)"]) if told else "nothing in the last minute")


def _threads(seen: Overview) -> Text:
    threads = seen.threads
    if threads.all is None:
        return Text("-", "dim")
    told = Text(f"{threads.busy or 0:,.0f} of {threads.all:,.0f} busy")
    if threads.abandoned:
        told.append(f", {threads.abandoned:,.0f} abandoned", "yellow")
    return told


def _doing(one: Mapping[str, Any], seen: Overview) -> Text:
    took = f"{_age(one.get('since'), seen)}{_try(one, seen)}"
    words = f"{one.get('name')} {one.get('doing')} for {took}  {_who(one, seen)}"
    return Text(visible(f"{words}  {one.get(EVENT_ID) or ''}").rstrip())


def _workers(seen: Overview, workers: WorkersView, most: int) -> Iterator[Text]:
    yield Text(workers.words(), "" if workers.working and not workers.broker else "bold red")
    for one in workers.processes[:most]:
        version = f"{one.release}, bot {one.bot}"
        told = Text(f"{visible(one.name)} ({visible(version)}) ")
        told.append(visible(one.state), "green" if one.is_working else "yellow")
        yield told.append(f"  {one.jobs:,} of {one.threads:,} threads busy")
    for job in workers.jobs[:most]:
        words = f"{job['worker']} for {_age(job['since'], seen)}  {_who(job, seen)}"
        yield Text(visible(f"{words}  {job[EVENT_ID] or ''}").rstrip())


def _waiting(one: Mapping[str, Any], seen: Overview) -> Text:
    why = one.get("why") or "no reason known"
    waited = f"{_age(one.get('since'), seen)}{_try(one, seen)}"
    # Without events it is an outbox whose first send waits.
    waits = _many(one["documents"], "event") if one.get("documents") else "a send"
    return Text(visible(f"{_who(one, seen)}  {waits} for {waited}: {why.removeprefix('a send ')}"))


def _who(one: Mapping[str, Any], seen: Overview) -> str:
    name = seen.name_of(one)
    id_ = conversation_id(one.get("channel"), one.get("key"))
    return f"{one_line(cut(name, NAME_CELLS))} {id_}" if name else id_


def _age(since: datetime | None, seen: Overview) -> str:
    return brief(max(0.0, (seen.at - since).total_seconds())) if since is not None else "-"


def _try(one: Mapping[str, Any], seen: Overview) -> str:
    """Which try of the handler it is, and how long ago that began; empty before the first one."""
    if not one.get("try"):
        return ""
    most = seen.threads.handler_tries
    since = one.get("trySince")
    ago = f", {_age(since, seen)}" if since is not None else ""
    return f" (try {one['try']}{f' of {most:.0f}' if most else ''}{ago})"


def _line(seen: Overview) -> Text:
    told = Text()
    for gate in seen.gates:
        use = "-" if gate.use is None else f"{gate.use:.0%}"
        told.append(f"{gate.host}: gate {use} used, {gate.waiting or 0:,.0f} wait{_lines(gate)}  ")
        if gate.breaker_open:
            told.append("breaker open  ", "bold red")
    if seen.sent.calls:
        told.append(f"{_many(seen.sent.sends, 'send')} in {_many(seen.sent.calls, 'call')}  ")
    if seen.counted_today is not None:
        told.append(f"{seen.counted_today:,.0f} counted today  ")
    if seen.late_today:
        late = "1 late reply" if seen.late_today == 1 else f"{seen.late_today:,} late replies"
        told.append(f"{late} given up today  ", "yellow")
    if seen.quota is not None:
        used = "-" if seen.quota.used is None else f"{seen.quota.used:,.0f}"
        told.append(f"quota {used} of {seen.quota.messages:,.0f}")
        if seen.quota.closed_since is not None:
            told.append(f", closed since {local(seen.quota.closed_since)}", "bold red")
    return told if told.plain else Text("-", "dim")


def _lines(gate: GateView) -> str:
    """How many of each class wait, and how long the first of them has."""
    told = [
        f"{one.waiting:,.0f} {one.name} up to {brief(one.longest_seconds)}"
        for one in gate.classes
        if one.waiting
    ]
    return f" ({', '.join(told)})" if told else ""


def _many(count: float, word: str) -> str:
    return f"{count:,.0f} {word}{'' if count == 1 else 's'}"


def _room(seen: Overview) -> Text:
    queue, spool = seen.queue, seen.spool
    told = []
    if queue.unread_share is not None:
        told.append(f"recvq {queue.unread_share:.0%} unread")
    if queue.recvq_left_seconds is not None:
        told.append(f"queue retention left {for_long(queue.recvq_left_seconds)}")
    if queue.oplog_left_seconds is not None:
        told.append(f"oplog retention left {for_long(queue.oplog_left_seconds)}")
    if spool is not None:
        empty = "spool empty" if spool.is_available else "no spool"
        told.append(f"spool {spool.documents:,.0f}" if spool.documents else empty)
    return Text("  ".join(told) or "-")


def _call(row: Mapping[str, Any], seen: Overview) -> Text:
    call = CallRecord.from_document(row)
    told = Text(f"{clock(call.at)}  {endpoint_words(call.endpoint)} ")
    told.append(str(call.status or "no answer"), "green" if is_taken(call.status) else "bold red")
    return told.append(visible(f"  {brief(call.ms / 1000)}  {_who(row, seen)}"))


def _letter(row: Mapping[str, Any], seen: Overview) -> Text:
    at = datetime.fromisoformat(row[LAST_AT]).strftime("%m-%d %H:%M") if row[LAST_AT] else "-"
    return Text(visible(f"{at}  {row['what']}  {_who(row, seen)}  {row['explained']}"))


EVERY_SECONDS = 1.0


def show_status(settings: Settings, *, watch: bool, as_json: bool) -> int:
    """Print it; returns 1 if any problem is Critical, as `linedesk doctor` does."""
    with open_database(settings, app_name="linedesk-status") as database:
        if not watch:
            seen = _look(database, settings)
            _show(seen, as_json=as_json)
            return _code(seen)
        with until_ctrl_c() as over:
            _watch(lambda: _look(database, settings), over, as_json=as_json)
    return Exit.INTERRUPTED


def _look(database: Database[Any], settings: Settings) -> Overview:
    """An overview whose calls have a channel, which their rows lack."""
    channel = settings.line_channel
    seen = read_overview(database, channel=channel)
    return replace(seen, calls=[{"channel": channel, **row} for row in seen.calls])


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
        f"{local(row.get('at')):<25} {number(QUEUE_DOCUMENTS):>8} "
        f"{brief(row.get(OLDEST_SECONDS)):>9} {number(LAG_DOCUMENTS):>8} "
        f"{number(BUSY_THREADS):>4} {number(READ_RATE):>8} "
        f"{number(DECIDED_RATE):>9} {number(CALL_RATE):>8} "
        f"{brief(row.get(WAIT_P99)):>9}"
    )


def _code(seen: Overview) -> int:
    return Exit.FAILED if any(one.level == "bad" for one in problems_of(seen)) else Exit.OK


def _show(seen: Overview, *, as_json: bool) -> None:
    if as_json:
        echo_json(overview_as_json(seen))
    elif sys.stdout.isatty():
        Console().print(grid(list(sections(seen)), cut=False))
    else:
        for line in plain(list(sections(seen))):
            click.echo(line)


def _watch(look: Callable[[], Overview], over: threading.Event, *, as_json: bool) -> None:
    if as_json or not sys.stdout.isatty():
        while not over.wait(EVERY_SECONDS):
            _show(look(), as_json=as_json)
        return
    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while not over.is_set():
            live.update(_screen(look, console), refresh=True)
            over.wait(EVERY_SECONDS)


def _screen(look: Callable[[], Overview], console: Console) -> Any:
    try:
        seen = look()
    except StoreUnavailable as error:
        return Text(f"MongoDB does not answer ({error}); trying again, Ctrl-C ends", "bold red")
    return grid(fitted(seen, height=console.height, width=console.width), cut=True)
