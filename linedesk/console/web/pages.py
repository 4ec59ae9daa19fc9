"""The pages that only show: overview, conversation, story of an event, dead letters, calls, audit.

An open page fetches itself again and again, and says so. It then gets neither curves nor the list
of recent events, which are refreshed less often.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse
from pymongo.database import Database

from linedesk.console.acts import heads, newest
from linedesk.console.calls import Wanted, newest_calls
from linedesk.console.conversation import conversation_summary, read_conversation
from linedesk.console.dead_letters import Choice, found, frames, moment_of, summary, whole
from linedesk.console.errors import NoSuchLetter, NotOneConversation
from linedesk.console.format import as_json
from linedesk.console.health import overview_as_json
from linedesk.console.history import read_history
from linedesk.console.overview import read_overview
from linedesk.console.search import meaning_of, recent
from linedesk.console.story import tell
from linedesk.console.web.charts import HOURS, Chart, charts
from linedesk.console.web.live import LiveReadings
from linedesk.console.web.page_context import PageContext
from linedesk.console.web.view_models import labelled, seen, without_text
from linedesk.store.documents import CONTROL, DEADLETTERS, Document

# All viewers together; each page fetches itself as often.
OVERVIEW_SECONDS = 1.0
# A dispatcher writes a row each ten seconds.
HISTORY_SECONDS = 10.0
# A page of one thing asks for itself each so many seconds; the overview each second.
EVERY_SECONDS = 2
# Of calls some 25 MB may have to be looked through.
CALLS_SECONDS = 5
LONGEST_WORD = 200
MOST_LETTERS = 100
MOST_CALLS = 100
LOOK_MS = 2_000


def page_routes(context: PageContext, *, overview_seconds: float = OVERVIEW_SECONDS) -> APIRouter:
    """Every page; each is a plain GET that works without a script."""
    router = APIRouter(dependencies=[Depends(context.visitor)])
    _overview_routes(router, context, overview_seconds)
    _found_routes(router, context)
    _list_routes(router, context)
    return router


def _overview_routes(router: APIRouter, context: PageContext, overview_seconds: float) -> None:
    overviews = LiveReadings(
        context.reader, lambda: read_overview(context.reading), every_seconds=overview_seconds
    )
    curves = {hours: _curves(context, hours) for hours in HOURS}

    @router.get("/")
    async def overview(request: Request, hours: int = 1) -> Response:
        hours = hours if hours in HOURS else HOURS[0]
        if wants_json(request):
            read = await overviews.latest()
            found = overview_as_json(read.value) if read.value else {}
            return JSONResponse({**found, "trouble": read.trouble})
        drawing = None if is_again(request) else asyncio.create_task(curves[hours].latest())
        read = await overviews.latest()
        drawn = (await drawing).value if drawing else None
        told = {"charts": drawn or [], "hours": hours, "every": 1}
        told |= {"trouble": read.trouble, "read_at": read.at}
        found = seen(read.value, is_stale=read.trouble is not None)
        return context.page(request, "overview.html", {**found, **told})

    @router.get("/charts")
    async def only_curves(request: Request, hours: int = 1) -> Response:
        hours = hours if hours in HOURS else HOURS[0]
        read = await curves[hours].latest()
        told = {"charts": read.value or [], "hours": hours, "trouble": read.trouble}
        return context.page(request, "charts.html", told)


def _found_routes(router: APIRouter, context: PageContext) -> None:
    """What a search leads to: a conversation, the story of an event."""

    @router.get("/conversation/{channel}/{key}")
    async def conversation(request: Request, channel: str, key: str) -> Response:
        lately = None
        if not (wants_json(request) or is_again(request)):
            read = context.read(lambda database: recent(database, f"{channel}/{key}"))
            lately = asyncio.create_task(read)
        told = await context.read(lambda database: _conversation(database, channel, key))
        if wants_json(request):
            found = told["told"] if context.console.text else without_text(told["told"])
            return JSONResponse(as_json(found))
        told |= {"every": EVERY_SECONDS, "word": key, "lately": await lately if lately else None}
        return context.page(request, "conversation.html", told)

    @router.get("/lately/{channel}/{key}")
    async def lately(request: Request, channel: str, key: str) -> Response:
        found = await context.read(lambda database: recent(database, f"{channel}/{key}"))
        return context.page(request, "lately.html", {"lately": found})

    @router.get("/event/{id_:path}")
    async def event(request: Request, id_: str) -> Response:
        text = context.console.text
        story = await context.read(lambda database: tell(database, id_, text=text))
        if wants_json(request):
            return JSONResponse(story.as_json())
        told = {"story": story, "every": EVERY_SECONDS, "word": id_, "steps": labelled(story)}
        return context.page(request, "event.html", told)

    @router.get("/search")
    async def search(request: Request, q: str = "") -> Response:
        word, channel = q.strip()[:LONGEST_WORD], context.console.channel
        if not word:
            return RedirectResponse("/", status_code=303)
        try:
            meant = await context.read(lambda database: meaning_of(database, word, channel=channel))
        except NotOneConversation as error:
            told = {"word": word, "found": [line.partition(" ") for line in error.found]}
            return context.page(request, "search.html", told, status=200 if error.found else 404)
        return RedirectResponse(f"/{meant.kind}/{quote(meant.id)}", status_code=303)


def _list_routes(router: APIRouter, context: PageContext) -> None:
    """Dead letters, calls, and what operators did."""

    @router.get("/letters")
    async def letters(
        request: Request, cause: str = "", since: str = "", replayed: bool = False
    ) -> Response:
        choice, problem = _choice(cause, since, replayed)
        rows = await context.read(
            lambda database: found(database[DEADLETTERS], choice, newest_first=True)
        )
        told: dict[str, Any] = {"problem": problem, "most": MOST_LETTERS}
        told["letters"] = [summary(row) for row in rows]
        told["wish"] = {"cause": cause, "since": since, "replayed": replayed}
        return context.page(request, "letters.html", {"every": EVERY_SECONDS, **told})

    @router.get("/letters/{id_:path}")
    async def letter(request: Request, id_: str) -> Response:
        row = await context.read(lambda database: whole(database[DEADLETTERS], id_))
        if row is None:
            raise NoSuchLetter([id_])
        told: dict[str, Any] = {"letter": summary(row), "held": None}
        told["traceback"] = frames(row.get("traceback"))
        if context.console.text:
            contents = {name: row[name] for name in ("document", "effect") if name in row}
            told |= {"traceback": row.get("traceback"), "held": as_json(contents)}
        return context.page(request, "letter.html", told)

    @router.get("/calls")
    async def calls(request: Request, failed: bool = False, endpoint: str = "") -> Response:
        wanted = Wanted(failed=failed, endpoint=endpoint.strip() or None, limit=MOST_CALLS)
        rows = await context.read(lambda database: newest_calls(database, wanted))
        told = {"calls": rows, "wish": {"failed": failed, "endpoint": endpoint}}
        return context.page(request, "calls.html", {"every": CALLS_SECONDS, **told})

    @router.get("/audit")
    async def audit(request: Request) -> Response:
        rows = await context.read(newest)
        return context.page(request, "audit.html", {"every": EVERY_SECONDS, "rows": rows})


def _curves(context: PageContext, hours: int) -> LiveReadings[list[Chart]]:
    """Drawn on the thread that reads them: some 20 ms."""

    def read() -> list[Chart]:
        rows = read_history(context.reading, hours=hours)
        return charts(rows, hours=hours, now=datetime.now(UTC))

    return LiveReadings(context.reader, read, every_seconds=HISTORY_SECONDS)


def wants_json(request: Request) -> bool:
    """Whether a program asks."""
    return "application/json" in request.headers.get("accept", "")


def is_again(request: Request) -> bool:
    """Whether an open page fetches itself."""
    return "x-live" in request.headers


def _conversation(database: Database[Any], channel: str, key: str) -> Document:
    whose = {"channel": channel, "key": key}
    found = conversation_summary(read_conversation(database, f"{channel}/{key}"))
    about = {name: {"$in": [None, value]} for name, value in whose.items()}
    pauses = list(database[CONTROL].find({"act": "pause", **about}, max_time_ms=LOOK_MS))
    return {
        "told": found,
        "whose": whose,
        "heads": heads(database, channel, key),
        "pauses": pauses,
        "own_pause": any(one.get("key") for one in pauses),
    }


def _choice(cause: str, since: str, replayed: bool) -> tuple[Choice, str | None]:
    try:
        moment = moment_of(since, now=datetime.now(UTC)) if since.strip() else None
    except ValueError:
        problem = f"{since!r} is no time: write 30m, 2h, 3d or 2026-11-21T09:00"
        return Choice(limit=MOST_LETTERS, everything=replayed), problem
    choice = Choice(cause=cause or None, since=moment, everything=replayed, limit=MOST_LETTERS)
    return choice, None
