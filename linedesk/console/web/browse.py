"""Lists to browse without an id: conversations, the events of a period, timers.

A period stands in the address: `from`, `to` and the zone of who asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Depends, Query, Request, Response
from pymongo.database import Database

from linedesk.console.conversation import names_of
from linedesk.console.dead_letters import moment_of
from linedesk.console.lists.conversations import ConversationLine, latest, waiting
from linedesk.console.lists.events import (
    MOST_EVENTS,
    RESULTS,
    EventLine,
    counted,
    events_between,
    newest_events,
)
from linedesk.console.lists.timers import timers_due
from linedesk.console.web.page_context import PageContext

EVERY_SECONDS = 5
MOST_SHOWN = 200
WITHIN = timedelta(hours=1)
# An id of MongoDB has the seconds since 1970 in 32 bits; a day is left for clocks that differ.
FIRST_SECOND, LAST_SECOND = 86_400, 2**32 - 86_400
FORMS = "Write 2026-11-21T09:00, or 30m, 2h or 3d ago"

ORDERS = {"latest": "Latest", "waiting": "Waiting", "name": "By name"}


@dataclass(frozen=True)
class Period:
    """From a moment to another; None leaves an end open."""

    since: datetime | None = None
    until: datetime | None = None
    problem: str | None = None
    """Why what was asked for is no period, for a person."""

    def __bool__(self) -> bool:
        return self.since is not None or self.until is not None

    @property
    def query(self) -> str:
        """The same as the query of an address, whatever the zone of the next one who opens it."""
        ends = {"from": self.since, "to": self.until}
        return urlencode({name: at.isoformat() for name, at in ends.items() if at is not None})


def asked_period(
    since: Annotated[str, Query(alias="from", max_length=40)] = "",
    until: Annotated[str, Query(alias="to", max_length=40)] = "",
    zone: Annotated[str, Query(max_length=64)] = "",
) -> Period:
    """That of an address; `zone` is the browser's, in which its form has the moments."""
    try:
        asked = _moment(since, zone), _moment(until, zone)
    except (ValueError, OverflowError) as error:
        return Period(problem=str(error))
    if None not in asked and asked[0] >= asked[1]:  # type: ignore[operator]
        return Period(problem="The period ends before it begins")
    return Period(*asked)


def _moment(text: str, zone: str) -> datetime | None:
    """Raises ValueError for what is no moment, with words for a person."""
    if not text.strip():
        return None
    try:
        found = moment_of(text, now=datetime.now(UTC), zone=_zone(zone))
        if not FIRST_SECOND <= found.timestamp() <= LAST_SECOND:
            raise ValueError
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is no time. {FORMS}") from None
    return found


def _zone(name: str) -> ZoneInfo | None:
    """None where the address names none, or none that this machine knows: then the server's."""
    try:
        return ZoneInfo(name) if name else None
    except (KeyError, ValueError, OSError):
        return None


def browse_routes(context: PageContext) -> APIRouter:
    """Each list refreshes itself, and reads a bounded number of rows."""
    router = APIRouter(dependencies=[Depends(context.visitor), Depends(context.everything_paused)])

    @router.get("/conversations")
    async def conversations(request: Request, order: str = "latest") -> Response:
        order = order if order in ORDERS else "latest"
        lines = await context.read(waiting if order == "waiting" else latest)
        if order == "name":
            lines = sorted(lines, key=_by_name)
        told = {"lines": lines, "order": order, "orders": ORDERS.items(), "every": EVERY_SECONDS}
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
            "counts": counted(found),
            "period": period,
            "every": EVERY_SECONDS,
        }
        return context.page(request, "events.html", told)

    @router.get("/timers")
    async def timers(request: Request) -> Response:
        lines = await context.read(timers_due)
        ids = [f"{one.channel}/{one.key}" for one in lines]
        names = await context.read(lambda database: names_of(database, ids))
        told = {"lines": lines, "names": names, "now": datetime.now(UTC), "every": EVERY_SECONDS}
        return context.page(request, "timers.html", told)

    return router


async def shown_events(
    context: PageContext, found: Sequence[EventLine], result: str
) -> dict[str, Any]:
    """The events of a list that have a result, or all of them, with the names of their users."""
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
    return newest_events(database, since=datetime.now(UTC) - WITHIN)


def _by_name(line: ConversationLine) -> tuple[bool, str, str]:
    """Those without a name last."""
    return line.name is None, (line.name or "").casefold(), line.id
