"""Group commit: requests that arrive during an insert are stored together by the next insert.

All state belongs to the event loop and lives in `frontdesk.store_choice`. Each store has one thread
that makes its blocking calls, one at a time. An idle store inserts at once; a busy store needs one
journal flush for many requests. After a large insert the next one waits briefly, because the
clients that were just answered send their next requests soon.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from frontdesk.errors import KeysSpooled, NotStored
from frontdesk.recvq import Recvq
from frontdesk.store_choice import (
    Documents,
    Insert,
    PendingRequest,
    Probe,
    StoreQueue,
    Stores,
    StoreState,
)
from linedesk.runtime.backoff import growing_seconds
from linedesk.runtime.liveness import ThreadActivity, moment
from linedesk.runtime.outage import MONGODB
from linedesk.store.errors import SpoolUnavailable
from linedesk.store.spool.drain import Drain
from linedesk.store.spool.spool import Spool, SpoolContents

log = logging.getLogger(__name__)
Result = TypeVar("Result")
InsertCall = Callable[[Documents, float], Collection[int]]

# How long the next insert waits at most for the clients that the last insert answered. Measured
# with clients that send as soon as they are answered: throughput is 1.5 times higher over 8
# connections, 1.35 times over 32, 1.2 times over 128, and unchanged over 1.
GATHER_SECONDS = 0.003
# The pause between two probes of a store that is away.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 3.0
# How long a start waits for the spool, and for MongoDB: the spool could take the requests.
START_SECONDS, START_RECVQ_SECONDS = 3.0, 0.5
# How long a stop waits for the calls of a store.
STOP_SECONDS = 3.0
# How long a stop waits for the drain's batch; the process that drains next begins with it.
STOP_DRAIN_SECONDS = 0.5
# Every call of a store ends by its own time-outs well before this limit.
HANGING_SECONDS = 15.0


class GroupCommit:
    """Stores requests durably in recvq or else in the spool; refuses requests that neither takes.

    It carries out the decisions of `Stores`. `reader` is a second connection to the spool for the
    thread that inserts into recvq; the `drain` empties it. Its methods belong to one event loop.
    """

    def __init__(self, recvq: Recvq, spool: Spool, reader: Spool, drain: Drain) -> None:
        self._stores = stores = Stores()
        insert = partial(insert_behind, reader, recvq.insert)
        append = partial(_append, spool, drain)
        self._recvq = _Runner("recvq", stores.recvq, insert, recvq.probe, START_RECVQ_SECONDS)
        spooling = _Runner("spool", stores.spool, append, spool.probe, START_SECONDS)
        self._runners = [self._recvq, spooling]
        self._connections, self._drain = (spool, reader), drain

    @property
    def unavailable(self) -> str | None:
        """Why neither store takes documents at the moment; None when one does."""
        return self._stores.unavailable

    @property
    def held(self) -> SpoolContents:
        """The spool's content at the last read."""
        return self._drain.held

    @property
    def spooled_events(self) -> int:
        """How many documents this process has stored in the spool."""
        return self._stores.spooled

    @property
    def spool(self) -> dict[str, Any] | None:
        """The spool's content for operators; None while it is empty and recvq takes documents."""
        held = self.held
        if self._stores.recvq.is_open and not held.documents:
            return None
        seconds = round(held.oldest_seconds, 1)
        return {"documents": held.documents, "bytes": held.bytes, "oldestSeconds": seconds}

    @property
    def no_spool(self) -> str | None:
        """Why the spool would take no document; None while it would."""
        reason = self._stores.spool.reason
        return None if reason is None else str(reason)

    @property
    def trouble(self) -> str | None:
        """Which stores are away, and since when, for operators; None when all is well."""
        return "; ".join(filter(None, (runner.trouble for runner in self._runners))) or None

    @property
    def hanging(self) -> str | None:
        """A text for operators: the thread that exceeds all time limits; None if there is none."""
        hanging = next(filter(None, (one.activity.stalled() for one in self._runners)), None)
        return hanging or self._drain.stalled()

    @property
    def dead(self) -> bool:
        """Whether a part of it ended unexpectedly. Only a new process can then store again."""
        return self._drain.dead or any(runner.dead for runner in self._runners)

    async def open(self) -> None:
        """Start, and wait briefly for the stores; each store works as soon as it answers."""
        self._drain.start()
        for runner in self._runners:
            runner.task = asyncio.create_task(self._run(runner), name=runner.name)
            runner.task.add_done_callback(_log_unforeseen_end)
        await asyncio.gather(*(runner.answered() for runner in self._runners))

    async def store(self, documents: Documents, *, deadline: float) -> int:
        """Store all documents durably; returns how many of them were stored before.

        `deadline` is a time of time.monotonic(). recvq has until then to confirm, and the spool a
        little longer. Raises NotStored when neither confirms, and at once while neither is
        available or too many requests wait. The documents are then not known to be stored.
        """
        request = PendingRequest(documents, deadline)
        self._stores.arrive(request, time.monotonic())
        self._follow()
        self._set_timer(request)
        try:
            await request.ended.wait()
        finally:
            self._stores.left(request)
            if request.timer is not None:
                request.timer.cancel()
        if isinstance(request.answer, NotStored):
            raise request.answer
        assert request.answer is not None, "its client has not left"
        return request.answer

    async def close(self) -> None:
        """Finish waiting requests in either store and end all threads. Bounded, may be repeated."""
        self._drain.stop()
        for runner in self._runners:
            await self._end(runner)
        if await asyncio.to_thread(self._drain.join, STOP_DRAIN_SECONDS):
            for connection in self._connections:
                connection.close()

    async def _end(self, runner: _Runner) -> None:
        runner.stop.set()
        self._stores.stop(runner.queue, time.monotonic())
        self._follow()
        task = runner.task
        if task is not None:
            # MongoDB may be slow to answer the probe, and clients wait for the next process.
            if runner is self._recvq and runner.queue.is_probed:
                task.cancel()
            await asyncio.wait([task], timeout=STOP_SECONDS)
        # A call that exceeds its own time-out must not delay the end of the loop.
        runner.end(wait=task is None or (task.done() and not task.cancelled()))

    # --- one store's calls

    async def _run(self, runner: _Runner) -> None:
        queue = runner.queue
        try:
            while not queue.has_ended:
                runner.wake.clear()
                work = self._stores.begin(queue, time.monotonic())
                self._follow()
                if work is not None:
                    await self._carry_out(runner, work)
                elif not queue.has_ended:
                    await runner.wake.wait()
        finally:
            self._stores.abandon(queue, time.monotonic())
            self._follow()

    async def _carry_out(self, runner: _Runner, work: Insert | Probe) -> None:
        stores, queue = self._stores, runner.queue
        try:
            if isinstance(work, Insert):
                insert = runner.call(runner.insert, work.documents, work.seconds)
                stores.inserted(queue, await insert)
            else:
                await runner.call(runner.probe)
                stores.probed(queue)
        except KeysSpooled as spooled:
            stores.keys_spooled(spooled.keys, time.monotonic())
        except NotStored as error:
            stores.failed(queue, error, time.monotonic())
        self._follow()
        if isinstance(work, Probe):
            runner.first_probe.set()
        await runner.pause()
        await runner.gather()

    # --- carrying out decisions

    def _follow(self) -> None:
        """Carry out the last event's decisions: calls and reports."""
        for runner in self._runners:
            runner.report()
            if runner.queue.has_work or runner.queue.has_ended:
                runner.wake.set()

    def _set_timer(self, request: PendingRequest) -> None:
        if not request.is_done:
            left, loop = request.deadline - time.monotonic(), asyncio.get_running_loop()
            request.timer = loop.call_later(left, self._time_out, request, request.deadline)

    def _time_out(self, request: PendingRequest, deadline: float) -> None:
        # A loop may call slightly early.
        self._stores.expired(request, max(deadline, time.monotonic()))
        self._follow()
        # Its deadline has moved if the request went to the spool.
        self._set_timer(request)


def _append(spool: Spool, drain: Drain, documents: Documents, seconds: float) -> Collection[int]:
    """Store all documents in the spool, and wake its drain; it reports no duplicates."""
    spool.append(documents)
    drain.wake()
    return ()


def insert_behind(
    reader: Spool, insert: InsertCall, documents: Documents, seconds: float
) -> Collection[int]:
    """Insert into recvq; raises KeysSpooled while the spool holds a document of these keys."""
    spooled = reader.keys_held(documents)
    # guard: behind-the-spool
    if spooled:
        raise KeysSpooled(spooled)
    return insert(documents, seconds)


class _Runner:
    """One store's thread, the task that gives it calls, and the last report of the store."""

    def __init__(
        self,
        name: str,
        queue: StoreQueue,
        insert: InsertCall,
        probe: Callable[[], None],
        start_seconds: float,
    ) -> None:
        self.queue = queue
        self.insert = insert
        self.probe = probe
        self.name = f"frontdesk-commit-{name}"
        self.activity = ThreadActivity(self.name, limit_seconds=HANGING_SECONDS)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=self.name)
        self.task: asyncio.Task[None] | None = None
        self.wake, self.stop = asyncio.Event(), asyncio.Event()
        self.first_probe = asyncio.Event()
        self._start_seconds = start_seconds
        self._is_recvq = name == "recvq"
        self._away_since = datetime.now(UTC)
        self._reported: NotStored | None = queue.reason

    @property
    def trouble(self) -> str | None:
        reason = self.queue.reason
        if reason is None:
            return None
        return f"{self.queue.name} away since {moment(self._away_since)}: {reason}"

    @property
    def dead(self) -> bool:
        return self.task is not None and self.task.done() and not self.stop.is_set()

    async def answered(self) -> None:
        """Wait briefly for the first answer; until then the store takes no requests."""
        try:
            await asyncio.wait_for(self.first_probe.wait(), self._start_seconds)
        except TimeoutError:
            log.warning('store has not answered yet store="%s"', self.queue.name)

    async def call(self, call: Callable[..., Result], *arguments: Any) -> Result:
        """Make a blocking call; every error becomes NotStored, except KeysSpooled."""
        self.activity.busy()
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, call, *arguments)
        except (NotStored, KeysSpooled):
            raise
        except SpoolUnavailable as error:
            raise NotStored(str(error), detail=error.detail) from error
        except Exception as error:
            # An error of one group must not stop the next one.
            log.exception("storing failed")
            raise NotStored("storing failed") from error
        finally:
            self.activity.idle()

    def end(self, *, wait: bool) -> None:
        """End the thread after the call under way."""
        self._thread.shutdown(wait=wait, cancel_futures=True)

    async def pause(self) -> None:
        """Let a failed store rest before the next probe; a stop ends the pause."""
        if self.queue.failures:
            first, most = FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS
            seconds = growing_seconds(self.queue.failures, first=first, most=most)
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stop.wait(), seconds)

    async def gather(self) -> None:
        """Wait briefly for the next requests of answered clients, if the store is open."""
        if not self.queue.has_gathered:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.wake.wait(), GATHER_SECONDS)

    def report(self) -> None:
        """Report each change of the reason why the store takes no requests, once."""
        reason, before = self.queue.reason, self._reported
        if reason is before:
            return
        self._reported = reason
        if self.queue.state is StoreState.STOPPING or str(reason) == str(before):
            return
        if reason is None:
            if self._is_recvq:
                MONGODB.works("events not stored in recvq")
            else:
                log.info('store available store="%s"', self.queue.name)
            return
        if before is None:
            self._away_since = datetime.now(UTC)
        if self._is_recvq:
            MONGODB.fails("events not stored in recvq", f"{reason} {reason.detail}".strip())
            return
        words = 'store unavailable store="%s" reason="%s" detail="%s"'
        log.warning(words, self.queue.name, reason, reason.detail)


def _log_unforeseen_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.critical("storing has ended, only a new process can store again", exc_info=error)
