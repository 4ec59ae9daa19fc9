"""Group commit: what arrives while an insert is under way goes together into the next one.

All state lives in the event loop; one thread of its own makes the blocking calls, one at a time.
An idle store inserts at once, a busy one needs one journal flush for many requests.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from bson.raw_bson import RawBSONDocument

from frontdesk.errors import NotStored

log = logging.getLogger(__name__)
Result = TypeVar("Result")

Documents = Sequence[RawBSONDocument]
# Stores all documents within so many seconds and returns the places of those that were there
# already; raises NotStored.
Insert = Callable[[Documents, float], Collection[int]]
# Returns once MongoDB could store; raises NotStored, and always ends within about a second.
Probe = Callable[[], None]

# A time-out tells something about MongoDB only if it had at least this long.
FAIR_SECONDS = 0.5
SHORTEST_INSERT_SECONDS = 0.05
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 3.0
START_SECONDS = 3.0
STOP_SECONDS = 3.0


@dataclass(frozen=True)
class Bounds:
    """How much may wait for the next insert; what comes beyond is refused at once."""

    documents: int = 10_000
    bytes: int = 32 * 1024 * 1024


@dataclass(eq=False, slots=True)
class _Entry:
    """The documents of one request; `outcome` becomes the number of duplicates among them."""

    documents: Documents
    deadline: float
    outcome: asyncio.Future[int]


class GroupCommit:
    """Stores documents by group commit, and refuses early while MongoDB is known to be away.

    After a time-out or a failed insert new requests are refused at once, until a probe in the
    background or the insert under way succeeds. Its methods belong to one event loop.
    """

    def __init__(self, insert: Insert, probe: Probe, *, bounds: Bounds | None = None) -> None:
        self._insert = insert
        self._probe = probe
        self._bounds = bounds or Bounds()
        self._waiting: list[_Entry] = []
        self._waiting_documents = 0
        self._waiting_bytes = 0
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._first_probe = asyncio.Event()
        self._unavailable: str | None = "not connected yet"
        self._failures = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="frontdesk-commit")
        self._task: asyncio.Task[None] | None = None

    @property
    def unavailable(self) -> str | None:
        """Why nothing can be stored at the moment; None when it can."""
        return self._unavailable

    @property
    def dead(self) -> bool:
        """Whether it ended without being closed, so that only a new process can store again."""
        return self._task is not None and self._task.done() and not self._stop.is_set()

    async def open(self) -> None:
        """Start, and wait a little for MongoDB to answer; without it everything is refused."""
        self._task = asyncio.create_task(self._run(), name="frontdesk-commit")
        self._task.add_done_callback(_log_unforeseen_end)
        try:
            await asyncio.wait_for(self._first_probe.wait(), START_SECONDS)
        except TimeoutError:
            log.warning("mongodb has not answered yet seconds=%.1f", START_SECONDS)

    async def store(self, documents: Documents, *, deadline: float) -> int:
        """Store all documents durably; returns how many were there already.

        `deadline` is a time of time.monotonic(). Raises NotStored when it passes, when the insert
        fails, and at once while MongoDB is away or too much waits: then it is not known to be
        stored.
        """
        self._admit(documents)
        loop = asyncio.get_running_loop()
        entry = _Entry(documents, deadline, loop.create_future())
        left = deadline - time.monotonic()
        timer = loop.call_later(left, self._time_out, entry, left >= FAIR_SECONDS)
        self._waiting.append(entry)
        self._wake.set()
        try:
            return await entry.outcome
        finally:
            timer.cancel()

    async def close(self) -> None:
        """Refuse what is new, finish what waits, and end the thread; bounded, may be repeated."""
        self._unavailable = "stopping"
        self._stop.set()
        self._wake.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=STOP_SECONDS)
        # A call that outlives its own time-out must not hold up the end of the loop.
        self._thread.shutdown(wait=self._task is None or self._task.done(), cancel_futures=True)

    async def _run(self) -> None:
        while not self._stop.is_set():
            await self._probe_until_it_answers()
            await self._insert_until_it_fails()
        _refuse(self._take(), NotStored("stopping"))

    async def _probe_until_it_answers(self) -> None:
        while not self._stop.is_set():
            await self._pause()
            try:
                await self._in_thread(self._probe)
            except NotStored as error:
                self._failed(error)
            else:
                self._available()
                return
            finally:
                self._first_probe.set()

    async def _insert_until_it_fails(self) -> None:
        while await self._something_waits():
            group = self._take()
            if group and not await self._commit(group):
                return

    async def _something_waits(self) -> bool:
        """Wait for documents; False once nothing more will come."""
        while not self._waiting:
            if self._stop.is_set():
                return False
            self._wake.clear()
            await self._wake.wait()
        return True

    async def _commit(self, group: list[_Entry]) -> bool:
        documents = [document for entry in group for document in entry.documents]
        left = max(entry.deadline for entry in group) - time.monotonic()
        try:
            places = await self._in_thread(
                self._insert, documents, max(left, SHORTEST_INSERT_SECONDS)
            )
        except NotStored as error:
            self._failed(error)
            _refuse(group, error)
            return False
        self._failures = 0
        # It may have been late for some of its requests; that it succeeded is the best probe.
        self._available()
        _answer(group, places)
        return True

    async def _in_thread(self, call: Callable[..., Result], *arguments: Any) -> Result:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, call, *arguments)
        except NotStored:
            raise
        except Exception as error:
            # The one job of this room: whatever went wrong with one group, the next may do.
            log.exception("storing failed")
            raise NotStored("storing failed") from error

    async def _pause(self) -> None:
        if self._failures:
            longest = FIRST_PAUSE_SECONDS * 2 ** min(self._failures, 10)
            seconds = random.uniform(0.5, 1.0) * min(longest, LONGEST_PAUSE_SECONDS)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), seconds)

    def _admit(self, documents: Documents) -> None:
        if self._unavailable is not None:
            raise NotStored(self._unavailable)
        count = self._waiting_documents + len(documents)
        size = self._waiting_bytes + sum(len(document.raw) for document in documents)
        full = count > self._bounds.documents or size > self._bounds.bytes
        # What is larger than the bound by itself still gets its turn when nothing else waits.
        if full and self._waiting:
            raise NotStored("too much is waiting to be stored")
        self._waiting_documents, self._waiting_bytes = count, size

    def _take(self) -> list[_Entry]:
        group = [entry for entry in self._waiting if not entry.outcome.done()]
        self._waiting = []
        self._waiting_documents = self._waiting_bytes = 0
        return group

    def _time_out(self, entry: _Entry, had_fair_time: bool) -> None:
        if entry.outcome.done():
            return
        error = NotStored("MongoDB did not confirm in time")
        entry.outcome.set_exception(error)
        if had_fair_time:
            self._set_unavailable(error)

    def _failed(self, error: NotStored) -> None:
        self._failures += 1
        self._set_unavailable(error)

    def _set_unavailable(self, error: NotStored) -> None:
        if not self._stop.is_set() and self._unavailable != str(error):
            self._unavailable = str(error)
            log.warning('store unavailable reason="%s" detail="%s"', error, error.detail)

    def _available(self) -> None:
        if not self._stop.is_set() and self._unavailable is not None:
            self._unavailable = None
            log.info("store available")


def _answer(group: list[_Entry], duplicate_places: Collection[int]) -> None:
    """Give each request the number of its own duplicates; the places count through the group."""
    places = sorted(duplicate_places)
    end = counted = 0
    for entry in group:
        end += len(entry.documents)
        duplicates = bisect_left(places, end) - counted
        counted += duplicates
        if not entry.outcome.done():
            entry.outcome.set_result(duplicates)


def _refuse(group: list[_Entry], error: NotStored) -> None:
    for entry in group:
        if not entry.outcome.done():
            entry.outcome.set_exception(NotStored(str(error)))


def _log_unforeseen_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.critical("storing has ended, only a new process can store again", exc_info=error)
