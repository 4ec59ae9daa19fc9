"""Refuses early what could only be answered late: beyond capacity a quick 503 is worth more.

The requests of a flood wait in the event loop. Whoever waited there for long is refused before
any work is done for him, so the loop comes back to those whose time is not over yet.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time

from starlette.types import ASGIApp, Receive, Scope, Send

from frontdesk.figures import Figures

log = logging.getLogger(__name__)

REASON = "too many requests at once"
# So many are under way at most: a second's work of a small machine. More get their refusal from
# the connection, which takes a tenth of what an answer of the application takes.
MOST_REQUESTS = 1_000
# LINE waits for 2 s, and the stores have until 1.8 s after the arrival.
LATE_SECONDS = 0.5
LOG_SECONDS = 1.0
BODY = json.dumps({"error": REASON}).encode()
HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", str(len(BODY)).encode()),
    (b"retry-after", b"1"),
    # The rest of its body may never come.
    (b"connection", b"close"),
]


class Overload:
    """Passes requests on to the application while they come to their turn in time."""

    def __init__(self, app: ASGIApp, figures: Figures | None = None) -> None:
        self._app = app
        self.figures = figures or Figures()
        self._refused = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the lifespan."""
        if scope["type"] == "http" and _waited_seconds(scope) > LATE_SECONDS:
            self.count()
            await send({"type": "http.response.start", "status": 503, "headers": HEADERS})
            await send({"type": "http.response.body", "body": BODY})
        else:
            await self._app(scope, receive, send)

    def count(self) -> None:
        """Count one refusal; the log gets one line a second, whatever the flood."""
        if self._refused == 0:
            asyncio.get_running_loop().call_later(LOG_SECONDS, self._tell)
        self._refused += 1
        self.figures.refuse("overload")

    def _tell(self) -> None:
        refused, self._refused = self._refused, 0
        log.warning('refused status=503 reason="%s" requests=%d', REASON, refused)


def _waited_seconds(scope: Scope) -> float:
    now = time.monotonic()
    return now - arrival(scope, now)


def arrival(scope: Scope, now: float) -> float:
    """When the request arrived, of time.monotonic(); `now` where the server did not note it."""
    return float(scope.get("state", {}).get("arrived", now))
