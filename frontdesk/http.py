"""HTTP connections with bounds, and requests that are refused early under a flood.

uvicorn waits without end for the head of a request and does not bound its size; `Connection` ends
clients that send slowly, too much or nothing. `Overload` refuses a request that has waited for long
before any work is done for it. At the limits of connections and requests, those that have proved no
signature make way for newer ones.
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
from typing import Any, Protocol

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from frontdesk.metrics import FrontdeskMetrics

REASON = "too many requests at once"
LATE = "request waited too long for its turn"
# A connection takes a file descriptor, of which MongoDB and the spool need some, too.
MOST_CONNECTIONS = 4_000
# So many are under way at most: a second's work of a small machine. More get their refusal from
# the connection, which takes a tenth of what an answer of the application takes.
MOST_REQUESTS = 1_000
# This part of a limit is freed at a time, since the search reads all connections. It is also the
# share of an address: what has more of what proved nothing loses its oldest before all others.
PART = 16
# After a search that found nothing to end, all that comes is refused without another one.
NOTHING_SECONDS = 0.05
# LINE waits for 2 s, and the stores have until 1.8 s after the arrival.
LATE_SECONDS = 0.5
# From the first byte to the end of the head, and for the rest of a body that was refused. LINE
# gives up after 2 s.
HEAD_SECONDS = 5.0
BODY = json.dumps({"error": LATE}).encode()
HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", str(len(BODY)).encode()),
    (b"retry-after", b"1"),
    # The rest of its body may never come.
    (b"connection", b"close"),
]


class RequestStage(Enum):
    """What a connection waits for, which says whether it may be ended in favour of others."""

    IDLE = auto()
    """Its last request is answered, and proved nothing."""
    UNFINISHED = auto()
    """A handshake, or a head."""
    REQUEST = auto()
    """The rest of a body, or that its answer is read: it takes a request's place as well."""
    KEPT = auto()
    """Its request is complete, or the last one had a right signature. It is never ended."""


class Guest(Protocol):
    """A connection, as far as its place goes."""

    @property
    def stage(self) -> RequestStage:
        """What it waits for."""

    @property
    def since(self) -> float:
        """When its request, or else the connection, began; of time.monotonic()."""

    @property
    def address(self) -> str:
        """Where it comes from; of a request what a proxy on this machine says."""

    def make_way(self) -> None:
        """End it at once, and be counted neither as a connection nor as a request."""


class Overload:
    """Passes requests on to the application while they come to their turn in time."""

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
        """One request, or the lifespan."""
        if scope["type"] == "http" and _waited_seconds(scope) > self._late_seconds:
            client = scope.get("client")
            self.figures.refuse("overload", f"503 {LATE}", client[0] if client else "-")
            await send({"type": "http.response.start", "status": 503, "headers": HEADERS})
            await send({"type": "http.response.body", "body": BODY})
        else:
            await self._app(scope, receive, send)

    def admits_connection(self, guests: Collection[Guest]) -> bool:
        """Whether there is a place for one more beside these, which may cost some theirs."""
        most, ends = (
            self._most_connections,
            (RequestStage.IDLE, RequestStage.UNFINISHED, RequestStage.REQUEST),
        )
        return len(guests) < most or self._made_room(guests, most, ends)

    def admits_request(self, running: int, guests: Collection[Guest], *, proved: bool) -> bool:
        """Whether there is a place for one more beside so many, which are those of the guests.

        A sender that has proved itself has as many places again, which no stranger takes.
        """
        most = self._most_requests
        if running < (2 * most if proved else most):
            return True
        return self._made_room(guests, most, (RequestStage.REQUEST,))

    def _made_room(
        self, guests: Iterable[Guest], most: int, stages: tuple[RequestStage, ...]
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


def first_to_go(guests: Iterable[Guest], *, share: int) -> list[Guest]:
    """These in the order in which they make way.

    First what an address has beyond its share, then all others. In each the oldest idle ones go
    before the oldest unfinished ones.
    """
    beyond, within, have = list[Guest](), list[Guest](), Counter[str]()
    newest_first = sorted(guests, key=lambda one: (one.stage is not RequestStage.IDLE, one.since))[
        ::-1
    ]
    for guest in newest_first:
        have[guest.address] += 1
        (within if have[guest.address] <= share else beyond).append(guest)
    return [*beyond[::-1], *within[::-1]]


def _waited_seconds(scope: Scope) -> float:
    now = time.monotonic()
    return now - arrival(scope, now)


def arrival(scope: Scope, now: float) -> float:
    """When the request arrived, of time.monotonic(); `now` where the server did not note it."""
    return float(scope.get("state", {}).get("arrived", now))


def is_complete(scope: Scope) -> bool:
    """Whether its whole body is there, so that reading it waits for nothing."""
    return bool(scope.get("state", {}).get("complete"))


def made_way(scope: Scope) -> bool:
    """Whether its connection was ended in favour of others."""
    return bool(scope.get("state", {}).get("made_way"))


# LINE's heads take under 1 KB; proxies add some.
HEAD_BYTES = 64 * 1024
# Requests that wait for the answer to an earlier one; neither LINE nor a proxy sends such. Each
# holds memory for as long as the client reads no answers.
MOST_IN_LINE = 8
# Only a proxy on this machine may say whom it speaks for; the last one is how it looks to a
# socket for both IPv4 and IPv6.
PROXIES = ("127.0.0.1", "::1", "::ffff:127.0.0.1")
# uvicorn's own words on a request that is no HTTP, or asks for an upgrade: a line for each, which
# is refused and counted here. Its errors stay.
_quiet = logging.getLogger(f"{__name__}.uvicorn")
_quiet.setLevel(logging.ERROR)


class Connection(HttpToolsProtocol):
    """Ends a connection that has sent no complete head in time, and refuses in our form."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._timer: asyncio.TimerHandle | None = None
        self._in_head = False
        self._head_bytes = 0
        self.logger = _quiet
        self.address = "-"
        # Of the last request whose head was complete.
        self._state: dict[str, Any] = {}
        self._task: asyncio.Task[None] | None = None
        assert isinstance(self.config.app, Overload)
        self._overload = self.config.app

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it, unless there are too many."""
        # Under TLS it has the place of its handshake.
        is_tls = transport.get_extra_info("sslcontext") is not None
        admitted = is_tls or self._overload.admits_connection(self._guests)
        super().connection_made(transport)
        self.address = self.client[0] if self.client else "-"
        self._await_head()
        if not admitted:
            self._end(503, "too many connections", counted_as="overload")

    def data_received(self, data: bytes) -> None:
        """Parse what came; a head has so many bytes, and so much time from the first one."""
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
        """The first byte of a request."""
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        """The head is there, and the request has arrived; too many are refused right here."""
        self._in_head = False
        self._stop_clock()
        if self.transport.is_closing():
            return
        sender, before, state = self._sender(), self.address, self.scope["state"]
        # A proxy's connection may carry one sender's request after another's.
        proved = self._state.get("proved", False) and sender == before
        # The loop's own clock stands still while it goes through a flood.
        state.update(arrived=time.monotonic(), proved=proved)
        self.address, self._state = sender, state
        if len(self.pipeline) >= MOST_IN_LINE:
            self._overload.figures.refuse("overload", "too many requests in line", sender)
            self.transport.abort()
        elif self._overload.admits_request(len(self.tasks), self._guests, proved=proved):
            super().on_headers_complete()
        else:
            self._overload.figures.refuse("overload", f"503 {REASON}", sender)
            self._close_with(503, REASON)

    def on_body(self, body: bytes) -> None:
        """A part of the body; what was refused at its head has none."""
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The end of the request."""
        if not self.transport.is_closing():
            super().on_message_complete()
            self.scope["state"]["complete"] = not self.cycle.more_body

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side has closed it, or this one."""
        self._stop_clock()
        super().connection_lost(exc)

    @property
    def stage(self) -> RequestStage:
        """What it waits for. A client that reads no answers holds up its request for ever."""
        if self._state.get("proved"):
            return RequestStage.KEPT
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            # With requests in line it is another one, and complete, that is being answered.
            waits = (cycle.more_body and not self.pipeline) or self.flow.write_paused
            return RequestStage.REQUEST if waits else RequestStage.KEPT
        return RequestStage.UNFINISHED if cycle is None or self._in_head else RequestStage.IDLE

    @property
    def since(self) -> float:
        """When its last request, or else the connection, began; of time.monotonic()."""
        return self._since

    def make_way(self) -> None:
        """End it for another one; an answer would take as long as that one's."""
        self._state["made_way"] = True
        self.connections.discard(self)
        if self._task is not None:
            self.tasks.discard(self._task)
        self.transport.abort()

    def awaited_seconds(self, now: float) -> float:
        """For how long a request has been on its way: the first one, or the half of a head.

        Infinite where none is; `now` is of time.monotonic().
        """
        return now - self._since if self.cycle is None or self._in_head else math.inf

    def ask_to_leave(self) -> None:
        """The answer to the last of its requests, if it is yet to come, ends it."""
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def abort(self) -> None:
        """End it, whatever is still under way."""
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP in the form of every other refusal."""
        self._end(400, "not an HTTP request", counted_as="http")

    @property
    def _guests(self) -> set[Guest]:
        return self.connections  # type: ignore[return-value]

    def _sender(self) -> str:
        """Where the request comes from, whose head is complete."""
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
        self._since = time.monotonic()
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
            # Nobody asked anything, or the answer was given while the body still came.
            self.transport.close()

    def _end(self, status: int, reason: str, *, counted_as: str) -> None:
        """Refuse, count it, and close."""
        self._in_head = False
        self._stop_clock()
        if self.transport.is_closing():
            return
        self._overload.figures.refuse(counted_as, f"{status} {reason}", self.address)
        self._close_with(status, reason)

    def _close_with(self, status: int, reason: str) -> None:
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
