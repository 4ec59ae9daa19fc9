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

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from frontdesk.overload import MOST_REQUESTS, REASON, Overload

log = logging.getLogger(__name__)

# From the first byte to the end of the head, and for the rest of a body that was refused. LINE
# gives up after 2 s.
HEAD_SECONDS = 5.0
# LINE's heads take under 1 KB; proxies add some.
HEAD_BYTES = 64 * 1024
# A connection takes a file descriptor, of which MongoDB and the spool need some, too.
MOST_CONNECTIONS = 4_000


class Connection(HttpToolsProtocol):
    """Ends a connection that has sent no complete head in time, and refuses in our form."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._timer: asyncio.TimerHandle | None = None
        self._in_head = False
        self._head_bytes = 0
        assert isinstance(self.config.app, Overload)
        self._overload = self.config.app

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it, unless there are too many."""
        super().connection_made(transport)
        self._await_head()
        if len(self.connections) > MOST_CONNECTIONS:
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
        # The loop's own clock stands still while it goes through a flood.
        self.scope["state"]["arrived"] = time.monotonic()
        if len(self.tasks) < MOST_REQUESTS:
            super().on_headers_complete()
        else:
            self._overload.count()
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

    def awaited_seconds(self, now: float) -> float:
        """For how long a request has been on its way: the first one, or the half of a head.

        Infinite where none is; `now` is of the loop's clock.
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

    def _await_head(self) -> None:
        self._since = self.loop.time()
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
        """Refuse, log it, and close."""
        self._in_head = False
        self._stop_clock()
        if self.transport.is_closing():
            return
        client = self.client[0] if self.client else "-"
        self._overload.figures.refuse(counted_as)
        log.warning('refused status=%d reason="%s" client=%s', status, reason, client)
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
