"""Refuses early what could only be answered late, and keeps strangers from taking every place.

The requests of a flood wait in the event loop. A request that waited there for long is refused
before any work is done for it, so the loop comes back to those whose time is not over yet.
Connections and requests have a limit each. Where it is reached, those that have proved nothing are
ended in favour of newer ones: a webhook that LINE is about to send comes from a new one.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Iterable
from enum import Enum, auto
from typing import Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from frontdesk.figures import Figures

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
BODY = json.dumps({"error": LATE}).encode()
HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", str(len(BODY)).encode()),
    (b"retry-after", b"1"),
    # The rest of its body may never come.
    (b"connection", b"close"),
]


class Stage(Enum):
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
    def stage(self) -> Stage:
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
        figures: Figures | None = None,
        *,
        most_connections: int = MOST_CONNECTIONS,
        most_requests: int = MOST_REQUESTS,
        late_seconds: float = LATE_SECONDS,
    ) -> None:
        self._app = app
        self.figures = figures or Figures()
        self._most_connections = most_connections
        self._most_requests = most_requests
        self._late_seconds = late_seconds
        self._nothing_until = dict[tuple[Stage, ...], float]()

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
        most, ends = self._most_connections, (Stage.IDLE, Stage.UNFINISHED, Stage.REQUEST)
        return len(guests) < most or self._made_room(guests, most, ends)

    def admits_request(self, running: int, guests: Collection[Guest], *, proved: bool) -> bool:
        """Whether there is a place for one more beside so many, which are those of the guests.

        A sender that has proved itself has as many places again, which no stranger takes.
        """
        most = self._most_requests
        if running < (2 * most if proved else most):
            return True
        return self._made_room(guests, most, (Stage.REQUEST,))

    def _made_room(self, guests: Iterable[Guest], most: int, stages: tuple[Stage, ...]) -> bool:
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
    newest_first = sorted(guests, key=lambda one: (one.stage is not Stage.IDLE, one.since))[::-1]
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


def made_way(scope: Scope) -> bool:
    """Whether its connection was ended in favour of others."""
    return bool(scope.get("state", {}).get("made_way"))
