"""The values of the templates of overview and story, besides both themselves. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from linedesk.operate.acts import Head
from linedesk.operate.conversation import by_cause, cause_of, is_long
from linedesk.operate.health import (
    is_line_away,
    name_of_health,
    next_try_words,
    problems_of,
    worst_of,
)
from linedesk.operate.history import PAUSING
from linedesk.operate.overview import Overview
from linedesk.page.charts import HOURS
from linedesk.page.flow_chart import flows, nodes
from linedesk.page.format import seconds
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark

HOSTS = {"api": "api.line.me", "data": "api-data.line.me"}
# The label of a tile, and the place of its causes.
TILES = {
    "store": (mark("Webhook to stored"), "#processes"),
    "wait": (mark("Stored to handler"), "#waiting"),
    "handler": (mark("Handler"), "#threads"),
    "call": (mark("Call of LINE"), "/calls"),
}
# The place of the details of a problem, by its key.
DETAILS = {
    "dead letters": "/letters",
    "paused": "/pauses",
    "threads": "#threads",
    "workers": "#workers",
    "LINE": "/calls?failed=true",
    **dict.fromkeys(("gate", "quota"), "#line"),
    **dict.fromkeys(("waiting", "queue", "answers"), "#waiting"),
    **dict.fromkeys(("lag", "recvq", "oplog"), "#curves"),
}
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
    return {
        "seen": value,
        "alone": alone,
        "groups": groups,
        "problems": [(one, DETAILS.get(one.about, "#processes")) for one in problems],
        "level": None if is_stale else worst_of(problems) or "ok",
        "level_name": name_of_health(problems),
        "counts": Counter(one.level for one in problems),
        "nodes": nodes(value, problems, is_stale=is_stale),
        "flows": flows(value, is_stale=is_stale),
        "timed": [_timed(name, value) for name in TILES],
        "retention": _retention(value),
        "most_rows": MOST_ROWS,
        "is_line_away": is_line_away(value),
        "next_try": next_try_words,
        "all_hours": HOURS,
        "hosts": HOSTS,
    }


def _timed(name: str, value: Overview) -> dict[str, Any]:
    """Return the tile of a kind of step: its median and its 99th percentile."""
    label, href = TILES[name]
    found = [one for one in value.latencies if one.name == name and one.count]
    slowest = max(found, key=lambda one: one.p99 or 0.0, default=None)
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
