"""One connection: uvicorn's protocol with an end for whoever sends slowly, too much, or nothing.

uvicorn waits for the head of a request for ever and puts no bound on its size. The body is the
application's affair (`frontdesk/app.py`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from frontdesk.overload import REASON, Guest, Overload, Stage

# From the first byte to the end of the head, and for the rest of a body that was refused. LINE
# gives up after 2 s.
HEAD_SECONDS = 5.0
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

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side has closed it, or this one."""
        self._stop_clock()
        super().connection_lost(exc)

    @property
    def stage(self) -> Stage:
        """What it waits for. A client that reads no answers holds up its request for ever."""
        if self._state.get("proved"):
            return Stage.KEPT
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            # With requests in line it is another one, and complete, that is being answered.
            waits = (cycle.more_body and not self.pipeline) or self.flow.write_paused
            return Stage.REQUEST if waits else Stage.KEPT
        return Stage.UNFINISHED if cycle is None or self._in_head else Stage.IDLE

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
        self._timer = self.loop.call_later(HEAD_SECONDS, self._too_slow)

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
