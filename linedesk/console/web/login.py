"""Logging in and out."""

from __future__ import annotations

import logging
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from linedesk.console.acts import Audit
from linedesk.console.web.auth import BROWSER_SECONDS, MOST_NAME, SESSION_SECONDS, is_form_of
from linedesk.console.web.gatekeeping import client_of
from linedesk.console.web.live import Away
from linedesk.console.web.page_context import COOKIE, PageContext, give_cookie, own_path
from linedesk.runtime.language import mark

log = logging.getLogger(__name__)

BROWSER_COOKIE = "linedesk_browser"
WRONG = mark("Wrong password")
BUSY = mark("Too many attempts at once. Try again")
UNNAMED = "(no name)"


def login_routes(context: PageContext) -> APIRouter:
    """Return the routes of the login form and of logging out."""
    router = APIRouter()

    @router.get("/login")
    async def ask(request: Request, to: str = "/") -> Response:
        if not context.doorkeeper.asks:
            return RedirectResponse(own_path(to), status_code=303)
        told = {"to": own_path(to), "problem": None, "most": MOST_NAME}
        return context.page(request, "login.html", told)

    @router.post("/login")
    async def log_in(
        request: Request,
        password: Annotated[str, Form(max_length=500)] = "",
        name: Annotated[str, Form(max_length=200)] = "",
        to: Annotated[str, Form(max_length=2_000)] = "/",
    ) -> Response:
        address, doorkeeper = client_of(request.scope), context.doorkeeper
        lane = doorkeeper.lane(address, request.cookies.get(BROWSER_COOKIE, ""))
        told = {"to": own_path(to), "most": MOST_NAME}
        if not await context.turns.take(lane):
            return context.page(request, "login.html", {**told, "problem": BUSY}, status=429)
        if not doorkeeper.is_password(password):
            return context.page(request, "login.html", {**told, "problem": WRONG}, status=401)
        context.turns.give_back(lane)
        cookie = doorkeeper.log_in(name)
        who = doorkeeper.visitor(cookie, None)
        assert who is not None
        await _note(context, who.name or UNNAMED, address)
        log.info("logged in address=%s", address)
        response = RedirectResponse(own_path(to), status_code=303)
        give_cookie(response, request, COOKIE, cookie, SESSION_SECONDS)
        give_cookie(response, request, BROWSER_COOKIE, doorkeeper.new_browser(), BROWSER_SECONDS)
        return response

    @router.post("/logout")
    async def log_out(
        request: Request, form: Annotated[str, Form(max_length=200)] = ""
    ) -> Response:
        if not is_form_of(context.visitor(request), form):
            return RedirectResponse("/", status_code=303)
        context.doorkeeper.log_out(request.cookies.get(COOKIE))
        response = RedirectResponse("/login", status_code=303)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response

    return router


async def _note(context: PageContext, name: str, address: str) -> None:
    """Record a login in `audit`, unless MongoDB is away: a person needs the page at that time."""

    def note() -> None:
        with Audit(context.acting, by=name, via="page").noted("login", on=address):
            pass

    try:
        await context.reader.run(note)
    except Away as error:
        log.warning("login not recorded in audit address=%s error=%s", address, error)
