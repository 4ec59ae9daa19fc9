"""Group commit: what arrives while an insert is under way goes together into the next one.

All state lives in the event loop; one thread of its own makes the blocking calls, one at a time.
An idle store inserts at once, a busy one needs one journal flush for many requests.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from frontdesk.errors import KeysSpooled, NotStored
from frontdesk.metrics import clock_time
from frontdesk.pending import (
    Bounds,
    CallingThread,
    Documents,
    Fallback,
    PendingRequest,
    answer,
    refuse,
    undone,
)

__all__ = ["Bounds", "Documents", "GroupCommit", "Insert", "Probe"]

log = logging.getLogger(__name__)

# Stores all documents within so many seconds and returns the places of those that were there
# already; raises NotStored, or KeysHeld when it stored nothing since some must queue elsewhere.
Insert = Callable[[Documents, float], Collection[int]]
# Returns once the store could store; raises NotStored, and always ends within about a second.
Probe = Callable[[], None]

# A time-out tells something about the store only if it had at least this long.
FAIR_SECONDS = 0.5
SHORTEST_INSERT_SECONDS = 0.05
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 3.0
START_SECONDS = 3.0
STOP_SECONDS = 3.0


class GroupCommit:
    """Stores documents by group commit, and refuses early while its store is known to be away.

    After a time-out or a failed insert new requests are refused at once, until a probe in the
    background or the insert under way succeeds. With a `detour`, everything that then waits goes
    there instead of being refused. Its methods belong to one event loop; `who` names the store.
    """

    def __init__(
        self,
        insert: Insert,
        probe: Probe,
        *,
        bounds: Bounds | None = None,
        detour: Fallback | None = None,
        who: str = "MongoDB",
    ) -> None:
        self._insert = insert
        self._probe = probe
        self._bounds = bounds or Bounds()
        self._detour = detour
        self._who = who
        self._group: list[PendingRequest] = []
        self._waiting: list[PendingRequest] = []
        self._waiting_documents = 0
        self._waiting_bytes = 0
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._first_probe = asyncio.Event()
        self._unavailable: str | None = "not connected yet"
        self._unavailable_since = time.time()
        self._failures = 0
        self._probing = False
        self._thread = CallingThread("frontdesk-commit")
        self._task: asyncio.Task[None] | None = None

    @property
    def unavailable(self) -> str | None:
        """Why nothing can be stored at the moment; None when it can."""
        return self._unavailable

    @property
    def spool(self) -> None:
        """Nothing: it has no other store."""

    @property
    def no_spool(self) -> str:
        """Why there is no second store."""
        return "this process was given none"

    @property
    def trouble(self) -> str | None:
        """What is not as it should be, and since when, for a person; None when all is well."""
        if self._unavailable is None:
            return None
        return f"{self._who} away since {clock_time(self._unavailable_since)}: {self._unavailable}"

    @property
    def hanging(self) -> str | None:
        """Whether its thread is in a call beyond every bound, for a person."""
        return f"a call of {self._who} hangs" if self._thread.hangs else None

    @property
    def dead(self) -> bool:
        """Whether it ended without being closed, so that only a new process can store again."""
        return self._task is not None and self._task.done() and not self._stop.is_set()

    async def open(self, patience_seconds: float = START_SECONDS) -> None:
        """Start, and wait a little for the store to answer; without it everything is refused."""
        self._task = asyncio.create_task(self._run(), name="frontdesk-commit")
        self._task.add_done_callback(_log_unforeseen_end)
        try:
            await asyncio.wait_for(self._first_probe.wait(), patience_seconds)
        except TimeoutError:
            log.warning('store has not answered yet store="%s"', self._who)

    async def store(self, documents: Documents, *, deadline: float) -> int:
        """Store all documents durably; returns how many were there already.

        `deadline` is a time of time.monotonic(). Raises NotStored when it passes, when the insert
        fails, and at once while MongoDB is away or too much waits: then it is not known to be
        stored.
        """
        entry = PendingRequest(documents, deadline, asyncio.get_running_loop().create_future())
        self.admit(entry)
        self.put([entry])
        try:
            return await entry.outcome
        finally:
            entry.cancel_timer()

    def admit(self, entry: PendingRequest) -> None:
        """Raise NotStored where it would be refused at once."""
        if self._unavailable is not None:
            raise NotStored(self._unavailable)
        count = self._waiting_documents + len(entry.documents)
        full = count > self._bounds.documents or (
            self._waiting_bytes + entry.size > self._bounds.bytes
        )
        # What is larger than the bound by itself still gets its turn when nothing else waits.
        if full and self._waiting:
            raise NotStored("too much is waiting to be stored")

    def put(self, entries: Iterable[PendingRequest]) -> None:
        """Let these wait for the next insert, each until its deadline; nothing is refused here."""
        loop, now = asyncio.get_running_loop(), time.monotonic()
        for entry in entries:
            left = entry.deadline - now
            entry.timer = loop.call_later(left, self._time_out, entry, left >= FAIR_SECONDS)
            self._waiting_documents += len(entry.documents)
            self._waiting_bytes += entry.size
            self._waiting.append(entry)
        self._wake.set()

    async def close(self, *, patient: bool = True) -> None:
        """Refuse what is new, finish what waits, and end the thread; bounded, may be repeated.

        Who is not patient leaves a probe to itself: nothing waits for its answer.
        """
        self._unavailable = "stopping"
        self._stop.set()
        self._wake.set()
        task = self._task
        if task is not None:
            if self._probing and not patient:
                task.cancel()
            await asyncio.wait([task], timeout=STOP_SECONDS)
        # A call that outlives its own time-out must not hold up the end of the loop.
        self._thread.end(wait=task is None or (task.done() and not task.cancelled()))

    async def _run(self) -> None:
        try:
            while not self._stop.is_set():
                await self._probe_until_it_answers()
                await self._insert_until_it_fails()
        finally:
            self._give_up(NotStored("stopping"))

    async def _probe_until_it_answers(self) -> None:
        while not self._stop.is_set():
            await self._pause()
            if self._stop.is_set():
                return
            self._probing = True
            try:
                await self._thread.call(self._probe)
            except NotStored as error:
                self._failed(error)
            else:
                self._available()
                return
            finally:
                self._probing = False
                self._first_probe.set()

    async def _insert_until_it_fails(self) -> None:
        while await self._something_waits():
            group = self._take()
            if self._detour is not None:
                group = self._detour.divert(group)
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

    async def _commit(self, group: list[PendingRequest]) -> bool:
        self._group = group
        documents = [document for entry in group for document in entry.documents]
        left = max(entry.deadline for entry in group) - time.monotonic()
        try:
            places = await self._thread.call(
                self._insert, documents, max(left, SHORTEST_INSERT_SECONDS)
            )
        except KeysSpooled as held:
            return await self._commit_without(held)
        except NotStored as error:
            self._failed(error)
            if self._detour is None:
                refuse(group, error)
            else:
                self._give_up(error)
            return False
        self._failures = 0
        self._group = []
        # It may have been late for some of its requests; that it succeeded is the best probe.
        self._available()
        answer(group, places)
        return True

    async def _commit_without(self, held: KeysSpooled) -> bool:
        assert self._detour is not None
        rest = self._detour.divert(undone(self._group), held.keys)
        self._group = []
        if rest:
            return await self._commit(rest)
        # A time-out amid the call took all away, and only a probe tells when it is over.
        # guard: only-a-probe-tells -> return True
        return self._unavailable is None

    async def _pause(self) -> None:
        if self._failures:
            longest = FIRST_PAUSE_SECONDS * 2 ** min(self._failures, 10)
            seconds = random.uniform(0.5, 1.0) * min(longest, LONGEST_PAUSE_SECONDS)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), seconds)

    def _take(self) -> list[PendingRequest]:
        group, self._waiting = undone(self._waiting), []
        self._waiting_documents = self._waiting_bytes = 0
        return group

    def _time_out(self, entry: PendingRequest, had_fair_time: bool) -> None:
        if entry.outcome.done():
            return
        error = NotStored(f"{self._who} did not confirm in time")
        if had_fair_time:
            self._set_unavailable(error)
        if self._detour is None:
            entry.outcome.set_exception(error)
        else:
            self._give_up(error)

    def _give_up(self, error: NotStored) -> None:
        """Hand everything on that waits or is being inserted, in its order: what came later of a
        key must not overtake what could not be confirmed.
        """
        # guard: all-in-its-order -> entries, self._group = undone(self._group), []
        entries, self._group = undone(self._group) + self._take(), []
        if self._detour is None:
            refuse(entries, error)
        elif entries:
            self._detour.take_over(entries, error)

    def _failed(self, error: NotStored) -> None:
        self._failures += 1
        self._set_unavailable(error)

    def _set_unavailable(self, error: NotStored) -> None:
        if not self._stop.is_set() and self._unavailable != str(error):
            if self._unavailable is None:
                self._unavailable_since = time.time()
            self._unavailable = str(error)
            log.warning(
                'store unavailable store="%s" reason="%s" detail="%s"',
                self._who,
                error,
                error.detail,
            )

    def _available(self) -> None:
        if not self._stop.is_set() and self._unavailable is not None:
            self._unavailable = None
            log.info('store available store="%s"', self._who)
            if self._detour is not None:
                self._detour.resumed()


def _log_unforeseen_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.critical("storing has ended, only a new process can store again", exc_info=error)
