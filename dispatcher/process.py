"""The life of a dispatcher: lease, progress, outboxes, feed, and the reverse order at the stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from bson.timestamp import Timestamp

from dispatcher.commit.committer import Committer
from dispatcher.commit.progress import HeldStore, Progress, Start
from dispatcher.control import ControlReader
from dispatcher.conversations.leader import Leader
from dispatcher.delayed_calls import DelayedCalls
from dispatcher.feed.feed import Feed
from dispatcher.feed.reader import FeedReader, Heartbeat
from dispatcher.feed.rescan import Rescan
from dispatcher.lease import STANDBY_SECONDS, Lease
from dispatcher.pool.mailboxes import Mailboxes
from dispatcher.pool.pool import Pool
from dispatcher.pool.saver import Saver
from dispatcher.pool.suspects import StartCounter
from dispatcher.pool.threads import Thread
from dispatcher.status import StatusReporter
from dispatcher.watchdog import STANDBY, STARTING, WAITING, Watchdog
from jobworker.assembly import BotWorker
from linedesk.runtime.backoff import pause_seconds
from linedesk.runtime.liveness import AWAY, WaitReason
from linedesk.runtime.outage import MONGODB
from linedesk.runtime.thread import BackgroundThread
from linedesk.store.collections import require_schema
from linedesk.store.control import Control
from linedesk.store.documents import RECVQ
from linedesk.store.errors import (
    AccessRefused,
    OtherSchema,
    Replaced,
    StoreUnavailable,
    WrongCollection,
)
from linedesk.store.queue.guard import Guard
from linedesk.store.replica_set import require_replica_set

log = logging.getLogger(__name__)

SUPERVISE_SECONDS = 1.0
# Closing takes this long in addition to the drain: the last save, and giving back the lease.
CLOSE_SECONDS = 5.0
# The longest end beyond the drain: two calls of MongoDB, 50 s each, and six joins.
END_SECONDS = 150.0

TAKING_OVER = "taking over"

Found = TypeVar("Found")


class ExitReason(Enum):
    """Why a dispatcher ended; the command line turns it into an exit code."""

    STOPPED = "stopped"
    STUCK = "stuck"
    """A thread did not end within the drain, or too many handlers never returned."""
    REPLACED = "replaced"
    REFUSED = "refused"
    """MongoDB refuses the user: a new start may read another password."""
    WRONG_RECVQ = "wrong recvq"
    """recvq is missing, not capped or without its index: the operator has to act first."""
    FAILED = "failed"


class Interrupted(Exception):
    """A signal came, or a thread died, before the dispatcher had begun."""

    def __init__(self, ending: ExitReason) -> None:
        super().__init__(ending.value)
        self.ending = ending


@dataclass(frozen=True)
class DispatcherLimits:
    """Limits on how much at a time, and on how long."""

    threads: int = 20
    documents: int = 10_000
    drain_seconds: float = 20.0
    handler_seconds: float = 60.0


class Dispatcher:
    """One process's dispatcher. `feed` has a client of its own.

    `inbox` receives the numbers of signals: the first one stops it. `components` live as long as it
    holds the lease. `pool`, `reader` and `watchdog` exist once it has taken over.
    """

    def __init__(
        self,
        feed: Feed,
        history: Rescan,
        make_worker: Callable[[Leader], BotWorker],
        *,
        limits: DispatcherLimits,
        lease: Lease,
        reporter: StatusReporter,
        inbox: SimpleQueue[int | BaseException],
        components: Sequence[BackgroundThread] = (),
    ) -> None:
        self._database = database = lease.database
        self._feed = feed
        self._history = history
        self._limits = limits
        self._lease = lease
        self._inbox = inbox
        self._components = list(components)
        self.reporter = reporter
        self._report = reporter.report
        # Whether no job can have caused the end of a thread.
        self._is_explained = True
        # Before it begins: why it waits, and what was reported last.
        self._reason = WaitReason()
        self._told = ""
        self._delayed_calls = DelayedCalls()
        self._committer = Committer(database)
        self._leader = Leader(
            self._committer,
            step=lambda step: self.pool.step(step),
            later=self._delayed_calls.later,
            lease_is_fresh=lease.is_fresh,
            places=lambda jobs: self.pool.allow(jobs),
        )
        self._worker = make_worker(self._leader)

    def run(self) -> ExitReason:
        """Run until a signal or a failure; raises SetupError if the operator has to act first."""
        threading.excepthook = self._thread_died
        self.reporter.start()
        try:
            return self._live()
        finally:
            self.reporter.stop()

    def _live(self) -> ExitReason:
        try:
            self._ask(
                lambda: require_replica_set(self._database.client), "asking for the replica set"
            )
            self._ask(lambda: require_schema(self._database), "asking for the schema")
            self._wait_for_lease()
            self._lease.start()
            self._take_over()
            self._back_off()
        except Interrupted as interruption:
            return self._leave(interruption.ending)
        except Replaced as error:
            log.error("replaced before it began error=%s", error)  # noqa: TRY400
            return self._leave(ExitReason.REPLACED)
        except (AccessRefused, OtherSchema):  # a standby may have another password, or release
            self._release()
            raise
        self._begin()
        return self._end(self._supervise())

    def _ask(
        self, action: Callable[[], Found], doing: str = TAKING_OVER, *, state: str = STARTING
    ) -> Found:
        """Return the action's result once MongoDB answers; raises Interrupted at a message."""
        failures = 0
        self._tell(doing, state)
        while True:
            self._report.beat()
            try:
                found = action()
            except StoreUnavailable as error:
                failures += 1
                MONGODB.fails("not taken over", error)
                self._reason.set(AWAY)
                self._tell(self._reason.fresh() or AWAY, WAITING)
                self._pause(pause_seconds(failures))
            else:
                MONGODB.works("not taken over")
                self._reason.set(None)
                return found

    def _tell(self, words: str, state: str) -> None:
        """Report only changes: a standby asks for the lease several times a second."""
        if words != self._told:
            self._told = words
            self._report.waiting(words, state=state)

    def _pause(self, seconds: float) -> None:
        """Wait until the time is over. Raises Interrupted once `inbox` has a message."""
        try:
            message = self._inbox.get(timeout=seconds)
        except Empty:
            return
        raise Interrupted(ending_of(message))

    def _thread_died(self, args: threading.ExceptHookArgs) -> None:
        """A dead thread stops the process: its work would otherwise stop unnoticed."""
        # An event's job ran there, or it took all memory.
        is_at_a_job = isinstance(args.thread, Thread) and args.thread.job is not None
        self._is_explained &= not (is_at_a_job or isinstance(args.exc_value, MemoryError))
        self._inbox.put(death_of(args))

    def _wait_for_lease(self) -> None:
        """Acquire the lease; wait as a standby while another process holds it."""
        doing, state = "asking for the lease", STARTING
        while not self._ask(self._lease.try_acquire, doing, state=state):
            standby = f"standby, {self._lease.held_by} holds the lease"
            if doing != standby:
                doing, state = standby, STANDBY
                log.info("standby: %s holds the lease", self._lease.held_by)
                self._report.standby(doing)
            self._pause(STANDBY_SECONDS)
        level = logging.DEBUG if state == STARTING else logging.INFO
        log.log(level, "lease acquired epoch=%d", self._lease.epoch)

    def _take_over(self) -> None:
        """Take over, progress first: that sets the epoch, so a predecessor is refused."""
        self._ask(self.reporter.repair)
        progress = Progress(self._committer, feed=self._feed.name, epoch=self._lease.epoch)
        start = self._ask(progress.take_over)
        token = self._token_of(start)
        self._starts = self._make_starts(progress, start)
        held_keys = self._ask(progress.held.all_keys)
        # No older than our own write: pauses are known before any decision.
        control = Control(self._database, seen=self._committer.session.operation_time)
        pauses = self._ask(control.read)
        self.pool = self._make_pool(start, progress.held)
        for held in held_keys:
            self.pool.mailboxes.put_held(held)
        # guard: pauses-before-the-first-job
        self.pool.obey(pauses)
        self._components.append(ControlReader(control, self.pool, self._worker, self._lease))
        self._committer.lead(Saver(self.pool.mailboxes, progress, self.reporter.figures))
        self._ask(lambda: self._worker.take_over(self._lease.epoch))
        epoch_began = self._ask(self._history.now)
        self.reader = self._make_reader(token, epoch_began)
        self.watchdog = self._make_watchdog()

    def _token_of(self, start: Start) -> Any:
        """Return the position where this feed continues; None if it has to scan recvq."""
        token = start.tracker.token if start.feed == self._feed.name else None
        if start.feed is not None and start.feed != self._feed.name:
            log.warning("feed type changed, scanning recvq before=%s", start.feed)
        if token is None:
            start.tracker.forget_token()
        return token

    def _make_starts(self, progress: Progress, start: Start) -> StartCounter:
        return StartCounter(
            progress,
            start,
            decide=self._worker.decide,
            later=self._delayed_calls.later,
            step=lambda step: self.pool.step(step),
            replaced=self._inbox.put,
        )

    def _make_reader(self, token: Any, epoch_began: Timestamp) -> FeedReader:
        return FeedReader(
            self._feed,
            self._history,
            self.pool,
            self._committer,
            token=token,
            epoch_began=epoch_began,
            has_room=self._worker.has_room,
            heartbeat=Heartbeat(self._database[RECVQ], Guard(self._database)),
        )

    def _make_watchdog(self) -> Watchdog:
        return Watchdog(
            self.pool,
            self.reader,
            self._worker,
            [self._lease, self._delayed_calls, self._committer, *self._components],
            handler_seconds=self._limits.handler_seconds,
        )

    def _back_off(self) -> None:
        """Wait after many starts that died: another try at once would die as well."""
        seconds = self._starts.back_off_seconds
        if seconds:
            log.error("the process died many times in a row, waiting seconds=%.1f", seconds)
            self._tell(f"waiting {seconds:.0f} s, the process keeps dying", WAITING)
            self._pause(seconds)

    def _make_pool(self, start: Start, held: HeldStore) -> Pool:
        most = self._limits.documents
        mailboxes = Mailboxes(
            start.tracker,
            known=self._leader.known,
            suspects=self._starts.suspects(most=most),
            bound=most,
        )
        mailboxes.waking.wake_saver = self._committer.wake
        return Pool(
            self._starts.decide,
            mailboxes,
            threads=self._limits.threads,
            later=self._delayed_calls.later,
            held=held,
        )

    def _begin(self) -> None:
        self._committer.start()
        self._delayed_calls.start()
        self.pool.start()
        self._starts.limit_proof(self.pool.end_proof)
        self.reader.start()
        for component in self._components:
            component.start()
        self.reporter.begin(
            self.pool.view,
            self.reader,
            self._worker,
            self._components,
            about={"feed": self._feed.name, "epoch": self._lease.epoch},
            stalled=self.watchdog.stalled,
        )
        log.info("ready feed=%s threads=%d", self._feed.name, self._limits.threads)

    def _supervise(self) -> ExitReason:
        while True:
            self._report.beat()
            try:
                message = self._inbox.get(timeout=SUPERVISE_SECONDS)
            except Empty:
                if not self.watchdog.look():
                    return ExitReason.STUCK
                if self.pool.suspects_are_through or self.watchdog.blames_no_job:
                    self._starts.begin_anew()
                continue
            return ending_of(message)

    def _end(self, ending: ExitReason) -> ExitReason:
        """Stop reading, drain until one deadline, save, and give back the lease."""
        self._say_stopping(self.pool.threads.busy)
        deadline = time.monotonic() + self._limits.drain_seconds
        for component in self._components:
            component.stop()
        self.reader.stop()
        self._worker.stop()
        self.pool.close()
        self._worker.await_handlers(deadline, self.pool.view.is_at_work)
        self.pool.stop()
        stuck = self.pool.threads.join(deadline)
        stuck += self._worker.await_handlers(time.monotonic(), self.pool.view.is_at_work)
        self.reader.join(CLOSE_SECONDS)
        for component in self._components:
            component.join(CLOSE_SECONDS)
        self._delayed_calls.stop()
        self._delayed_calls.join(CLOSE_SECONDS)
        # Otherwise a successor would take calls that were not made for tried ones.
        # guard: finished-before-the-lease-goes
        self._worker.finish()
        # A refusal by MongoDB, or a thread without a job, makes no running job a suspect either.
        if ending is ExitReason.REPLACED:
            self._starts.explain()
        elif ending is not ExitReason.FAILED or self._is_explained:
            self._starts.end()
        self._committer.stop()
        self._committer.join(CLOSE_SECONDS)
        if stuck or self.pool.threads.abandoned():
            # A thread may be calling LINE, even an abandoned one. A standby takes over once this
            # process has ended or its lease has expired.
            self._lease.abandon()
        else:
            self._release()
        for doing in stuck:
            log.error("thread did not end within the drain %s", doing)
        if stuck and ending is ExitReason.STOPPED:
            ending = ExitReason.STUCK
        log.info("stopped ending=%s", ending.value)
        return ending

    def _leave(self, ending: ExitReason) -> ExitReason:
        """The end of a process that was never active."""
        self._say_stopping(lambda: 0)
        self._release()
        return ending

    def _say_stopping(self, under_way: Callable[[], int]) -> None:
        self._report.stopping(
            lambda: f"stopping, {under_way()} still at work",
            within_seconds=self._limits.drain_seconds + END_SECONDS,
        )

    def _release(self) -> None:
        try:
            self._lease.release()
        except (StoreUnavailable, AccessRefused) as error:
            log.warning("lease not released, it expires by itself error=%s", error)


def ending_of(message: int | BaseException) -> ExitReason:
    """Return the ending for a message of the inbox: a signal's number or an error."""
    if isinstance(message, int):
        log.info("stopping signal=%d", message)
        return ExitReason.STOPPED
    if isinstance(message, Replaced):
        log.error("replaced by another dispatcher, stopping error=%s", message)
        return ExitReason.REPLACED
    if isinstance(message, AccessRefused):
        return ExitReason.REFUSED
    if isinstance(message, WrongCollection):
        return ExitReason.WRONG_RECVQ
    return ExitReason.FAILED


def death_of(args: threading.ExceptHookArgs) -> BaseException:
    """Return a dead thread's error for the inbox; logs it if no later place does."""
    error = args.exc_value or RuntimeError("a thread ended without an error")
    name = args.thread.name if args.thread else "?"
    if isinstance(error, AccessRefused):
        log.error('mongodb refuses the dispatcher thread=%s reason="%s"', name, error)
    elif isinstance(error, WrongCollection):
        log.error(
            'recvq cannot be read, stopping; start again after the repair reason="%s"',
            error,
        )
    elif not isinstance(error, Replaced):
        log.critical("thread died thread=%s", name, exc_info=error)
    return error
