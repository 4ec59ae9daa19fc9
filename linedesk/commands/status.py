"""`linedesk status` and `linedesk history`: the overview on one screen, problems first.

`status --watch` refreshes the screen every second.
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
from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from linedesk.commands.interrupts import until_ctrl_c
from linedesk.commands.listing import padded
from linedesk.commands.people import (
    NAME_CELLS,
    conversation_id,
    cut,
    endpoint_words,
    shortened,
)
from linedesk.operate import dead_letters, processes
from linedesk.operate.format import (
    brief,
    clock,
    echo_json,
    for_long,
    local,
    one_line,
    visible,
)
from linedesk.operate.health import (
    HealthProblem,
    name_of_health,
    overview_as_json,
    problems_of,
    sent_words,
)
from linedesk.operate.history import read_history
from linedesk.operate.overview import GateView, Latency, Overview, Sent, read_overview
from linedesk.operate.processes import Process, WorkersView
from linedesk.operate.text import known
from linedesk.runtime.exit_codes import Exit
from linedesk.runtime.language import DEFAULT, language, mark, ngettext, speaking
from linedesk.runtime.language import gettext as _
from linedesk.runtime.status_row import SILENT
from linedesk.settings.settings import Settings
from linedesk.setup.database import open_database
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

STYLES = {"bad": "bold red", "warn": "yellow"}
# The most rows of each kind.
MANY = 10
# The sections that a small screen leaves out, in this order.
LEFT_OUT = (
    *("calls", "capacity", "latency", "LINE", "events", "workers", "threads", "processes"),
    *("dead", "queue"),
)

Section = tuple[str, list[Text]]
"""A label, which is translated when it is shown, and its lines."""
LABELS = (
    *(mark("linedesk"), mark("waiting"), mark("dead"), mark("processes"), mark("events")),
    *(mark("queue"), mark("latency"), mark("threads"), mark("workers"), mark("LINE")),
    *(mark("capacity"), mark("calls")),
)
LEAST_LABEL_WIDTH = 9


def fitted(seen: Overview, *, height: int, width: int) -> list[Section]:
    """The sections that fit on a screen of this size.

    Lines are folded, not cut. First other sections show fewer rows, then whole sections are left
    out, and last fewer problems are shown.
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


def label_width() -> int:
    """The width of the longest label in the language of the context."""
    return max(LEAST_LABEL_WIDTH, *(cell_len(_(label)) for label in LABELS))


def _folded(told: Iterable[Section], width: int) -> list[Section]:
    """The sections with short ids, folded to this width."""
    beside = width - label_width() - 1
    return [
        (label, [part for line in lines for part in _folded_line(shortened(line), beside)])
        for label, lines in told
    ]


def _folded_line(line: Text, width: int) -> list[Text]:
    """The line folded where it has two spaces, so that a figure keeps its unit, else anywhere."""
    lines: list[Text] = []
    for part in line.split("  "):
        if lines and lines[-1].cell_len + 2 + part.cell_len <= width:
            lines[-1] = Text("  ").join([lines[-1], part])
        else:
            lines += part.wrap(Console(width=width), width)
    return lines


def _lines_of(told: Sequence[Section]) -> int:
    return sum(len(lines) for _, lines in told)


def sections(seen: Overview, *, most: int = MANY, problems: int = MANY) -> Iterator[Section]:
    """All sections, with at most `problems` problems and `most` rows of each other kind."""
    found = problems_of(seen)
    yield "linedesk", [_head(seen, found), *_problems(found, problems)]
    if seen.waiting:
        yield "waiting", [_waiting(one, seen) for one in seen.waiting[:most]]
    if seen.letters:
        yield "dead", [_letter(row, seen) for row in seen.letters[:most]]
    yield "processes", [_process(one) for one in seen.processes] or [Text(_("none known"), "dim")]
    yield "events", [_rates(seen)]
    yield "queue", [_queue(seen)]
    yield "latency", [_latencies(seen.latencies)]
    yield (
        "threads",
        [_threads(seen), *(_doing(one, seen) for one in seen.threads.doing[:most])],
    )
    if seen.workers is not None:
        yield "workers", list(_workers(seen, seen.workers, most))
    yield "LINE", [_line(seen), *_month(seen)]
    yield "capacity", [_room(seen)]
    if seen.calls:
        yield "calls", [_call(row, seen) for row in seen.calls[:most]]


def grid(told: Sequence[Section]) -> Table:
    """The folded sections for a terminal."""
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(width=label_width(), no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    for label, lines in told:
        for n, line in enumerate(lines):
            table.add_row(Text("" if n else _(label), style="bold"), line)
    return table


def plain(told: Sequence[Section]) -> Iterator[str]:
    """The same without colours, with whole ids and lines."""
    for label, lines in told:
        for n, line in enumerate(lines):
            yield f"{padded('' if n else _(label), label_width())} {line.plain}".rstrip()


def _head(seen: Overview, problems: Sequence[HealthProblem]) -> Text:
    bad = sum(one.level == "bad" for one in problems)
    warn = len(problems) - bad
    head = Text(f"{local(seen.at)}  ")
    if not problems:
        return head.append(name_of_health([]), "bold green")
    counts = [_("{count} Critical").format(count=bad)] if bad else []
    counts += [_("{count} Warning").format(count=warn)] if warn else []
    return head.append(_(", ").join(counts), "bold red" if bad else "yellow")


def _problems(found: Sequence[HealthProblem], most: int) -> Iterator[Text]:
    for one in found[:most]:
        head = f"{one.sign} {one.name}: {one.topic}: "
        told = Text.assemble((head, STYLES[one.level]), visible(one.saw))
        yield told.append(f" → {visible(one.do)}", "dim")
    if len(found) > most:
        yield Text(_("and {count} more").format(count=len(found) - most), "yellow")


def _process(one: Process) -> Text:
    state = known(one.state)
    if one.state in (SILENT, processes.ENDED):
        ended = one.state == processes.ENDED
        state = _("ended {duration} ago") if ended else _("last seen {duration} ago")
        state = state.format(duration=for_long(one.silent_seconds))
    style = "green" if one.is_fresh and one.state == "working" else "yellow"
    told = Text(_("{role} {pid} on {host}").format(role=one.role, pid=one.pid, host=one.host) + " ")
    return told.append(state, style if one.is_fresh else "bold red").append(
        f"  {visible(known(one.why))}"
    )


def _rates(seen: Overview) -> Text:
    rates = seen.rates
    named = {
        _("accepted"): rates.accepted,
        _("read"): rates.read,
        _("decided"): rates.decided,
        _("calls"): rates.calls,
        _("timers fired"): rates.fired,
        _("refused"): rates.refused or None,
        _("spooled"): rates.spooled or None,
        _("failed"): rates.failed or None,
    }
    told = [
        _("{name} {rate}/s").format(name=name, rate=f"{value:.1f}")
        for name, value in named.items()
        if value is not None
    ]
    return Text("  ".join(told) or _("not known: no process reports"))


def _queue(seen: Overview) -> Text:
    queue = seen.queue
    if queue.documents is None:
        return Text(_("not known: no dispatcher runs"), "yellow")
    told = [_("{count:,.0f} unfinished").format(count=queue.documents)]
    if queue.documents:
        told.append(_("oldest {duration}").format(duration=brief(queue.oldest_seconds)))
    lag = _("lag {count:,.0f} ({duration})")
    told.append(
        lag.format(count=queue.lag_documents or 0, duration=brief(queue.lag_seconds or 0.0))
    )
    told.append(_("in process {count:,.0f}").format(count=queue.in_hand or 0))
    held = _("held {count:,.0f} of {conversations:,.0f} conversations")
    told.append(held.format(count=queue.held or 0, conversations=queue.held_keys or 0))
    told.append(_("outbox {count:,.0f}").format(count=queue.outbox_effects or 0))
    return Text("  ".join(told))


LATENCIES = {
    "store": mark("store"),
    "wait": mark("wait"),
    "handler": mark("handler"),
    "call": mark("call"),
}


def _latencies(found: Sequence[Latency]) -> Text:
    timed = [one for one in found if one.count and one.name in ("store", "wait", "handler")]
    calls = [one for one in found if one.count and one.name == "call"]
    if calls:
        timed.append(max(calls, key=lambda one: one.count))
    told = [f"{_(LATENCIES[one.name])} {brief(one.p50)} / {brief(one.p99)}" for one in timed]
    return Text("  ".join([*told, "(p50 / p99)"]) if told else _("nothing in the last minute"))


def _threads(seen: Overview) -> Text:
    threads = seen.threads
    if threads.all is None:
        return Text("-", "dim")
    busy = _("{busy:,.0f} of {count:,.0f} busy")
    told = Text(busy.format(busy=threads.busy or 0, count=threads.all))
    if threads.abandoned:
        abandoned = _("{count:,.0f} abandoned").format(count=threads.abandoned)
        told.append(f", {abandoned}", "yellow")
    return told


def _doing(one: Mapping[str, Any], seen: Overview) -> Text:
    took = f"{_age(one.get('since'), seen)}{_try(one, seen)}"
    words = _("{thread} {doing} for {duration}").format(
        thread=one.get("name"), doing=known(str(one.get("doing"))), duration=took
    )
    words = f"{words}  {_who(one, seen)}"
    return Text(visible(f"{words}  {one.get(EVENT_ID) or ''}").rstrip())


def _workers(seen: Overview, workers: WorkersView, most: int) -> Iterator[Text]:
    yield Text(workers.words(), "" if workers.working and not workers.broker else "bold red")
    for one in workers.processes[:most]:
        version = _("{release}, bot {bot}").format(release=one.release, bot=one.bot)
        told = Text(f"{visible(one.name)} ({visible(version)}) ")
        told.append(visible(one.words()), "green" if one.is_working else "yellow")
        busy = _("{busy:,} of {count:,} threads busy").format(busy=one.jobs, count=one.threads)
        yield told.append(f"  {busy}")
    for job in workers.jobs[:most]:
        words = _("{worker} for {duration}").format(
            worker=job["worker"], duration=_age(job["since"], seen)
        )
        yield Text(visible(f"{words}  {_who(job, seen)}  {job[EVENT_ID] or ''}").rstrip())


def _waiting(one: Mapping[str, Any], seen: Overview) -> Text:
    reason = one.get("why")
    why = known(reason) if reason else _("no reason known")
    duration = f"{_age(one.get('since'), seen)}{_try(one, seen)}"
    count = one.get("documents")
    # Without events the row is an outbox whose first send waits.
    if count:
        told = ngettext(
            "{count:,.0f} event for {duration}: {why}",
            "{count:,.0f} events for {duration}: {why}",
            count,
        )
    else:
        told = _("a send for {duration}: {why}")
    told = told.format(count=count, duration=duration, why=why)
    return Text(visible(f"{_who(one, seen)}  {told}"))


def _who(one: Mapping[str, Any], seen: Overview) -> str:
    name = seen.name_of(one)
    id_ = conversation_id(one.get("channel"), one.get("key"))
    return f"{one_line(cut(name, NAME_CELLS))} {id_}" if name else id_


def _age(since: datetime | None, seen: Overview) -> str:
    return brief(max(0.0, (seen.at - since).total_seconds())) if since is not None else "-"


def _try(one: Mapping[str, Any], seen: Overview) -> str:
    """The number of the handler's try and its age; empty before the first one."""
    if not one.get("try"):
        return ""
    most, since = seen.threads.handler_tries, one.get("trySince")
    # Runs that were lost with their worker are counted and cost no try.
    is_within = most and one["try"] <= most
    told = _("try {number} of {most:.0f}") if is_within else _("try {number}")
    told = told.format(number=one["try"], most=most)
    return f" ({told}, {_age(since, seen)})" if since is not None else f" ({told})"


def _line(seen: Overview) -> Text:
    told = Text()
    for gate in seen.gates:
        use = "-" if gate.use is None else f"{gate.use:.0%}"
        words = _("{host}: gate {use} used, {count:,.0f} waiting")
        words = words.format(host=gate.host, use=use, count=gate.waiting or 0)
        told.append(f"{words}{_lines(gate)}  ")
        if gate.breaker_open:
            told.append(_("circuit breaker open") + "  ", "bold red")
    if seen.sent.calls:
        told.append(f"{_sent(seen)}  ")
    if seen.counted_today is not None:
        told.append(_("{count:,.0f} counted today").format(count=seen.counted_today) + "  ")
    if seen.late_today:
        late = ngettext(
            "{count:,} late reply given up today",
            "{count:,} late replies given up today",
            seen.late_today,
        )
        told.append(late.format(count=seen.late_today) + "  ", "yellow")
    return told if told.plain else Text("-", "dim")


def _month(seen: Overview) -> Iterator[Text]:
    if seen.quota is not None:
        used = "-" if seen.quota.used is None else f"{seen.quota.used:,.0f}"
        told = Text(_("{used} this month, no limit").format(used=used))
        if seen.quota.messages is not None:
            quota = _("quota {used} of {most:,.0f}")
            told = Text(quota.format(used=used, most=seen.quota.messages))
        if seen.quota.closed_since is not None:
            closed = _("closed since {time}").format(time=local(seen.quota.closed_since))
            told.append(f", {closed}", "bold red")
        if seen.quota.ends_on is not None:
            told.append(
                "  " + _("at this rate the plan ends on {day}").format(day=seen.quota.ends_on)
            )
        yield told
    if seen.month != Sent():
        yield Text(_("this month: {sent}").format(sent=sent_words(seen.month)))


def _sent(seen: Overview) -> str:
    sends = ngettext("{count:,.0f} send", "{count:,.0f} sends", round(seen.sent.sends))
    calls = ngettext("{count:,.0f} call", "{count:,.0f} calls", round(seen.sent.calls))
    return _("{sends} in {calls}").format(
        sends=sends.format(count=seen.sent.sends), calls=calls.format(count=seen.sent.calls)
    )


def _lines(gate: GateView) -> str:
    """How many calls of each class wait, and how long the first of them has waited."""
    told = [
        _("{count:,.0f} {kind} up to {duration}").format(
            count=one.waiting, kind=known(one.name), duration=brief(one.longest_seconds)
        )
        for one in gate.classes
        if one.waiting
    ]
    return f" ({', '.join(told)})" if told else ""


def _room(seen: Overview) -> Text:
    queue, spool = seen.queue, seen.spool
    told = []
    if queue.unread_share is not None:
        told.append(_("recvq {share:.0%} unread").format(share=queue.unread_share))
    if queue.recvq_left_seconds is not None:
        left = _("queue retention left {duration}")
        told.append(left.format(duration=for_long(queue.recvq_left_seconds)))
    if queue.oplog_left_seconds is not None:
        left = _("oplog retention left {duration}")
        told.append(left.format(duration=for_long(queue.oplog_left_seconds)))
    if spool is not None:
        empty = _("spool empty") if spool.is_available else _("no spool")
        some = _("spool {count:,.0f}").format(count=spool.documents)
        told.append(some if spool.documents else empty)
    return Text("  ".join(told) or "-")


def _call(row: Mapping[str, Any], seen: Overview) -> Text:
    call = CallRecord.from_document(row)
    told = Text(f"{clock(call.at)}  {endpoint_words(call.endpoint)} ")
    told.append(
        str(call.status or _("no answer")), "green" if is_taken(call.status) else "bold red"
    )
    return told.append(visible(f"  {brief(call.ms / 1000)}  {_who(row, seen)}"))


def _letter(row: Mapping[str, Any], seen: Overview) -> Text:
    at = datetime.fromisoformat(row[LAST_AT]).strftime("%m-%d %H:%M") if row[LAST_AT] else "-"
    explained = dead_letters.explained(row)
    return Text(visible(f"{at}  {known(row['what'])}  {_who(row, seen)}  {explained}"))


EVERY_SECONDS = 1.0


def show_status(settings: Settings, *, watch: bool, as_json: bool) -> int:
    """Print the status. Returns 1 if any problem is Critical, as `linedesk doctor` does."""
    with open_database(settings, app_name="linedesk-status") as database:
        if not watch:
            seen = _look(database, settings)
            _show(seen, as_json=as_json)
            return _code(seen)
        with until_ctrl_c() as over:
            _watch(lambda: _look(database, settings), over, as_json=as_json)
    return Exit.INTERRUPTED


def _look(database: Database[Any], settings: Settings) -> Overview:
    """The overview; its calls get the channel, which their rows lack."""
    channel = settings.line_channel
    seen = read_overview(database, channel=channel)
    return replace(seen, calls=[{"channel": channel, **row} for row in seen.calls])


def show_history(settings: Settings, *, hours: float, as_json: bool) -> None:
    """Print the rows of the last hours, oldest first."""
    with open_database(settings, app_name="linedesk-history") as database:
        rows = read_history(database, hours=hours)
    for row in rows if as_json else ():
        echo_json(row)
    if not as_json:
        # Scripts read what a pipe gets.
        with speaking(language() if sys.stdout.isatty() else DEFAULT):
            _print_history(rows)


# Heads with the widths of their columns.
HISTORY: tuple[tuple[str, int], ...] = (
    *((mark("queue"), 8), (mark("oldest"), 9), (mark("lag"), 8), (mark("busy"), 4)),
    *((mark("read/s"), 8), (mark("decided/s"), 9), (mark("calls/s"), 8), (mark("wait p99"), 9)),
)


def _print_history(rows: Sequence[Mapping[str, Any]]) -> None:
    heads = (" " * (width - cell_len(_(head))) + _(head) for head, width in HISTORY)
    click.echo(" ".join([padded(_("at"), 25), *heads]))
    for row in rows:
        click.echo(_history_line(row))


def _history_line(row: Mapping[str, Any]) -> str:
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
        console = Console()
        console.print(grid(_folded(sections(seen), console.width)))
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
        told = _("MongoDB does not answer ({error}); retrying, Ctrl-C ends")
        return Text(told.format(error=error), "bold red")
    return grid(fitted(seen, height=console.height, width=console.width))
