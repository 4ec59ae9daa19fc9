"""Lists to browse without an id: conversations, and the events of the last hour or of a period.

The curves link to the events of a period: `from` and `to` of the address.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request, Response
from pymongo.database import Database

from linedesk.operate.conversation import ConversationLine, by_cause, latest, names_of, waiting
from linedesk.operate.dead_letters import moment_of
from linedesk.operate.events.lists import (
    MOST_EVENTS,
    EventLine,
    counted,
    events_between,
)
from linedesk.operate.events.verdict import RESULTS
from linedesk.page.page_context import PageContext
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark

EVERY_SECONDS = 5
MOST_SHOWN = 200
WITHIN = timedelta(hours=1)
# An id of MongoDB has the seconds since 1970 in 32 bits; a day is left for clocks that differ.
FIRST_SECOND, LAST_SECOND = 86_400, 2**32 - 86_400

ORDERS = {"latest": mark("Latest"), "waiting": mark("Waiting"), "name": mark("By name")}


@dataclass(frozen=True)
class Period:
    """From a moment to another; None leaves an end open."""

    since: datetime | None = None
    until: datetime | None = None
    problem: str | None = None
    """Why the request has no valid period, for a person."""

    def __bool__(self) -> bool:
        return self.since is not None or self.until is not None

    @property
    def query(self) -> str:
        """The same as the query of an address, with zones."""
        ends = {"from": self.since, "to": self.until}
        return urlencode({name: at.isoformat() for name, at in ends.items() if at is not None})


def asked_period(
    since: Annotated[str, Query(alias="from", max_length=40)] = "",
    until: Annotated[str, Query(alias="to", max_length=40)] = "",
) -> Period:
    """Return the period of an address, as the curves link to it."""
    now, asked = datetime.now(UTC), (since, until)
    try:
        since_at, until_at = (moment_of(one, now=now) if one.strip() else None for one in asked)
    except (ValueError, OverflowError):
        words = _("{text!r} is not a time. Write 2026-11-21T09:00, or 30m, 2h or 3d ago")
        return Period(problem=words.format(text=" ".join(asked).strip()))
    if any(at and not FIRST_SECOND <= at.timestamp() <= LAST_SECOND for at in (since_at, until_at)):
        return Period(problem=_("MongoDB has no such time"))
    return Period(since_at, until_at)


def browse_routes(context: PageContext) -> APIRouter:
    """Return the routes of the lists. Each refreshes itself and reads a bounded number of rows."""
    router = APIRouter(dependencies=[Depends(context.everything_paused)])

    @router.get("/conversations")
    async def conversations(request: Request, order: str = "latest") -> Response:
        order = order if order in ORDERS else "latest"
        lines = await context.read(waiting if order == "waiting" else latest)
        if order == "name":
            lines = sorted(lines, key=_by_name)
        told = {"order": order, "orders": ORDERS.items(), "every": EVERY_SECONDS}
        told["alone"], told["groups"] = lines, {}
        if order == "waiting":
            told["alone"], told["groups"] = by_cause(lines, lambda one: one.why or "")
        return context.page(request, "conversations.html", told)

    @router.get("/events")
    async def events(
        request: Request, period: Annotated[Period, Depends(asked_period)], result: str = ""
    ) -> Response:
        found = await context.read(lambda database: _events(database, period))
        told = {
            **await shown_events(context, found, result),
            "is_cut": len(found) == MOST_EVENTS,
            "all": len(found),
            # A result without an event has its filter, too.
            "counts": dict.fromkeys(RESULTS, 0) | counted(found),
            "period": period,
            "every": EVERY_SECONDS,
        }
        return context.page(request, "events.html", told)

    return router


async def shown_events(
    context: PageContext, found: Sequence[EventLine], result: str
) -> dict[str, Any]:
    """Return the events with a result, or all events, with the names of their users."""
    fits = [one for one in found if result not in RESULTS or one.outcome.result == result]
    shown = fits[:MOST_SHOWN]
    ids = [f"{one.channel}/{one.key}" for one in shown]
    return {
        "lines": shown,
        "left_out": len(fits) - len(shown),
        "result": result if result in RESULTS else "",
        "names": await context.read(lambda database: names_of(database, ids)),
    }


def _events(database: Database[Any], period: Period) -> list[EventLine]:
    if period:
        return events_between(database, period.since, period.until)
    return events_between(database, datetime.now(UTC) - WITHIN, None)


def _by_name(line: ConversationLine) -> tuple[bool, str, str]:
    """Return the order by name, with unnamed conversations last."""
    return line.name is None, (line.name or "").casefold(), line.id
