"""The pages without acts: overview, conversation, story of an event, search, and the lists.

The curves link to the events of a period: `from` and `to` of the address. An open page fetches
itself again and again, with a header. The answer then has no curves, which are refreshed less
often.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse
from pydantic import AwareDatetime, Field
from pymongo.database import Database

from linedesk.operate.acts import heads, newest
from linedesk.operate.calls import Wanted, newest_calls
from linedesk.operate.conversation import (
    ConversationLine,
    by_cause,
    conversation_summary,
    latest,
    names_of,
    read_conversation,
    waiting,
    with_names,
)
from linedesk.operate.events.lists import (
    MOST_EVENTS,
    EventLine,
    events_between,
    events_of,
)
from linedesk.operate.events.story import tell
from linedesk.operate.events.verdict import RESULTS
from linedesk.operate.find import MOST_FOUND
from linedesk.operate.find import search as find
from linedesk.operate.health import overview_as_json
from linedesk.operate.history import read_history, read_marks
from linedesk.operate.overview import read_overview
from linedesk.operate.pauses import MOST_ON_PAGE, read_waiting
from linedesk.operate.text import NotOneConversation
from linedesk.page.charts import HOURS, Chart, charts
from linedesk.page.live import LiveReadings
from linedesk.page.page_context import PageContext
from linedesk.page.view_models import choices_of, seen, targets
from linedesk.runtime.language import LANGUAGES, language
from linedesk.store.control import Scope
from linedesk.store.documents import CONTROL, Document

# All viewers together; each page fetches itself as often.
OVERVIEW_SECONDS = 1.0
# A dispatcher writes a row each ten seconds.
HISTORY_SECONDS = 10.0
# The refresh interval of a page; the overview refreshes each second.
EVERY_SECONDS = 2
# A search of calls may read some 25 MB.
LISTS_SECONDS = 5
LONGEST_WORD = 200
MOST_CALLS = 100
MOST_LETTERS = 10
LOOK_MS = 2_000
MOST_SHOWN = 200
WITHIN = timedelta(hours=1)
# An id of MongoDB has the seconds since 1970 in 32 bits; a day is left for clocks that differ.
FIRST, LAST = (datetime.fromtimestamp(at, UTC) for at in (86_400, 2**32 - 86_400))
Moment = Annotated[AwareDatetime, Field(ge=FIRST, le=LAST)]


class Period(NamedTuple):
    """From a moment to another; None leaves an end open."""

    since: datetime | None
    until: datetime | None

    @property
    def query(self) -> str:
        """The same as the query of an address; empty without a moment."""
        ends = {"from": self.since, "to": self.until}
        return urlencode({name: at.isoformat() for name, at in ends.items() if at is not None})


def asked_period(
    since: Annotated[Moment | None, Query(alias="from")] = None,
    until: Annotated[Moment | None, Query(alias="to")] = None,
) -> Period:
    """Return the period of an address, as the curves link to it."""
    return Period(since, until)


def page_routes(context: PageContext, *, overview_seconds: float = OVERVIEW_SECONDS) -> APIRouter:
    """Return the routes of all pages; each is a plain GET that works without a script.

    The problems of the overview name a pause of everything, so it needs no banner.
    """
    router = APIRouter()
    _overview_routes(router, context, overview_seconds)
    others = APIRouter(dependencies=[Depends(context.everything_paused)])
    _found_routes(others, context)
    _list_routes(others, context)
    router.include_router(others)
    return router


def _overview_routes(router: APIRouter, context: PageContext, overview_seconds: float) -> None:
    overviews = LiveReadings(
        context.reader,
        lambda: read_overview(context.reading),
        every_seconds=overview_seconds,
    )
    curves = {(hours, name): _curves(context, hours, name) for hours in HOURS for name in LANGUAGES}

    @router.get("/")
    async def overview(request: Request, hours: int = 1) -> Response:
        hours = hours if hours in HOURS else HOURS[0]
        if "application/json" in request.headers.get("accept", ""):
            read = await overviews.latest()
            found = overview_as_json(read.value) if read.value else {}
            return JSONResponse({**found, "trouble": read.trouble})
        # An open page fetches itself with this header.
        is_again = "x-live" in request.headers
        drawing = None if is_again else asyncio.create_task(curves[hours, language()].latest())
        read = await overviews.latest()
        drawn = (await drawing).value if drawing else None
        told = {"charts": drawn or [], "hours": hours, "every": 1}
        told |= {"trouble": read.trouble, "read_at": read.at}
        found = seen(read.value, is_stale=read.trouble is not None)
        return context.page(request, "overview.html", {**found, **told})

    @router.get("/charts")
    async def only_curves(request: Request, hours: int = 1) -> Response:
        hours = hours if hours in HOURS else HOURS[0]
        read = await curves[hours, language()].latest()
        told = {"charts": read.value or [], "hours": hours, "trouble": read.trouble}
        return context.page(request, "charts.html", told)


def _found_routes(router: APIRouter, context: PageContext) -> None:
    """Add the routes of a conversation, of the story of an event, and of the search."""

    @router.get("/conversation/{channel}/{key}")
    async def conversation(request: Request, channel: str, key: str) -> Response:
        text = context.console.text
        told = await context.read(lambda database: _conversation(database, channel, key))
        lines: list[EventLine] = await context.read(
            lambda database: events_of(database, channel, key, text=text)
        )
        if not told["is_known"] and not lines:
            raise NotOneConversation(f"{channel}/{key}", [])
        told |= {"every": EVERY_SECONDS, "word": key, "lines": lines}
        return context.page(request, "conversation.html", told)

    @router.get("/event/{id_:path}")
    async def event(request: Request, id_: str) -> Response:
        text = context.console.text
        story = await context.read(lambda database: tell(database, id_, text=text))
        if "application/json" in request.headers.get("accept", ""):
            # For people who read it elsewhere, so in the language of the request.
            return JSONResponse({"event": story.event_id, **vars(story.outcome)})
        told = {"story": story, "every": EVERY_SECONDS, "word": id_}
        return context.page(request, "event.html", told)

    @router.get("/search")
    async def search(request: Request, q: str = "") -> Response:
        word, channel = q.strip()[:LONGEST_WORD], context.console.channel
        if not word:
            return RedirectResponse("/", status_code=303)
        found = await context.read(lambda database: find(database, word, channel=channel))
        hits = found.hits
        if len(hits) == 1 and not found.unseen:
            return RedirectResponse(f"/{hits[0].kind}/{quote(hits[0].id)}", status_code=303)
        told = {"word": word, "hits": hits, "most": MOST_FOUND, "unseen": found.unseen}
        return context.page(request, "search.html", told, status=200 if hits else 404)


def _list_routes(router: APIRouter, context: PageContext) -> None:
    """Add the lists. Each refreshes itself and reads a bounded number of rows."""

    @router.get("/conversations")
    async def conversations(request: Request, order: str = "latest") -> Response:
        is_waiting = order == "waiting"
        alone = await context.read(waiting if is_waiting else latest)
        groups = dict[str, list[ConversationLine]]()
        if is_waiting:
            alone, groups = by_cause(alone, lambda one: one.why or "")
        told = {"is_waiting": is_waiting, "alone": alone, "groups": groups, "every": LISTS_SECONDS}
        return context.page(request, "conversations.html", told)

    @router.get("/events")
    async def events(
        request: Request, period: Annotated[Period, Depends(asked_period)], result: str = ""
    ) -> Response:
        since = period.since if period.query else datetime.now(UTC) - WITHIN
        found = await context.read(lambda database: events_between(database, since, period.until))
        result = result if result in RESULTS else ""
        fits = [one for one in found if result in ("", one.outcome.result)]
        ids = [f"{one.channel}/{one.key}" for one in fits[:MOST_SHOWN]]
        told = {
            "lines": fits[:MOST_SHOWN],
            "left_out": max(0, len(fits) - MOST_SHOWN),
            "result": result,
            "names": await context.read(lambda database: names_of(database, ids)),
            "is_cut": len(found) == MOST_EVENTS,
            "all": len(found),
            # A result without an event has its filter, too.
            "counts": dict.fromkeys(RESULTS, 0) | Counter(one.outcome.result for one in found),
            "period": period,
            "every": LISTS_SECONDS,
        }
        return context.page(request, "events.html", told)

    @router.get("/calls")
    async def calls(
        request: Request,
        period: Annotated[Period, Depends(asked_period)],
        failed: bool = False,
        key: str = "",
    ) -> Response:
        since, until, channel = period.since, period.until, context.console.channel
        wanted = Wanted(since, until, failed=failed, key=key.strip() or None, limit=MOST_CALLS)
        rows = await context.read(
            lambda database: with_names(database, newest_calls(database, wanted), channel=channel)
        )
        told = {"calls": rows, "failed": failed, "key": key, "period": period}
        told["every"] = LISTS_SECONDS
        return context.page(request, "calls.html", told)

    @router.get("/audit")
    async def audit(request: Request) -> Response:
        rows = await context.read(newest)
        acts = [(row, targets(row)) for row in rows]
        ids = [words for _, found in acts for words, path in found if path and "/conv" in path]
        names = await context.read(lambda database: names_of(database, ids))
        told = {"every": EVERY_SECONDS, "acts": acts, "names": names}
        return context.page(request, "audit.html", told)


def _curves(context: PageContext, hours: int, name: str) -> LiveReadings[list[Chart]]:
    """Return the curves in one language, drawn in some 20 ms on the thread that reads them."""

    def read() -> list[Chart]:
        rows = read_history(context.reading, hours=hours)
        marks = read_marks(context.reading, hours=hours)
        return charts(rows, hours=hours, now=datetime.now(UTC), marks=marks)

    return LiveReadings(context.reader, read, every_seconds=HISTORY_SECONDS, language=name)


def _conversation(database: Database[Any], channel: str, key: str) -> Document:
    whose = {"channel": channel, "key": key}
    id_ = f"{channel}/{key}"
    try:
        found, is_known = read_conversation(database, id_), True
    except NotOneConversation:
        # A conversation without a record: its events all wait, or were given up.
        found, is_known = conversation_summary({"_id": id_, **whose}), False
    about = {name: {"$in": [None, value]} for name, value in whose.items()}
    pauses = list(database[CONTROL].find({"act": "pause", **about}, max_time_ms=LOOK_MS))
    return {
        "told": found,
        "is_known": is_known,
        "letters": found["letters"][:MOST_LETTERS],
        "release": found["release"],
        "people": found["names"] | {key: found["name"]},
        "whose": whose,
        "heads": choices_of(heads(database, channel, key)),
        "pauses": pauses,
        "waiting": read_waiting(database, Scope(channel, key), most=MOST_ON_PAGE),
        "own_pause": any(one.get("key") for one in pauses),
    }
