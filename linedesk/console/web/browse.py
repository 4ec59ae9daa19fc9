"""Lists to browse without an id: conversations, the events of a period, timers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from pymongo.database import Database

from linedesk.console.conversation import names_of
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
from linedesk.console.web.period import Period, asked_period

EVERY_SECONDS = 5
MOST_SHOWN = 200
WITHIN = timedelta(hours=1)
ORDERS = {"latest": "Latest", "waiting": "Waiting", "name": "By name"}


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
