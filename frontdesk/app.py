"""The HTTP side: LINE's callback with its API description, and /healthz and /readyz.

A 200 on the callback means that every event of the request is stored; the store decides how.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

from bson.raw_bson import RawBSONDocument
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from frontdesk.errors import Refused, TooSlow
from frontdesk.http import arrival, is_complete, made_way
from frontdesk.metrics import FrontdeskMetrics
from frontdesk.parsing import encode_events, parse_events, read_body
from frontdesk.signature import HEADER, require_signed


class Problem(BaseModel):
    """The body of every answer that is not a success."""

    error: str


# LINE's body is accepted loosely: only the list of events is required.
WEBHOOK: dict[str, Any] = {
    "parameters": [
        {
            "name": HEADER,
            "in": "header",
            "required": True,
            "description": "base64 of HMAC-SHA256 over the raw body, keyed by the channel secret",
            "schema": {"type": "string"},
        }
    ],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["events"],
                    "properties": {
                        "destination": {"type": "string"},
                        "events": {"type": "array", "items": {"type": "object"}},
                    },
                }
            }
        },
    },
}


log = logging.getLogger(__name__)

# All answers are the same, and building one takes time.
ACCEPTED = JSONResponse({})

# A proxy names the original client in one of these headers.
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


class Store(Protocol):
    """Where accepted documents go."""

    @property
    def unavailable(self) -> str | None:
        """Why no document can be stored at the moment; None when storing works."""

    @property
    def spool(self) -> dict[str, Any] | None:
        """The spool's figures; None while every document goes straight to recvq."""

    @property
    def no_spool(self) -> str | None:
        """Why there is no spool for an outage of MongoDB; None while there is one."""

    @property
    def trouble(self) -> str | None:
        """A text for operators: the problem and since when; None when all is well."""

    @property
    def hanging(self) -> str | None:
        """A text for operators: the thread that exceeds all time limits; None if there is none."""

    @property
    def dead(self) -> bool:
        """Whether the store ended without being closed. Only a new process can then store again."""

    async def open(self) -> None:
        """Begin; called once, before the first request."""

    async def store(self, documents: Sequence[RawBSONDocument], *, deadline: float) -> int:
        """Store all documents durably by the deadline, or raise NotStored.

        Returns how many of them were stored before.
        """

    async def close(self) -> None:
        """Close in an orderly way; called once, after the last request was answered."""


@dataclass(frozen=True)
class WebhookSettings:
    """The settings of the callback: channel, path, limits and token.

    With the token, /readyz also shows its details to other machines.
    """

    secrets: tuple[bytes, ...] = field(repr=False)
    channel: str = "main"
    path: str = "/callback"
    max_body_bytes: int = 1024 * 1024
    token: str = field(default="", repr=False)
    store_seconds: float = 1.0
    """The time that recvq has from a request's arrival. LINE gives up after 2 s; the spool gets the
    rest (architecture: step 3).
    """


class FrontDesk(FastAPI):
    """FastAPI, but LINE's POSTs bypass its routing.

    FastAPI's work around a route took two fifths of a webhook's time when it was measured. The
    callback needs none of it. The route remains for the API description and for 405.
    """

    def __init__(self, path: str, callback: ASGIApp, **options: Any) -> None:
        super().__init__(**options)
        self._path = path
        self._callback = callback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the lifespan."""
        if scope["type"] == "http" and scope["path"] == self._path and scope["method"] == "POST":
            await self._callback(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def create_app(
    desk: WebhookSettings,
    store: Store,
    *,
    openapi_url: str | None = None,
    figures: FrontdeskMetrics | None = None,
) -> FastAPI:
    """Return the application of one front desk process.

    It serves no API description by default, because only LINE calls it. `app.openapi()` always
    returns the description.
    """
    figures = figures or FrontdeskMetrics()
    callback = Callback(desk, store, figures)
    app = FrontDesk(
        desk.path,
        callback,
        title="linedesk front desk",
        openapi_url=openapi_url,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan(store),
        exception_handlers={HTTPException: partial(_http_problem, figures)},
    )
    app.add_api_route(
        desk.path,
        callback.answer,
        methods=["POST"],
        summary="Take a webhook of LINE",
        responses={status: {"model": Problem} for status in (400, 401, 408, 413, 503)},
        openapi_extra=WEBHOOK,
    )
    _add_health(app, store, token=desk.token)
    return app


class Callback:
    """Answers LINE's POSTs: 200 only after every event in them is stored."""

    def __init__(self, desk: WebhookSettings, store: Store, figures: FrontdeskMetrics) -> None:
        self._desk = desk
        self._store = store
        self._figures = figures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One POST, as an ASGI application."""
        response = await self.answer(Request(scope, receive))
        await response(scope, receive, send)

    async def answer(self, request: Request) -> JSONResponse:
        """Store the events of a signed webhook request, then answer it."""
        accept_time, started = datetime.now(UTC), arrival(request.scope, time.monotonic())
        deadline = started + self._desk.store_seconds
        try:
            documents = await self._documents(request, accept_time)
            duplicates = await self._stored(documents, deadline)
        except Refused as refusal:
            # An evicted connection is counted already.
            if not made_way(request.scope):
                reason = f"{refusal.status} {refusal}"
                self._figures.refuse(refusal.counted_as, reason, _client(request))
            return _refused(refusal)
        seconds = time.monotonic() - started
        self._figures.accepted(len(documents), duplicates, seconds)
        log.info(
            "accepted events=%d duplicates=%d ms=%.1f client=%s",
            len(documents),
            duplicates,
            seconds * 1000,
            _client(request),
        )
        return ACCEPTED

    async def _documents(self, request: Request, accept_time: datetime) -> list[RawBSONDocument]:
        desk = self._desk
        body = await self._body(request)
        require_signed(body, request.headers.getlist(HEADER), secrets=desk.secrets)
        request.scope.get("state", {})["proved"] = True
        events = parse_events(body)
        return encode_events(events, channel=desk.channel, accept_time=accept_time, body=body)

    async def _body(self, request: Request) -> bytes:
        declared = request.headers.get("content-length")
        reading = read_body(request.receive, limit=self._desk.max_body_bytes, declared=declared)
        # A timer takes a tenth of the callback's time, and most bodies arrive with their head.
        if is_complete(request.scope):
            return await reading
        try:
            async with asyncio.timeout(self._desk.store_seconds):
                return await reading
        except TimeoutError:
            raise TooSlow("body did not arrive in time") from None

    async def _stored(self, documents: list[RawBSONDocument], deadline: float) -> int:
        # LINE's connectivity check has no events and only needs an answer.
        return await self._store.store(documents, deadline=deadline) if documents else 0


def _refused(refusal: Refused) -> JSONResponse:
    # A client that stopped in the middle of a body gets no further request on this connection.
    headers = {"connection": "close"} if isinstance(refusal, TooSlow) else None
    return JSONResponse({"error": str(refusal)}, status_code=refusal.status, headers=headers)


def _client(request: Request) -> str:
    return request.client.host if request.client else "-"


async def _http_problem(
    figures: FrontdeskMetrics, request: Request, error: Exception
) -> JSONResponse:
    """404 and 405 in the form of every other refusal; the Allow header is kept."""
    assert isinstance(error, HTTPException)
    figures.refuse("http", f"{error.status_code} {error.detail}", _client(request))
    body = {"error": error.detail}
    return JSONResponse(body, status_code=error.status_code, headers=error.headers)


def _lifespan(store: Store) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await store.open()
        try:
            yield
        finally:
            await store.close()

    return lifespan


def _add_health(app: FastAPI, store: Store, *, token: str) -> None:
    """Plain routes, which also answer HEAD. They are not part of LINE's API."""

    async def healthz(request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def readyz(request: Request) -> JSONResponse:
        reason = store.unavailable
        if not (_is_from_here(request) or _has_token(request, token)):
            told = {"error": "not ready"} if reason else {"status": "ready"}
        elif reason is not None:
            told = {"error": reason}
        else:
            told = _details(store)
        return JSONResponse(told, status_code=200 if reason is None else 503)

    app.add_route("/healthz", healthz, methods=["GET"])
    app.add_route("/readyz", readyz, methods=["GET"])


def _details(store: Store) -> dict[str, Any]:
    told: dict[str, Any] = {"status": "ready"}
    if store.spool is not None:
        told["spool"] = store.spool
    if store.no_spool is not None:
        told["warning"] = f"no spool: {store.no_spool}"
    return told


def _is_from_here(request: Request) -> bool:
    """Whether the client is this machine: its address equals the local address."""
    if any(name in request.headers for name in FORWARDED):
        return False
    asking, asked = (request.scope.get(side) or ("",) for side in ("client", "server"))
    return asking[0] == asked[0] != ""


def _has_token(request: Request, token: str) -> bool:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    same = hmac.compare_digest(given.strip().encode(), token.encode())
    return bool(token) and scheme.lower() == "bearer" and same
