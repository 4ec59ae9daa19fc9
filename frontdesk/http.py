"""HTTP connections with bounds, and requests that are refused early under a flood.

uvicorn waits without limit for the head of a request and does not bound its size. `Connection` ends
clients that are silent, too slow or send too much. `Overload` refuses a request that waited too
long before any work is done for it. At the limits of connections and requests, unproved connections
(without a valid signature yet) are evicted for newer ones.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections import Counter
from collections.abc import Collection, Iterable
from enum import Enum, auto
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from frontdesk.metrics import FrontdeskMetrics

REASON = "too many requests at once"
LATE = "request waited too long for its turn"
# A connection takes a file descriptor; MongoDB and the spool need some, too.
MOST_CONNECTIONS = 4_000
# The limit of requests under way: a second's work of a small machine. Above it the connection
# itself refuses, which takes a tenth of the time of an answer by the application.
MOST_REQUESTS = 1_000
# One in this many places of a limit is freed at a time, because the search reads all connections.
# It is also the share of one address: an address with more unproved connections loses its oldest
# ones first.
PART = 16
# After a search that found no candidate, new ones are refused without another search.
NOTHING_SECONDS = 0.05
# LINE waits for 2 s, and the stores have until 1.8 s after the arrival.
LATE_SECONDS = 0.5
# From the first byte to the end of the head, and for the rest of a body that was refused. LINE
# gives up after 2 s.
HEAD_SECONDS = 5.0
# The rest of the request's body may never come.
TOO_LATE = JSONResponse({"error": LATE}, 503, {"retry-after": "1", "connection": "close"})


class RequestStage(Enum):
    """The state of a connection, which decides whether it may be evicted for others."""

    IDLE = auto()
    """Its last request is answered and was not proved."""
    UNFINISHED = auto()
    """It waits for a head."""
    REQUEST = auto()
    """It waits for the rest of a body, or the client is still reading. It counts as a request, too.
    """
    KEPT = auto()
    """Never evicted: its request is complete, its last one was signed, or TLS is under way."""


class Overload:
    """Passes requests on to the application unless they waited too long."""

    def __init__(
        self,
        app: ASGIApp,
        figures: FrontdeskMetrics | None = None,
        *,
        most_connections: int = MOST_CONNECTIONS,
        most_requests: int = MOST_REQUESTS,
        late_seconds: float = LATE_SECONDS,
        head_seconds: float = HEAD_SECONDS,
    ) -> None:
        self._app = app
        self.figures = figures or FrontdeskMetrics()
        self._most_connections = most_connections
        self._most_requests = most_requests
        self._late_seconds = late_seconds
        self.head_seconds = head_seconds
        self._nothing_until = dict[tuple[RequestStage, ...], float]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (
            time.monotonic() - scope["state"]["arrived"] > self._late_seconds
        ):
            client = scope.get("client")
            self.figures.refuse("overload", f"503 {LATE}", client[0] if client else "-")
            await TOO_LATE(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def admits_connection(self, guests: Collection[Connection]) -> bool:
        """Return whether there is room for one more connection; may evict others."""
        most = self._most_connections
        ends = RequestStage.IDLE, RequestStage.UNFINISHED, RequestStage.REQUEST
        return len(guests) < most or self._made_room(guests, most, ends)

    def admits_request(self, running: int, guests: Collection[Connection], *, proved: bool) -> bool:
        """Return whether there is room for one more request; may evict others.

        `running` requests are under way, those of the guests. Proved senders have as many places
        again, which unproved ones never take.
        """
        most = self._most_requests
        if running < (2 * most if proved else most):
            return True
        return self._made_room(guests, most, (RequestStage.REQUEST,))

    def _made_room(
        self, guests: Iterable[Connection], most: int, stages: tuple[RequestStage, ...]
    ) -> bool:
        now = time.monotonic()
        if now < self._nothing_until.get(stages, 0.0):
            return False
        part = max(1, most // PART)
        leaving = first_to_go((one for one in guests if one.stage in stages), share=part)[:part]
        for guest in leaving:
            self.figures.refuse("evicted", "made way for a newer connection", guest.address)
            guest.make_way()
        if not leaving:
            self._nothing_until[stages] = now + NOTHING_SECONDS
        return bool(leaving)


def first_to_go(guests: Iterable[Connection], *, share: int) -> list[Connection]:
    """Return the guests in the order of their eviction.

    Connections beyond an address's share come first, then all others. Within each group the oldest
    idle ones come before the oldest unfinished ones.
    """
    beyond, within, have = list[Connection](), list[Connection](), Counter[str]()
    first_to_last = sorted(guests, key=lambda one: (one.stage is not RequestStage.IDLE, one.since))
    for guest in reversed(first_to_last):
        have[guest.address] += 1
        (within if have[guest.address] <= share else beyond).append(guest)
    return [*beyond[::-1], *within[::-1]]


# LINE's heads take less than 1 KB; proxies add some.
HEAD_BYTES = 64 * 1024
# Pipelined requests that wait for an earlier answer; LINE and proxies send none. Each holds memory
# for as long as the client reads no answers.
MOST_IN_LINE = 8
# Only a proxy on this machine may name another client. The last entry is its form on a socket for
# both IPv4 and IPv6.
PROXIES = ("127.0.0.1", "::1", "::ffff:127.0.0.1")
# uvicorn logs a line for each request that is not HTTP or asks for an upgrade. Those are refused
# and counted here. uvicorn's errors are still logged.
_quiet = logging.getLogger(f"{__name__}.uvicorn")
_quiet.setLevel(logging.ERROR)


class Connection(HttpToolsProtocol):
    """Ends a connection without a complete head in time, and refuses in the front desk's form.

    The state in a request's scope has `arrived` (a time of time.monotonic()), `proved` (this or the
    last request was signed), and where they are true `complete` (the whole body has arrived, so
    reading it never waits) and `made_way` (it was evicted).
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._timer: asyncio.TimerHandle | None = None
        self._in_head = False
        self._head_bytes = 0
        self.logger = _quiet
        self.address = "-"
        """The client's address; for a request the address that a proxy on this machine reports."""
        self.since = 0.0
        """When its last request, or else the connection, began; a time of time.monotonic()."""
        # State of the last request with a complete head.
        self._state: dict[str, Any] = {}
        self._task: asyncio.Task[None] | None = None
        # While it makes the TLS handshake; it has no transport then.
        self._handshake: asyncio.Task[None] | None = None
        assert isinstance(self.config.app, Overload)
        self._overload = self.config.app

    def agree(self, handshake: asyncio.Task[None], client: str) -> None:
        """Count it from its accept on. `handshake` makes the TLS handshake, which is bounded."""
        self._handshake, self.address, self.since = handshake, client, time.monotonic()
        self._guests.add(self)

    def agreed(self) -> None:
        """The handshake has ended; where it failed, the connection counts no more."""
        if self._handshake is not None:
            self._handshake = None
            self._guests.discard(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        is_counted = self._handshake is not None
        self._handshake = None
        admitted = is_counted or self._overload.admits_connection(self._guests)
        super().connection_made(transport)
        self.address = self.client[0] if self.client else "-"
        self._await_head()
        if not admitted:
            self._end(503, "too many connections", counted_as="overload")

    def data_received(self, data: bytes) -> None:
        """Parse the data; a head is bounded in bytes, and in time from its first byte."""
        if self.transport.is_closing():
            return
        if self._timer is None and (self.cycle is None or self.cycle.response_complete):
            self._await_head()
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._end(431, "head is too large", counted_as="http")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        """The head is complete: the request has arrived. Above the limit it is refused here."""
        self._in_head = False
        self._stop_clock()
        if self.transport.is_closing():
            return
        sender, before, state = self._sender(), self.address, self.scope["state"]
        # A proxy's connection may carry requests of different senders.
        proved = self._state.get("proved", False) and sender == before
        # The loop's own clock does not advance while the loop works through a flood.
        state.update(arrived=time.monotonic(), proved=proved)
        self.address, self._state = sender, state
        if len(self.pipeline) >= MOST_IN_LINE:
            self._overload.figures.refuse("overload", "too many requests in line", sender)
            self.transport.abort()
        elif self._overload.admits_request(len(self.tasks), self._guests, proved=proved):
            super().on_headers_complete()
        else:
            self._end(503, REASON, counted_as="overload")

    def on_body(self, body: bytes) -> None:
        """Add a part of the body; a request that was refused at its head has none."""
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.transport.is_closing():
            super().on_message_complete()
            self.scope["state"]["complete"] = not self.cycle.more_body

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        super().connection_lost(exc)

    @property
    def stage(self) -> RequestStage:
        """The present state. A client that reads no answers never finishes its request."""
        if self._state.get("proved") or self._handshake is not None:
            return RequestStage.KEPT
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            # With pipelined requests the loop answers another, complete one.
            waits = (cycle.more_body and not self.pipeline) or self.flow.write_paused
            return RequestStage.REQUEST if waits else RequestStage.KEPT
        return RequestStage.UNFINISHED if cycle is None or self._in_head else RequestStage.IDLE

    def make_way(self) -> None:
        """Evict it; an answer would cost as much as the newer connection's."""
        self._state["made_way"] = True
        self.connections.discard(self)
        if self._task is not None:
            self.tasks.discard(self._task)
        self.transport.abort()

    def awaited_seconds(self, now: float) -> float:
        """How long the first request, or a head, has been arriving; infinite where none is."""
        return now - self.since if self.cycle is None or self._in_head else math.inf

    def ask_to_leave(self) -> None:
        """Close after the answer to its last request, if one is still due."""
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def shutdown(self) -> None:
        """End it after the answer to its last request; a handshake at once."""
        if self._handshake is not None:
            self._handshake.cancel()
        else:
            super().shutdown()

    def abort(self) -> None:
        """End it, even with work under way."""
        if self._handshake is not None:
            self._handshake.cancel()
        else:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse data that is not HTTP in the form of every other refusal."""
        self._end(400, "not an HTTP request", counted_as="http")

    @property
    def _guests(self) -> set[Connection]:
        return self.connections  # type: ignore[return-value]

    def _sender(self) -> str:
        """The client of the request whose head is complete."""
        peer = self.client[0] if self.client else "-"
        if peer not in PROXIES or not self.config.proxy_headers:
            return peer
        said = b",".join(value for name, value in self.headers if name == b"x-forwarded-for")
        path = [part.strip() for part in said.decode("latin-1").split(",")]
        return next((part for part in reversed(path) if part and part not in PROXIES), peer)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._task = self.loop.create_task(cycle.run_asgi(app))
        self._task.add_done_callback(self.tasks.discard)
        self.tasks.add(self._task)

    def _await_head(self) -> None:
        self.since = time.monotonic()
        self._timer = self.loop.call_later(self._overload.head_seconds, self._too_slow)

    def _stop_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self._in_head:
            self._end(408, "head did not arrive in time", counted_as="slow")
        else:
            # No request began, or the answer was given before the body was complete.
            self.transport.close()

    def _end(self, status: int, reason: str, *, counted_as: str) -> None:
        self._in_head = False
        self._stop_clock()
        if self.transport.is_closing():
            return
        self._overload.figures.refuse(counted_as, f"{status} {reason}", self.address)
        self.transport.write(_answer(status, reason))
        self.transport.close()


def _answer(status: int, reason: str) -> bytes:
    body = json.dumps({"error": reason}).encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        "content-type: application/json\r\n"
        f"content-length: {len(body)}\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode() + body
