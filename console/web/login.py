"""Logging in and out."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from console.audit import Audit
from console.web.auth import MOST_NAME, SESSION_SECONDS, is_form_of
from console.web.desk import COOKIE, Desk, own_path
from console.web.live import Away
from console.web.words import seconds

log = logging.getLogger(__name__)

# Longer than a guess is worth, shorter than a person minds.
WRONG_SECONDS = 0.3


def login_routes(desk: Desk) -> APIRouter:
    """The form, the session, and its end."""
    router = APIRouter()

    @router.get("/login")
    async def ask(request: Request, to: str = "/") -> Response:
        if not desk.keeper.asks:
            return RedirectResponse(own_path(to), status_code=303)
        told = {"to": own_path(to), "problem": None, "most": MOST_NAME}
        return desk.page(request, "login.html", told)

    @router.post("/login")
    async def log_in(
        request: Request,
        password: Annotated[str, Form(max_length=500)] = "",
        name: Annotated[str, Form(max_length=200)] = "",
        to: Annotated[str, Form(max_length=2_000)] = "/",
    ) -> Response:
        address = request.client.host if request.client else "-"
        cookie = desk.keeper.log_in(password, name=name, address=address)
        if cookie is None:
            log.warning("login refused address=%s", address)
            await asyncio.sleep(WRONG_SECONDS)
            waits = desk.keeper.wait_seconds(address)
            problem = f"too often wrong: wait {seconds(waits)}" if waits else "that is not it"
            status = 429 if waits else 401
            told = {"to": own_path(to), "problem": problem, "most": MOST_NAME}
            return desk.page(request, "login.html", told, status=status)
        who = desk.keeper.visitor(cookie, None)
        assert who is not None
        await _note(desk, who.name, address)
        log.info("logged in address=%s", address)
        response = RedirectResponse(own_path(to), status_code=303)
        response.set_cookie(
            COOKIE,
            cookie,
            max_age=int(SESSION_SECONDS),
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return response

    @router.post("/logout")
    async def log_out(
        request: Request, form: Annotated[str, Form(max_length=200)] = ""
    ) -> Response:
        if not is_form_of(desk.visitor(request), form):
            return RedirectResponse("/", status_code=303)
        desk.keeper.log_out(request.cookies.get(COOKIE))
        response = RedirectResponse("/login", status_code=303)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response

    return router


async def _note(desk: Desk, name: str, address: str) -> None:
    """In `audit`, unless MongoDB is away: just then a person has to see the page."""

    def note() -> None:
        with Audit(desk.acting, by=name, via="page").noted("login", on=address):
            pass

    try:
        await desk.reader.run(note)
    except Away as error:
        log.warning("login not noted in audit address=%s error=%s", address, error)
