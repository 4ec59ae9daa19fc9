"""The overview as `linedesk status` shows it: problems first, which the figures do not repeat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.text import Text

from linedesk.commands.listing import who
from linedesk.operate import processes
from linedesk.operate.format import brief, for_long, local, one_line, visible
from linedesk.operate.health import HealthProblem, name_of_health, problems_of, sent_words
from linedesk.operate.overview import Latency, Overview, Sent
from linedesk.operate.processes import Process
from linedesk.operate.text import known
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark, ngettext
from linedesk.runtime.status_row import SILENT
from linedesk.store.records.letters import LAST_AT, Cause

STYLES = {"bad": "bold red", "warn": "yellow"}
# The most waiting conversations, and the most causes.
MANY = 10


def sections(seen: Overview) -> Iterator[tuple[str, list[Text]]]:
    """The labels and lines of the overview: problems first."""
    found = problems_of(seen)
    yield _("linedesk"), [_head(seen, found), *_problems(found)]
    if seen.waiting:
        yield _("waiting"), [_waiting(one, seen) for one in seen.waiting[:MANY]]
    if seen.causes:
        yield _("dead"), [_cause(row) for row in seen.causes[:MANY]]
    yield (
        _("processes"),
        [_process(one) for one in seen.processes] or [Text(_("none known"), "dim")],
    )
    yield _("events"), [_rates(seen)]
    yield _("queue"), [_queue(seen)]
    yield _("latency"), [_latencies(seen.latencies)]
    yield _("threads"), [_threads(seen)]
    if (workers := seen.workers) is not None:
        style = "" if workers.working and not workers.broker else "bold red"
        yield _("workers"), [Text(workers.words(), style)]
    yield _("LINE"), [_line(seen), *_month(seen)]
    yield _("capacity"), [_room(seen)]


def _head(seen: Overview, problems: Sequence[HealthProblem]) -> Text:
    bad = sum(one.level == "bad" for one in problems)
    warn = len(problems) - bad
    head = Text(f"{local(seen.at)}  ")
    if not problems:
        return head.append(name_of_health([]), "bold green")
    counts = [_("{count} Critical").format(count=bad)] if bad else []
    counts += [_("{count} Warning").format(count=warn)] if warn else []
    return head.append(_(", ").join(counts), "bold red" if bad else "yellow")


def _problems(found: Sequence[HealthProblem]) -> Iterator[Text]:
    for one in found:
        head = f"{one.sign} {one.name}: {one.topic}: "
        told = Text.assemble((head, STYLES[one.level]), visible(one.saw))
        yield told.append(f" → {visible(one.do)}", "dim")


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
    return Text(busy.format(busy=threads.busy or 0, count=threads.all))


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
    return one_line(who({**one, "name": seen.name_of(one)}))


def _age(since: datetime | None, seen: Overview) -> str:
    return brief(max(0.0, (seen.at - since).total_seconds())) if since is not None else "-"


def _try(one: Mapping[str, Any], seen: Overview) -> str:
    """The number of the handler's try and its age; empty before the first one."""
    if not one.get("try"):
        return ""
    why, since = one.get("why"), one.get("trySince")
    most = why.get("tries") if isinstance(why, Mapping) else None
    most = most or seen.threads.handler_tries
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
        told.append(f"{words}  ")
    return told if told.plain else Text("-", "dim")


def _month(seen: Overview) -> Iterator[Text]:
    if seen.quota is not None:
        used = "-" if seen.quota.used is None else f"{seen.quota.used:,.0f}"
        told = Text(_("{used} this month, no limit").format(used=used))
        if seen.quota.messages is not None:
            quota = _("quota {used} of {most:,.0f}")
            told = Text(quota.format(used=used, most=seen.quota.messages))
        if seen.quota.ends_on is not None:
            ends = _("at this rate the plan ends on {day}").format(day=seen.quota.ends_on)
            told.append(f"  {ends}")
        yield told
    if seen.month != Sent():
        yield Text(_("this month: {sent}").format(sent=sent_words(seen.month)))


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


def _cause(row: Mapping[str, Any]) -> Text:
    words = _("{count:,} × {cause}, the last {at}").format(
        count=row["count"], cause=known(Cause(row["cause"], row["about"])), at=local(row[LAST_AT])
    )
    return Text(visible(words))
