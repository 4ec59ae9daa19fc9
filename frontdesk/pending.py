"""One request's documents on their way into a store, and how many of them may wait.

A store's one thread for calls that block, and whether the call under way ever comes back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from bson.raw_bson import RawBSONDocument

from frontdesk.errors import KeysSpooled, NotStored

Documents = Sequence[RawBSONDocument]


@dataclass(frozen=True)
class Bounds:
    """How much may wait for the next insert; what comes beyond is refused at once."""

    documents: int = 10_000
    bytes: int = 32 * 1024 * 1024


class PendingRequest:
    """The documents of one request; `outcome` becomes the number of duplicates among them.

    `deadline` is a time of time.monotonic(), and `timer` what calls when it passes.
    """

    __slots__ = ("deadline", "documents", "outcome", "size", "timer")

    def __init__(self, documents: Documents, deadline: float, outcome: asyncio.Future[int]) -> None:
        self.documents = documents
        self.deadline = deadline
        self.outcome = outcome
        self.size = sum(len(document.raw) for document in documents)
        self.timer: asyncio.TimerHandle | None = None

    def cancel_timer(self) -> None:
        """Let the deadline pass unnoticed."""
        if self.timer is not None:
            self.timer.cancel()


class Fallback(Protocol):
    """Where requests go that this store does not serve; each method belongs to the event loop."""

    def divert(
        self, group: list[PendingRequest], held: Iterable[tuple[str, str]] = ()
    ) -> list[PendingRequest]:
        """Take what must queue up elsewhere, as what is `held` does; returns the others."""

    def take_over(self, entries: list[PendingRequest], error: NotStored) -> None:
        """Take all of these, in their order, since the store did not confirm them."""

    def resumed(self) -> None:
        """The store takes everything again."""


def undone(entries: Iterable[PendingRequest]) -> list[PendingRequest]:
    """Those that still wait for their outcome."""
    return [entry for entry in entries if not entry.outcome.done()]


def answer(group: Iterable[PendingRequest], duplicate_places: Collection[int]) -> None:
    """Give each request the number of its own duplicates; the places count through the group."""
    places = sorted(duplicate_places)
    end = counted = 0
    for entry in group:
        end += len(entry.documents)
        duplicates = bisect_left(places, end) - counted
        counted += duplicates
        if not entry.outcome.done():
            entry.outcome.set_result(duplicates)


def refuse(group: Iterable[PendingRequest], error: NotStored) -> None:
    """Answer each request that has no answer yet with this reason."""
    for entry in undone(group):
        entry.outcome.set_exception(NotStored(str(error)))


log = logging.getLogger(__name__)
Result = TypeVar("Result")

# Every call of a store ends by its own time-outs well before this.
HANGING_SECONDS = 15.0


class CallingThread:
    """Makes blocking calls one at a time for one event loop, to which its methods belong."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._called_at: float | None = None

    @property
    def hangs(self) -> bool:
        """Whether the call under way has taken longer than any may."""
        return self._called_at is not None and time.monotonic() - self._called_at > HANGING_SECONDS

    async def call(self, call: Callable[..., Result], *arguments: Any) -> Result:
        """What the call returns; raises NotStored whatever goes wrong, and KeysHeld."""
        loop = asyncio.get_running_loop()
        self._called_at = time.monotonic()
        try:
            return await loop.run_in_executor(self._thread, call, *arguments)
        except (NotStored, KeysSpooled):
            raise
        except Exception as error:
            # The one job of this room: whatever went wrong with one group, the next may do.
            log.exception("storing failed")
            raise NotStored("storing failed") from error
        finally:
            self._called_at = None

    def end(self, *, wait: bool) -> None:
        """Let the thread end, after the call under way."""
        self._thread.shutdown(wait=wait, cancel_futures=True)
