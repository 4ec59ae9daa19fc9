"""The values of the templates of overview and story, besides both themselves. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from linedesk.operate.acts import Head
from linedesk.operate.conversation import by_cause, cause_of, is_long
from linedesk.operate.format import scope_words
from linedesk.operate.health import (
    HealthProblem,
    is_line_away,
    name_of_health,
    next_try_words,
    problems_of,
    worst_of,
)
from linedesk.operate.history import PAUSING
from linedesk.operate.overview import Latency, Overview
from linedesk.operate.text import known
from linedesk.page.charts import HOURS
from linedesk.page.flow_chart import flows, nodes
from linedesk.page.format import seconds
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark
from linedesk.store.control import Pause
from linedesk.store.documents import Document

HOSTS = {"api": "api.line.me", "data": "api-data.line.me"}
# The label of a tile, and the place of its causes.
TILES = {
    "store": (mark("Webhook to stored"), "#processes"),
    "wait": (mark("Stored to handler"), "#waiting"),
    "handler": (mark("Handler"), "#threads"),
    "call": (mark("Call of LINE"), "/calls"),
}
SPANS = {
    **{name: label for name, (label, _place) in TILES.items()},
    "gate": mark("Wait for the gate"),
    "save": mark("Save of progress"),
    "ring": mark("Timer, late by"),
}
# The terms on the overview: the texts under the pointer, and the list at its end.
WORDS = {
    mark("Unfinished"): mark(
        "Events that are stored and not decided yet: not read, in progress, or held."
    ),
    mark("Answers to send"): mark(
        "Decided sends that LINE has not taken yet. The time below is the wait of the oldest "
        "send's event."
    ),
    mark("Not read yet"): mark("Events in recvq that the dispatcher has not read."),
    mark("Webhook to stored"): mark(
        "From the arrival of a webhook to the moment when its events are stored."
    ),
    mark("Stored to handler"): mark("From the arrival of an event to the start of its handler."),
    mark("Handler"): mark("How long the bot's handler runs."),
    mark("Call of LINE"): mark(
        "The time until LINE answers a call, and whether LINE takes calls at all."
    ),
    mark("Queue retention left"): mark(
        "How long recvq and the oplog keep unfinished events at the present rate. The rate is "
        "that of the last hour, or since the dispatcher took the lead."
    ),
    mark("p50, p90, p99"): mark(
        "50, 90 and 99 percent of the values of the last minute are at most this value."
    ),
    mark("Try"): mark("How often the handler was called for the event, of HANDLER_TRIES."),
    mark("Release"): mark(
        "Gives up the event or send that blocks a conversation. It becomes a dead letter, and the "
        "next events are handled."
    ),
    mark("Bot version"): mark(
        "The version of the bot in a worker process. Only workers of one version get jobs: the "
        "version with most threads."
    ),
}
# The place of the details of a problem, by its key.
DETAILS = {
    "waiting": ("#waiting", mark("Show waiting")),
    "dead letters": ("/letters?since=1d", mark("Show dead letters")),
    "paused": ("/pauses", mark("Show pauses")),
    "threads": ("#threads", mark("Show threads")),
    "workers": ("#workers", mark("Show workers")),
    "LINE": ("/calls?failed=true", mark("Show failed calls")),
    **dict.fromkeys(("gate", "quota"), ("#line", mark("Show LINE"))),
    **dict.fromkeys(("queue", "answers"), ("#waiting", mark("Show waiting"))),
    **dict.fromkeys(("lag", "recvq", "oplog"), ("#curves", mark("Show curves"))),
}
PROCESSES = ("#processes", mark("Show processes"))
# A list on the overview shows so many rows.
MOST_ROWS = 8
# The rates of recvq and oplog are measured for an hour, if a dispatcher was the leader so long.
SHORT_SECONDS = 55 * 60.0


def seen(value: Overview | None, *, is_stale: bool = False) -> dict[str, Any]:
    """Return the values of the overview's template.

    `level` is `ok` or the worst level of the problems; None where the state is not known.
    """
    if value is None:
        return {"seen": None, "level": None}
    problems = problems_of(value)
    waiting = (one for one in value.waiting if is_long(one.get("since"), now=value.at))
    alone, groups = by_cause(waiting, lambda one: cause_of(one.get("why")))
    spans = {name: [one for one in value.latencies if one.name == name] for name in SPANS}
    return {
        "seen": value,
        "alone": alone,
        "groups": groups,
        "alerts": alerts(problems, value),
        "level": None if is_stale else worst_of(problems) or "ok",
        "level_name": name_of_health(problems),
        "counts": Counter(one.level for one in problems),
        "nodes": nodes(value, problems, is_stale=is_stale),
        "flows": flows(value, is_stale=is_stale),
        "timed": [_timed(name, _slowest(spans[name]), value) for name in TILES],
        "retention": _retention(value),
        "most_rows": MOST_ROWS,
        "is_line_away": is_line_away(value),
        "next_try": next_try_words,
        "spans": [
            (f"{_(label)} {known(one.label)}".strip(), one)
            for name, label in SPANS.items()
            for one in spans[name]
            if one.count
        ],
        "all_hours": HOURS,
        "hosts": HOSTS,
        "words": WORDS,
    }


def _timed(name: str, slowest: Latency | None, value: Overview) -> dict[str, Any]:
    """Return the tile of a kind of step: its median and its 99th percentile."""
    label, href = TILES[name]
    told: dict[str, Any] = {"name": label, "href": href, "is_bad": False}
    calls = value.latest_calls
    if name == "call" and (calls.all_failed or (is_line_away(value) and not calls.count)):
        told |= {"href": "/calls?failed=true", "is_bad": True}
        if not calls.count:
            return told | {"figure": _("no calls"), "more": _("LINE fails")}
        latest = _("the latest {count}, in the last minute").format(count=calls.count)
        return told | {"figure": _("all failed"), "more": latest}
    if slowest is None:
        return told | {"figure": seconds(None), "more": _("none in the last minute")}
    more = _("p99 {time} in the last minute").format(time=seconds(slowest.p99))
    if name == "call" and calls.failed:
        failed = _("{count} of the latest {all} failed")
        more = f"{more} · {failed.format(count=calls.failed, all=calls.count)}"
    return told | {"figure": seconds(slowest.p50), "more": more}


def _retention(value: Overview) -> dict[str, Any]:
    """Return the tile of the retention; without a figure before an hour of measuring."""
    queue = value.queue
    measured = queue.retention_measured_seconds
    if measured is not None and measured < SHORT_SECONDS:
        more = _("known after an hour; measured for {time}").format(time=seconds(measured))
        return {"left": None, "more": more}
    left = [queue.recvq_left_seconds, queue.oplog_left_seconds]
    more = f"recvq {seconds(left[0])} · oplog {seconds(left[1])}"
    return {"left": min((one for one in left if one is not None), default=None), "more": more}


@dataclass(frozen=True)
class Alert:
    """A problem with the place of its details; of a pause also with the pause."""

    problem: HealthProblem
    saw: str
    href: str
    label: str
    pause: Document | None = None
    is_obeyed: bool = True

    def is_banner(self, everything_paused: Pause | None) -> bool:
        """Return whether the banner on top of every page shows it."""
        if everything_paused is None or self.pause is None or self.pause.get("key"):
            return False
        return bool(self.pause.get("channel") == everything_paused.scope.channel)


def alerts(problems: Sequence[HealthProblem], value: Overview) -> list[Alert]:
    """Return the problems with the place of their details."""
    # Both lists have the pauses in the same order: a pause of everything is the worst.
    paused = iter(sorted(value.pauses, key=lambda one: bool(one.get("channel"))))
    obeyed = [(one.get("channel"), one.get("key")) for one in value.obeyed or ()]
    told = []
    for one in problems:
        href, label = DETAILS.get(one.about, PROCESSES)
        if one.about != "paused" or (pause := next(paused, None)) is None:
            told.append(Alert(one, one.saw, href, label))
            continue
        scope, saw = (pause.get("channel"), pause.get("key")), one.saw
        if scope[1]:
            # The page links to a conversation by its name.
            saw = saw.removeprefix(scope_words(*scope)).strip()
        is_obeyed = value.obeyed is None or scope in obeyed
        told.append(Alert(one, saw, href, label, pause, is_obeyed))
    return told


def _slowest(found: list[Latency]) -> Latency | None:
    return max((one for one in found if one.count), key=lambda one: one.p99 or 0.0, default=None)


def choices_of(found: Sequence[Head]) -> list[tuple[Head, bool]]:
    """Return the heads of a conversation, each with whether its release is offered."""
    now = datetime.now(UTC)
    return [(head, head.is_stuck(now)) for head in found]


def targets(row: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """Return the targets of an act: texts, each with its page, if there is one."""
    on, act = row.get("on"), row.get("act")
    words = [str(one) for one in on] if isinstance(on, list) else [str(on or "")]
    # A dropped letter has only the story of its event.
    kind = {"replay": "letters", "drop": "event"}.get(str(act))
    if kind is not None:
        return [(one, f"/{kind}/{quote(one, safe='')}") for one in words]
    if act not in (*PAUSING, "release"):
        return [(one, None) for one in words]
    scope, _, event = words[0].partition(" ")
    found = [(scope, f"/conversation/{quote(scope)}" if "/" in scope else None)]
    return [*found, (event, f"/event/{quote(event, safe='')}")] if event else found
