"""The life of a dispatcher: lease, progress, outboxes, feed; and the way back when it stops."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from pymongo.database import Database

from dispatcher.clock import Clock
from dispatcher.companion import Companion
from dispatcher.ending import Ending, Interrupted
from dispatcher.feed import Feed
from dispatcher.heartbeat import Heartbeat
from dispatcher.held import Held, HeldKey
from dispatcher.history import History
from dispatcher.holding import HELD_AFTER_SECONDS
from dispatcher.job import Step, Worker
from dispatcher.lease import STANDBY_SECONDS, Lease
from dispatcher.poison import Poison, Suspects
from dispatcher.pool import Pool
from dispatcher.progress import Progress, Start
from dispatcher.reader import Reader
from dispatcher.recall import recall
from dispatcher.saver import Saver
from dispatcher.watch import Watch
from recvq.documents import PROGRESS, RECVQ
from recvq.errors import Replaced, StoreUnavailable
from recvq.guard import Guard
from recvq.pause import pause_seconds
from recvq.replicaset import require_replica_set
from recvq.restore import Keeper

log = logging.getLogger(__name__)

Found = TypeVar("Found")

SUPERVISE_SECONDS = 1.0
# What closing takes beyond the drain: the last save, and giving back the lease.
CLOSE_SECONDS = 5.0


class MakeWorker(Protocol):
    """Makes the worker of the pieces that it needs from the dispatcher."""

    def __call__(
        self,
        *,
        step: Callable[[Step], None],
        later: Callable[[float, Callable[[], None]], None],
        lease_is_fresh: Callable[[], bool],
    ) -> Worker: ...


@dataclass(frozen=True)
class Limits:
    """How much at a time, and how long."""

    threads: int = 20
    documents: int = 10_000
    drain_seconds: float = 20.0
    handler_seconds: float = 60.0
    held_after_seconds: float = HELD_AFTER_SECONDS


class Dispatcher:
    """One process's dispatcher. `feed` has a client of its own.

    `inbox` takes the numbers of signals: the first one stops it. `companions` live as long as it
    holds the lease.
    """

    def __init__(
        self,
        database: Database[Any],
        feed: Feed,
        history: History,
        make_worker: MakeWorker,
        *,
        limits: Limits,
        lease: Lease,
        inbox: SimpleQueue[int | BaseException],
        companions: Sequence[Companion] = (),
    ) -> None:
        self._database = database
        self._feed = feed
        self._history = history
        self._limits = limits
        self._lease = lease
        self._inbox = inbox
        self._companions = companions
        self._clock = Clock()
        self._guard = Guard(database)
        self._worker = make_worker(
            step=lambda step: self._pool.step(step),
            later=self._clock.later,
            lease_is_fresh=lease.is_fresh,
        )

    def run(self) -> Ending:
        """Run until a signal or a failure; raises SetupError where a person has to act first."""
        threading.excepthook = self._thread_died
        try:
            self._until_available(lambda: require_replica_set(self._database.client))
            self._wait_for_lease()
            self._lease.keep()
            self._take_over()
        except Interrupted as interruption:
            self._release()
            return interruption.ending
        except Replaced as error:
            log.error("replaced before it began error=%s", error)  # noqa: TRY400
            self._release()
            return Ending.REPLACED
        self._begin()
        return self._end(self._supervise())

    def _thread_died(self, args: threading.ExceptHookArgs) -> None:
        """A dead thread stops the process: what it owned would stand still unseen."""
        error = args.exc_value or RuntimeError("a thread ended without an error")
        name = args.thread.name if args.thread else "?"
        if not isinstance(error, Replaced):
            log.critical("thread died thread=%s", name, exc_info=error)
        self._inbox.put(error)

    def _wait_for_lease(self) -> None:
        """Acquire the lease, as a standby for as long as another one holds it."""
        said = False
        while not self._until_available(self._lease.try_acquire):
            if not said:
                log.info("standby: another dispatcher holds the lease")
                said = True
            self._pause(STANDBY_SECONDS)
        log.info("lease acquired epoch=%d", self._lease.epoch)

    def _take_over(self) -> None:
        """Progress first, then the outboxes: each sets the epoch, so a predecessor is refused."""
        progress = Progress(self._database[PROGRESS], feed=self._feed.name, epoch=self._lease.epoch)
        start = self._until_available(progress.take_over)
        token = start.ledger.token if start.feed == self._feed.name else None
        if start.feed is not None and start.feed != self._feed.name:
            log.warning("another feed than before, scanning recvq before=%s", start.feed)
        if token is None:
            start.ledger.forget_token()
        self._poison = Poison(progress, start, decide=self._worker.decide, later=self._clock.later)
        keys = self._until_available(progress.held.all_keys)
        self._pool = self._make_pool(start, progress.held, keys)
        self._saver = Saver(self._pool, progress)
        self._until_available(lambda: self._worker.take_over(self._lease.epoch))
        self._reader = Reader(
            self._feed,
            self._history,
            self._pool,
            self._saver,
            token=token,
            reign_began=self._until_available(self._history.now),
            has_room=self._worker.has_room,
            keeper=Keeper(self._database, size=start.recvq_bytes, note=progress.note_recvq_bytes),
            heartbeat=Heartbeat(self._database[RECVQ], self._recvq_closed),
        )
        self._watch = Watch(
            self._pool,
            self._reader,
            self._worker,
            threads=self._limits.threads,
            handler_seconds=self._limits.handler_seconds,
        )

    def _recvq_closed(self) -> str | None:
        """Why recvq takes no heartbeat now; raises StoreUnavailable."""
        self._guard.look()
        return self._guard.closed

    def _until_available(self, action: Callable[[], Found]) -> Found:
        failures = 0
        while True:
            try:
                return action()
            except StoreUnavailable as error:
                failures += 1
                log.warning("taking over, trying again error=%s", error)
                self._pause(pause_seconds(failures))

    def _pause(self, seconds: float) -> None:
        """Wait, unless something arrives that ends the process before it has begun."""
        try:
            message = self._inbox.get(timeout=seconds)
        except Empty:
            return
        raise Interrupted(_ending_of(message))

    def _make_pool(self, start: Start, held: Held, held_keys: Sequence[HeldKey]) -> Pool:
        return Pool(
            self._poison.decide,
            start.ledger,
            threads=self._limits.threads,
            bound=self._limits.documents,
            load=lambda ids: recall(self._database, ids),
            later=self._clock.later,
            suspects=Suspects(alone=self._poison.alone, most=self._limits.documents),
            held=held,
            held_keys=held_keys,
            held_after_seconds=self._limits.held_after_seconds,
        )

    def _begin(self) -> None:
        self._clock.start()
        self._pool.start()
        self._saver.start()
        self._reader.start()
        for companion in self._companions:
            companion.start()
        log.info("ready feed=%s threads=%d", self._feed.name, self._limits.threads)

    def _supervise(self) -> Ending:
        while True:
            try:
                message = self._inbox.get(timeout=SUPERVISE_SECONDS)
            except Empty:
                if not self._watch.look():
                    return Ending.STUCK
                if self._pool.suspects_are_through:
                    self._rest()
                continue
            return _ending_of(message)

    def stalled(self) -> str | None:
        """What hangs although it may not, as words for a watchdog; None while all goes on."""
        return self._watch.stalled()

    def _rest(self) -> None:
        try:
            self._poison.rest()
        except StoreUnavailable as error:
            log.warning("count of starts not reset error=%s", error)
        except Replaced as error:
            self._inbox.put(error)

    def _end(self, ending: Ending) -> Ending:
        """No more reading, drain against one deadline, save, give back the lease."""
        deadline = time.monotonic() + self._limits.drain_seconds
        for companion in self._companions:
            companion.stop()
        self._reader.stop()
        self._worker.stop()
        self._pool.stop()
        stuck = self._pool.join(deadline)
        self._reader.join(CLOSE_SECONDS)
        for companion in self._companions:
            companion.join(CLOSE_SECONDS)
        self._saver.stop()
        self._saver.join(CLOSE_SECONDS)
        self._clock.stop()
        self._clock.join(CLOSE_SECONDS)
        if ending in (Ending.STOPPED, Ending.STUCK):
            self._rest()
        if stuck or self._pool.abandoned():
            # A thread may be calling LINE, an abandoned one in a call that it had begun: whoever
            # waits takes over once this process is gone, or its lease has run out.
            self._lease.abandon()
        else:
            self._release()
        for doing in stuck:
            log.error("thread did not end within the drain %s", doing)
        if stuck and ending is Ending.STOPPED:
            ending = Ending.STUCK
        log.info("stopped ending=%s", ending.value)
        return ending

    def _release(self) -> None:
        try:
            self._lease.release()
        except StoreUnavailable as error:
            log.warning("lease not released, it will run out error=%s", error)


def _ending_of(message: int | BaseException) -> Ending:
    """What a message in the inbox makes of the process: a signal's number, or an error."""
    if isinstance(message, int):
        log.info("stopping signal=%d", message)
        return Ending.STOPPED
    if isinstance(message, Replaced):
        log.error("replaced by another dispatcher, stopping error=%s", message)
        return Ending.REPLACED
    return Ending.FAILED
