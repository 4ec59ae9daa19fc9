"""The simulator's records as JSON, for pages and other processes; `at` is Unix milliseconds.

Also changes on their way to open pages, each page with a bounded queue in the server's event loop.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from linesim.model.calls import Call
from linesim.model.clock import Clock
from linesim.model.deliveries import Delivery
from linesim.model.world import Bubble, Group, User

MOST_WAITING = 1_000

View = dict[str, Any]


class Strict(BaseModel):
    """JSON from outside, with these fields and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def clock_view(clock: Clock) -> View:
    """The time in Unix seconds, and the seconds by which the clock was moved ahead."""
    return {"now": clock.time(), "ahead": clock.ahead}


def _view(record: object, *names: str) -> View:
    """Fields of a record, under their names in JSON, and when it was."""
    told = {_camel(name): getattr(record, name) for name in names}
    if (at := getattr(record, "at", None)) is not None:
        told["at"] = int(at * 1000)
    return told


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def user_view(user: User) -> View:
    return _view(user, "user_id", "name", "friend", "blocked")


def group_view(group: Group) -> View:
    told = _view(group, "chat_id", "name", "kind", "present")
    return {**told, "members": list(group.members)}


def bubble_view(bubble: Bubble) -> View:
    return _view(
        bubble,
        *("number", "chat_id", "speaker", "user_id", "message", "message_id", "event_id"),
        *("fate", "status", "error", "via", "unsent", "edited", "read", "quoted"),
    )


def delivery_view(delivery: Delivery) -> View:
    return _view(
        delivery,
        *("number", "started", "answered", "milliseconds", "status", "error", "delivered"),
        *("event_ids", "events"),
    )


def call_view(call: Call) -> View:
    told = _view(
        call,
        *("number", "started", "finished", "endpoint", "method", "path", "request_id"),
        *("retry_key", "body", "status", "message", "accepted", "fault", "chat_id", "user_id"),
        *("details", "event_id", "accepted_request_id", "retry_differs", "paid", "token_lapsed"),
    )
    return {**told, "unreached": dict(call.unreached)}


@dataclass(frozen=True)
class Change:
    """Something that an open page should show; `data` is JSON."""

    kind: Literal["bubble", "people", "loading", "clock", "menu"]
    data: View


class Subscriber:
    """One open page. Its stream ends on request, and if the page falls far behind: it then
    reconnects.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Change | None] = asyncio.Queue(MOST_WAITING)

    def put(self, change: Change | None) -> None:
        """From any thread; None ends the stream."""
        with contextlib.suppress(RuntimeError):  # the loop has just been closed: there is no reader
            self._loop.call_soon_threadsafe(self._put, change)

    def _put(self, change: Change | None) -> None:
        if change is None or self._queue.full():
            while not self._queue.empty():
                self._queue.get_nowait()
            change = None
        self._queue.put_nowait(change)

    async def changes(self) -> AsyncIterator[Change]:
        while (change := await self._queue.get()) is not None:
            yield change


class Stream:
    """All open pages. Callers hold the simulator's lock."""

    def __init__(self) -> None:
        self._subscribers: set[Subscriber] = set()
        self._closed = False

    def subscribe(self) -> Subscriber:
        subscriber = Subscriber()
        self._subscribers.add(subscriber)
        if self._closed:
            subscriber.put(None)
        return subscriber

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)

    def publish(self, change: Change) -> None:
        for subscriber in self._subscribers:
            subscriber.put(change)

    @property
    def watched(self) -> bool:
        return bool(self._subscribers)

    def close(self) -> None:
        self._closed = True
        for subscriber in self._subscribers:
            subscriber.put(None)
