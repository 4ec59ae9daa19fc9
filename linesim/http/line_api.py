"""LINE's HTTP API: every call is recorded as it arrives, admitted or refused, and answered with a
request id.
"""

import contextlib
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect

from linemessages import Finding, check_request
from linesim.http import (
    chats,
    coupons,
    menus,
    narrowcasts,
    oauth,
    reading,
    sending,
    webhook_settings,
)
from linesim.http.answers import Answer, Body, NoAnswer, faulty, refusal
from linesim.http.stopping import Stopped, Stopping
from linesim.http.webhook_settings import Errand
from linesim.model import errors, ids
from linesim.model.calls import Call
from linesim.model.endpoints import BY_NAME, ENDPOINTS, Endpoint
from linesim.model.errors import LineError
from linesim.model.faults import Cut, Drip, Late, Rule, Status
from linesim.model.media import Medium
from linesim.people.sim import Sim

log = logging.getLogger(__name__)

MOST_BODY_BYTES = 2 * 1024 * 1024
JSON = ("application/json",)
METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"]

Act = Callable[..., Answer | Errand]


UNKNOWN = Endpoint("unknown", "*", "/{rest:path}")
UNKNOWN_UNDER = ("/v2", "/oauth2", "/bot")
# A bot without a membership plan, and without LINE's notification messages.
NOT_HERE: dict[str, Callable[[], LineError]] = {
    UNKNOWN.name: errors.not_found,
    **dict.fromkeys(("membership", "memberships", "membership_users"), errors.not_found),
    **dict.fromkeys(("pnp_push", "sent_pnp"), errors.no_access),
}
# Each has the name of its endpoint.
MODULES = (chats, coupons, menus, narrowcasts, oauth, reading, sending, webhook_settings)
ACTS: dict[str, Act] = {
    name: act for module in MODULES for name, act in vars(module).items() if name in BY_NAME
}


def line_routes(sim: Sim, stopping: Stopping) -> APIRouter:
    """The routes of LINE's API; waits, and the POST of a webhook's test, end at a stop."""
    router = APIRouter()
    api = LineApi(sim, stopping)
    for endpoint in ENDPOINTS:
        handle = partial(api.handle, endpoint)
        router.add_api_route(endpoint.path, handle, methods=[endpoint.method])
    for under in UNKNOWN_UNDER:
        router.add_api_route(under + UNKNOWN.path, partial(api.handle, UNKNOWN), methods=METHODS)
    return router


class LineApi:
    def __init__(self, sim: Sim, stopping: Stopping) -> None:
        self._sim = sim
        self._platform = sim.platform
        self._stopping = stopping
        self._pause = stopping.pause

    async def handle(self, endpoint: Endpoint, request: Request) -> Response:
        call = self._begin(endpoint, request)
        try:
            raw = await _read(request)
            self._note_body(endpoint, call, raw)
            answer = await self._answer(endpoint, call, request, raw)
        except (ClientDisconnect, Stopped):
            return self._finish(call, request, None)
        await self._pause(self._platform.options.latency_ms / 1000)
        return self._finish(call, request, answer)

    def _begin(self, endpoint: Endpoint, request: Request) -> Call:
        platform, state = self._platform, request.scope.get("state", {})
        query = request.query_params
        with platform.watch.changing():
            return platform.calls.begin(
                started=state.get("arrived") or time.monotonic(),
                connection=state["connection"].number if "connection" in state else None,
                at=platform.clock.time(),
                endpoint=endpoint.name,
                method=request.method,
                path=request.url.path,
                query={name: ",".join(query.getlist(name)) for name in query},
                request_id=ids.request_id(),
                retry_key=request.headers.get("x-line-retry-key") or None,
                user_id=request.path_params.get("user_id"),
            )

    def _note_body(self, endpoint: Endpoint, call: Call, raw: bytes | None) -> None:
        """Keeps the readable body, also of calls that are refused or hit by a fault."""
        if endpoint.takes_form:
            with self._platform.watch.changing():
                call.body = dict(parse_qsl((raw or b"").decode(errors="replace"))) or call.query
                self._platform.calls.note_body(call, len(raw or b""))
        elif raw:
            with self._platform.watch.changing(), contextlib.suppress(ValueError, RecursionError):
                call.body = _parsed(raw)
                self._platform.calls.note_body(call, len(raw))
                sending.note_address(self._platform, call)

    async def _answer(
        self, endpoint: Endpoint, call: Call, request: Request, raw: bytes | None
    ) -> Answer | None:
        """None: the connection is to be closed without an answer."""

        async def act() -> Answer:
            try:
                with self._platform.watch.changing():
                    done = self._act(endpoint, call, request, raw)
            except LineError as error:
                return refusal(error)
            if isinstance(done, Answer):
                if done.event is not None:
                    self._sim.deliver_later(done.event)
                return done
            # Without the lock, since the bot server may be slow, or call this API itself.
            test = partial(self._sim.test_webhook, done.url)
            return done.answer(await self._stopping.in_thread(test))

        with self._platform.watch.changing():
            try:
                if not endpoint.takes_form:
                    self._authenticate(request)
                self._platform.rate_limits.check(endpoint.name)
            except LineError as error:
                return refusal(error)
            fault = self._platform.rules.take(call)
            if call.retry_key and fault and fault.invites_retry and endpoint.takes_key:
                self._platform.retry_keys.note(call.retry_key, call.endpoint, call.body)
        return await self._through(fault, call, act)

    def _authenticate(self, request: Request) -> None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise errors.not_authenticated("missing authorization header")
        if not self._platform.channel_tokens.is_valid(token):
            raise errors.not_authenticated("invalid token")

    async def _through(
        self, fault: Rule | None, call: Call, act: Callable[[], Awaitable[Answer]]
    ) -> Answer | None:
        if fault is None:
            return await act()
        call.fault = type(fault.outcome).__name__.lower()
        if isinstance(fault.outcome, Late):
            early = await act() if fault.accepts else None
            await self._pause(fault.outcome.seconds)
            return early or await act()
        if isinstance(fault.outcome, Cut | Drip):
            return replace(await act(), spoilt=fault.outcome)
        if fault.accepts:
            await act()
        return faulty(fault.outcome) if isinstance(fault.outcome, Status) else None

    def _act(
        self, endpoint: Endpoint, call: Call, request: Request, raw: bytes | None
    ) -> Answer | Errand:
        if refused := NOT_HERE.get(endpoint.name):
            raise refused()
        if call.retry_key is not None and not endpoint.takes_key:
            raise errors.retry_key_not_supported()
        types = endpoint.media_types or (JSON if endpoint.schema else ())
        if types and not (endpoint.body_is_optional and raw == b""):
            _check_body(types, call, request, raw)
        sending.check_key(self._platform, call)
        # Unknown properties are refused, too: LINE may take them, but does not document them.
        if endpoint.schema and call.body is not None:
            is_to_one = call.chat_id in self._platform.world.users
            mentions = not is_to_one and not endpoint.name.endswith("cast")
            if found := check_request(endpoint.schema, call.body, mentions=mentions):
                raise errors.invalid_body(*found)
        given = dict(request.path_params)
        if endpoint.media_types and not endpoint.takes_form:
            given["image"] = Medium(raw or b"", media_type_of(request), "")
        answer = ACTS[endpoint.name](self._platform, call, **given)
        call.accepted, call.accepted_at = True, time.monotonic()
        return answer

    def _finish(self, call: Call, request: Request, answer: Answer | None) -> Response:
        connection = request.scope.get("state", {}).get("connection")
        with self._platform.watch.changing():
            call.finished = time.monotonic()
            call.hung_up = connection.lost if connection else None
            if answer is None:
                _log(call, None)
                return NoAnswer()
            call.status, call.message = answer.status, answer.message
            call.details = answer.details
        _log(call, answer)
        headers = {"x-line-request-id": call.request_id, **answer.headers}
        if answer.medium or answer.spoilt:
            return Body(replace(answer, headers=headers), self._pause)
        return Response(answer.content, answer.status, headers, answer.media_type)


def _log(call: Call, answer: Answer | None) -> None:
    """One line a call, without texts, tokens, or the query of its URL."""
    status = answer.status if answer else "closed"
    path = call.path.encode("unicode_escape").decode()
    if call.endpoint in NOT_HERE:
        log.warning("linesim does not have %s %s status=%s", call.method, path, status)
    elif log.isEnabledFor(logging.INFO):
        chat_id = call.chat_id or call.user_id or "-"
        chat_id = chat_id if ids.CHAT_ID.fullmatch(chat_id) else "-"
        line = f"{call.endpoint} {call.method} {path} status={status} chat={chat_id}"
        if answer and answer.status >= 400:
            paths = ",".join(
                Finding("", one.get("property", "-")).place() for one in answer.details
            )
            line += f" message={json.dumps(answer.message)}{paths and f' properties={paths}'}"
        log.info("%s", line)


async def _read(request: Request) -> bytes | None:
    """The body, or None if it exceeds LINE's limit; it is always read to its end."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= MOST_BODY_BYTES:
            chunks.append(chunk)
    return b"".join(chunks) if size <= MOST_BODY_BYTES else None


def _check_body(types: Sequence[str], call: Call, request: Request, raw: bytes | None) -> None:
    if raw is None:
        raise errors.too_large()
    if media_type_of(request) not in types:
        raise errors.media_type_not_supported(request.headers.get("content-type", ""))
    if types == JSON and not isinstance(call.body, dict):
        raise _not_json(raw)


def media_type_of(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _parsed(raw: bytes) -> Any:
    """Raises ValueError also for half of a surrogate pair, which no answer or file could hold."""
    body = json.loads(raw.decode())
    if b"\\u" in raw:
        json.dumps(body, ensure_ascii=False).encode()
    return body


def _not_json(raw: bytes) -> LineError:
    """The error with the position at which the JSON is invalid; for an array or a bare value, its
    start.
    """
    try:
        _parsed(raw)
    except json.JSONDecodeError as error:
        return errors.not_json(error.lineno, error.colno)
    except (ValueError, RecursionError):
        return errors.not_json("-", "-")
    return errors.not_json(1, 1)
