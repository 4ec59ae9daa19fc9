"""The console's FastAPI app: its routes, its static files, and its pages for errors."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from pymongo.database import Database
from starlette.exceptions import HTTPException

from linedesk.operate.text import NotDone
from linedesk.page.actions import act_routes
from linedesk.page.auth import GUESS_SECONDS
from linedesk.page.gatekeeping import Console, Gatekeeper
from linedesk.page.letters import letter_routes
from linedesk.page.live import Away
from linedesk.page.page_context import PageContext
from linedesk.page.pages import OVERVIEW_SECONDS, page_routes
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark
from linedesk.runtime.metrics import Refusals

log = logging.getLogger(__name__)

UNKNOWN = mark("Not found")


def create_app(
    console: Console,
    *,
    reading: Database[Any],
    acting: Database[Any] | None = None,
    guess_seconds: float = GUESS_SECONDS,
    overview_seconds: float = OVERVIEW_SECONDS,
) -> FastAPI:
    """Return the app on one database. Pages and threads end with its lifespan.

    Refused requests are counted in `app.state.refusals`, which the server logs.

    A wrong guess takes `guess_seconds`, and all viewers together cost one read of the overview in
    `overview_seconds`. `acting` is the same database on the primary where `reading` may be on a
    secondary. Raises UnknownLanguage.
    """
    context = PageContext(console, reading=reading, acting=reading if acting is None else acting)
    refusals = Refusals(log)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        refusals.tell()
        context.close()

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.refusals = refusals
    app.add_middleware(
        Gatekeeper,
        console=console,
        refusals=refusals,
        guess_seconds=guess_seconds,
        language=context.language,
    )
    app.include_router(page_routes(context, overview_seconds=overview_seconds))
    for routes in (letter_routes, act_routes):
        app.include_router(routes(context))
    app.mount("/static", StaticFiles(packages=[("linedesk.page", "static")]))
    _explain(app, context)
    return app


def _explain(app: FastAPI, context: PageContext) -> None:
    """Add the pages for errors."""

    @app.exception_handler(Away)
    async def away(request: Request, error: Away) -> Response:
        # It retries by itself.
        told = {"trouble": str(error), "every": 2}
        return context.page(request, "away.html", told, status=503)

    @app.exception_handler(NotDone)
    async def unknown(request: Request, error: NotDone) -> Response:
        told = {"problems": error.problems, "heading": _(UNKNOWN)}
        return context.page(request, "unknown.html", told, status=404)

    @app.exception_handler(RequestValidationError)
    async def unread(request: Request, error: RequestValidationError) -> Response:
        told = {"problems": [_("the address has an invalid value")], "heading": _(UNKNOWN)}
        return context.page(request, "unknown.html", told, status=422)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        is_unknown = error.status_code == 404
        problem = _("there is no such page") if is_unknown else _(str(error.detail))
        told = {"problems": [problem], "heading": _(UNKNOWN) if is_unknown else _("Not done")}
        return context.page(request, "unknown.html", told, status=error.status_code)
