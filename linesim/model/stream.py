"""Changes on their way to open chat pages, each page with a bounded queue in the server's event
loop.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal

MOST_WAITING = 1_000


@dataclass(frozen=True)
class Change:
    """Something that an open page should show; `data` is JSON."""

    kind: Literal["bubble", "people", "loading", "clock", "menu"]
    data: dict[str, Any]


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
