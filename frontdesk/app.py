"""The HTTP side: LINE's callback, /healthz and /readyz.

A 200 on the callback means that every event of the request is stored; the store decides how.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from bson.raw_bson import RawBSONDocument
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from frontdesk.errors import Refused, TooSlow
from frontdesk.group_commit import GroupCommit
from frontdesk.metrics import FrontdeskMetrics
from frontdesk.parsing import HEADER, encode_events, parse_events, read_body, require_signed

log = logging.getLogger(__name__)

# All answers are the same, and building one takes time.
ACCEPTED = JSONResponse({})

# A proxy names the original client in one of these headers.
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


@dataclass(frozen=True)
class WebhookSettings:
    """The settings of the callback; with the token, /readyz tells other machines its details."""

    secrets: tuple[bytes, ...] = field(repr=False)
    channel: str = "main"
    path: str = "/callback"
    max_body_bytes: int = 1024 * 1024
    token: str = field(default="", repr=False)
    store_seconds: float = 1.0
    """Recvq's time from a request's arrival; the spool gets the rest of LINE's 2 s."""


class FrontDesk:
    """The application of one front desk process. A POST is answered 200 only after every event in
    it is stored.

    LINE's POSTs bypass FastAPI's routing: its work around a route took two fifths of a
    webhook's time when it was measured.
    """

    def __init__(
        self, desk: WebhookSettings, store: GroupCommit, figures: FrontdeskMetrics
    ) -> None:
        self._desk = desk
        self._store = store
        self._figures = figures
        self._rest = FastAPI(
            routes=[
                # For 405; POSTs do not come here.
                Route(desk.path, self.answer, methods=["POST"]),
                # They also answer HEAD.
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
            ],
            openapi_url=None,
            redirect_slashes=False,
            exception_handlers={HTTPException: self._http_problem},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Only HTTP comes here: the server has neither lifespan events nor WebSockets.
        if scope["path"] == self._desk.path and scope["method"] == "POST":
            response = await self.answer(Request(scope, receive))
            await response(scope, receive, send)
        else:
            await self._rest(scope, receive, send)

    async def answer(self, request: Request) -> JSONResponse:
        """Store the events of a signed webhook request, then answer it."""
        accept_time, started = datetime.now(UTC), request.scope["state"]["arrived"]
        deadline = started + self._desk.store_seconds
        try:
            documents = await self._documents(request, accept_time)
            # LINE's connectivity check has no events and only needs an answer.
            duplicates = await self._store.store(documents, deadline=deadline) if documents else 0
        except Refused as refusal:
            # An evicted connection is counted already.
            if "made_way" not in request.scope["state"]:
                reason = f"{refusal.status} {refusal}"
                self._figures.refuse(refusal.counted_as, reason, _client(request))
            # A client that stopped in the middle of a body gets no further request on it.
            headers = {"connection": "close"} if isinstance(refusal, TooSlow) else None
            return JSONResponse({"error": str(refusal)}, refusal.status, headers)
        seconds = time.monotonic() - started
        self._figures.accepted(len(documents), duplicates, seconds)
        log.debug(
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
        request.scope["state"]["proved"] = True
        events = parse_events(body)
        return encode_events(events, channel=desk.channel, accept_time=accept_time, body=body)

    async def _body(self, request: Request) -> bytes:
        declared = request.headers.get("content-length")
        reading = read_body(request.receive, limit=self._desk.max_body_bytes, declared=declared)
        # A timer takes a tenth of the callback's time, and most bodies arrive with their head.
        if request.scope["state"].get("complete"):
            return await reading
        try:
            async with asyncio.timeout(self._desk.store_seconds):
                return await reading
        except TimeoutError:
            raise TooSlow("body did not arrive in time") from None

    async def _http_problem(self, request: Request, error: Exception) -> JSONResponse:
        """404 and 405 in the form of every other refusal; the Allow header is kept."""
        assert isinstance(error, HTTPException)
        self._figures.refuse("http", f"{error.status_code} {error.detail}", _client(request))
        body = {"error": error.detail}
        return JSONResponse(body, status_code=error.status_code, headers=error.headers)

    async def _healthz(self, request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def _readyz(self, request: Request) -> JSONResponse:
        reason = self._store.unavailable
        if not (_is_from_here(request) or _has_token(request, self._desk.token)):
            told = {"error": "not ready"} if reason else {"status": "ready"}
        elif reason is not None:
            told = {"error": reason}
        else:
            told = self._details()
        return JSONResponse(told, status_code=200 if reason is None else 503)

    def _details(self) -> dict[str, Any]:
        told: dict[str, Any] = {"status": "ready"}
        if self._store.spool is not None:
            told["spool"] = self._store.spool
        if self._store.no_spool is not None:
            told["warning"] = f"no spool: {self._store.no_spool}"
        return told


def _client(request: Request) -> str:
    return request.client.host if request.client else "-"


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
