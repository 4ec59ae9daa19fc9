"""The thread that fires timers while the process holds the lease.

It sleeps until the next row of `schedule` is due. The jobworker reports each row that it writes;
rows of other processes, and those typed by hand, are found by a read every ten seconds.

A firing is inserted into recvq, then its row moves to its next time or its end. A process that dies
in between leaves rows that are still due. They fire again under the same eventId, which recvq
stores once. So two leaders, or an older release's scheduler beside this one, fire each timer once.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pymongo
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from prometheus_client import CollectorRegistry
from pymongo import ASCENDING, UpdateOne
from pymongo.database import Database
from pymongo.errors import BulkWriteError, OperationFailure, PyMongoError

from dispatcher.metrics import TimerMetrics
from dispatcher.timer_rows import BrokenRow, FiredTimer, fired_timer, regular_at
from linedesk.runtime.backoff import growing_seconds
from linedesk.runtime.clock import boottime
from linedesk.runtime.liveness import moment
from linedesk.runtime.outage import MONGODB
from linedesk.runtime.thread import BackgroundThread
from linedesk.store.client import AS_STORED, DURABLE, LOCAL
from linedesk.store.documents import RECVQ, SCHEDULE
from linedesk.store.errors import (
    AUTHENTICATION_FAILED,
    AccessRefused,
    QueueError,
    StoreUnavailable,
    translated,
)
from linedesk.store.insert import insert_documents, never_taken
from linedesk.store.queue.guard import EVERY_SECONDS, Guard
from linedesk.store.records.timers import ENDED_AT, RANG, RUN_AT, SET_ASIDE

log = logging.getLogger(__name__)

BATCH_ROWS = 500
BATCH_BYTES = 4 * 1024 * 1024
# The time limit of one command.
COMMAND_SECONDS = 5.0
# Rows read longer ago, by a process that was frozen since, are read again.
FRESH_SECONDS = 10.0
# No day in any time zone is shorter.
SHORTEST_DAY = timedelta(hours=22)

# All errors of MongoDB, recvq and the time zone files: timers survive each of them.
TROUBLE = (QueueError, PyMongoError, BSONError, OSError)

# The longest time without a read of `schedule`.
READ_SECONDS = 10.0
# The interval at which the idle thread reads the clock, which may have been set.
CLOCK_SECONDS = 1.0
# The guard checks recvq this long before a timer is due, so that the timer does not wait for it.
AHEAD_SECONDS = 0.1
# An insert within this time uses that check.
SOON_SECONDS = 0.2
# A clock that falls behind by more was set back; smaller differences come from a busy machine.
STEP_BACK_SECONDS = 1.0
# The pauses after a round that moved no row: another process was faster, or the rows cannot move.
BEATEN_SECONDS = 0.05
MOST_BEATEN_SECONDS = 3.0
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 3.0
# The time limit of one batch of timers, or of all daily ones after a clock was set back.
LOOK_SECONDS = 600.0


class LeaseNotFresh(QueueError):
    """Nothing fires: another process may have taken over."""


def system_now() -> datetime:
    return datetime.now(UTC)


class Timers(BackgroundThread):
    """Fires timers on its own thread, from the take-over until it is stopped.

    `now` returns the time by which timers are due: code that moves that clock calls `wake`.
    `registry` has its figures.
    """

    def __init__(
        self,
        database: Database[Any],
        *,
        lease_is_fresh: Callable[[], bool],
        now: Callable[[], datetime] = system_now,
        registry: CollectorRegistry | None = None,
    ) -> None:
        super().__init__("timers", self._run, limit_seconds=LOOK_SECONDS)
        self._lease_is_fresh = lease_is_fresh
        self._now = now
        self._guard = Guard(database, every_seconds=EVERY_SECONDS)
        self._figures = TimerMetrics(registry)
        self._firing = TimerFiring(database, self._guard, now=now, figures=self._figures)
        # The failures in a row, their latest reason, and as a text since when it lasts.
        self._failures = 0
        self._reason: str | None = None
        self._trouble: str | None = None
        self._most = BATCH_ROWS
        # How far the clock is ahead of the monotonic one.
        self._ahead = -math.inf
        # At the start, too: the clock may have been ahead when its predecessor fired timers.
        self._must_bring_back = True
        self._lock = threading.Lock()
        # Under _lock: the time of the next look; None if no timer waits.
        self._due_at: datetime | None = None

    def set(self, due_at: datetime | None) -> None:
        """A row was written that is due then; None: it does not fire. From any thread, quick."""
        with self._lock:
            if due_at is not None and (self._due_at is None or due_at < self._due_at):
                self._due_at = due_at
                self._wake.set()

    def status(self) -> str:
        """Failures, the number of timers fired since the start, and the next due time."""
        with self._lock:
            due_at = self._due_at
        words = [
            self._trouble,
            f"{self._figures.fired} timers fired",
            f"next due {moment(due_at)}" if due_at is not None else None,
        ]
        return ", ".join(word for word in words if word)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.activity.busy()
            try:
                self._look()
            except TROUBLE as error:
                # Halved with each failure: a whole batch may need more room or time than there is.
                self._most = max(1, self._most // 2)
                self._stop.wait(self._failed(error))
            else:
                MONGODB.works("timers not fired")
                self._failures, self._reason, self._trouble = 0, None, None
                self._most = BATCH_ROWS
                self._sleep()

    def _failed(self, error: Exception) -> float:
        """Log a new reason; returns the pause. A refused password is raised: a restart reads it."""
        if isinstance(error, AccessRefused) and error.code == AUTHENTICATION_FAILED:
            raise error
        self._failures += 1
        reason = _reason(error)
        is_news, self._reason = reason != self._reason, reason
        if is_news:
            self._trouble = f"timers cannot be fired since {moment(datetime.now(UTC))}: {reason}"
        if isinstance(error, StoreUnavailable | LeaseNotFresh):
            MONGODB.fails("timers not fired", reason)
        elif is_news:
            # A retry cannot fix it: an operator has to.
            log.error('timers not fired, trying again reason="%s"', reason)
        return growing_seconds(
            self._failures, first=FIRST_PAUSE_SECONDS, most=LONGEST_PAUSE_SECONDS
        )

    def _look(self) -> None:
        """Fire all due timers, then note the time of the next one."""
        with self._lock:
            self._due_at = None
        beaten = 0
        while not self._stop.is_set():
            self.activity.busy()
            if not self._lease_is_fresh():
                raise LeaseNotFresh("the lease is not renewed")
            settled = self._firing.fire(most=self._most)
            if settled is None:
                break
            beaten = 0 if settled else beaten + 1
            if beaten:
                self._stop.wait(
                    growing_seconds(beaten, first=BEATEN_SECONDS, most=MOST_BEATEN_SECONDS)
                )
        if self._must_bring_back:
            self._firing.bring_back(stop=self._stop)
            self._must_bring_back = False
        # guard: set-during-the-look -> self._due_at = self._firing.next_at()
        self.set(self._firing.next_at())

    def _sleep(self) -> None:
        """Wait until a timer is due, the clock was set back, or the rows have to be read again."""
        self.activity.idle()
        ahead, until = AHEAD_SECONDS, time.monotonic() + READ_SECONDS
        while True:
            self._wake.clear()
            if self._stop.is_set() or time.monotonic() >= until:
                return
            with self._lock:
                due_at = self._due_at
            now = self._now()
            if self._was_set_back(now):
                self._must_bring_back = True
                return
            left = math.inf if due_at is None else (due_at - now).total_seconds()
            self._figures.next_in(None if due_at is None else left)
            if left <= 0:
                return
            if left <= ahead:
                ahead = 0.0
                self._look_ahead()
            else:
                self._wake.wait(min(left - ahead, CLOCK_SECONDS))

    def _was_set_back(self, now: datetime) -> bool:
        """Whether the clock has fallen behind the monotonic one since the last call."""
        ahead, before = now.timestamp() - time.monotonic(), self._ahead
        if ahead >= before - STEP_BACK_SECONDS:
            self._ahead = max(ahead, before)
            return False
        log.info("clock was set back seconds=%.1f", before - ahead)
        self._ahead = ahead
        return True

    def _look_ahead(self) -> None:
        self.activity.busy()
        # After a failure here the insert checks again and reports its error.
        with suppress(*TROUBLE):
            self._guard.look_when_due(ahead_seconds=SOON_SECONDS)
        self.activity.idle()


def _reason(error: Exception) -> str:
    if isinstance(error, OperationFailure):
        return f"MongoDB error {error.code}"
    return str(error) if isinstance(error, QueueError) else type(error).__name__


class TimerFiring:
    """Belongs to one thread. Its methods raise StoreUnavailable, and the driver's errors.

    `guard` raises RecvqClosed while recvq has no room for an insert; its thread is not started.
    `now` returns the time by which timers are due.
    """

    def __init__(
        self,
        database: Database[Any],
        guard: Guard,
        *,
        now: Callable[[], datetime],
        figures: TimerMetrics,
    ) -> None:
        self._recvq = database[RECVQ]
        self._schedule = database[SCHEDULE].with_options(
            codec_options=AS_STORED,
            write_concern=DURABLE,
            # A new primary may first show an older state to majority reads. A row that is rolled
            # back after it fired is written again from its outbox, under the same name.
            read_concern=LOCAL,  # guard: new-rows-are-read
        )
        self._guard = guard
        self._now = now
        self._figures = figures

    def fire(self, *, most: int = BATCH_ROWS) -> int | None:
        """Fire up to `most` due timers, the longest due first; None if no timer is due.

        Returns the number of rows it moved on: 0 if another process was faster with each of them.
        """
        now, read_at = self._now(), boottime()
        with translated():
            rows = self._due(now, most)
            if not rows:
                return None
            fired: list[FiredTimer] = []
            settled = 0
            for row in rows:
                try:
                    fired.append(fired_timer(row, now=now, accept_time=datetime.now(UTC)))
                except BrokenRow as error:
                    as_read = {"_id": row["_id"], RUN_AT: row[RUN_AT]}
                    settled += self._set_aside(as_read, str(error))
            if put_off := [_moved_on(timer) for timer in fired if timer.document is None]:
                settled += self._change(put_off)
            fired = [timer for timer in fired if timer.document is not None]
            return settled + (self._carry_out(fired, read_at) if fired else 0)

    def next_at(self) -> datetime | None:
        """The time of the next row, past or future; None if no row waits."""
        waiting = {RUN_AT: {"$type": "date"}}
        with translated(), pymongo.timeout(COMMAND_SECONDS):
            rows = self._schedule.find(waiting, {"_id": 0, RUN_AT: 1})
            for row in rows.sort(RUN_AT, ASCENDING).limit(-1):
                return row[RUN_AT] if isinstance(row[RUN_AT], datetime) else None
        return None

    def bring_back(self, *, stop: threading.Event) -> None:
        """Move rows back that fired by a clock which was ahead; returns early at a stop."""
        now = self._now()
        far = {RUN_AT: {"$gt": now + SHORTEST_DAY}, "every": {"$type": "object"}}
        parts = {"n": 1, RUN_AT: 1, "every": 1, RANG: 1}
        with translated(), closing(self._schedule.find(far, parts)) as rows:
            changes = (change for row in rows if (change := _brought_back(row, now)))
            while not stop.is_set() and (batch := list(islice(changes, BATCH_ROWS))):
                log.info("daily timers moved to their regular time timers=%d", self._change(batch))

    def _due(self, now: datetime, most: int) -> list[RawBSONDocument]:
        found = self._schedule.find({RUN_AT: {"$lte": now}})
        with (
            pymongo.timeout(COMMAND_SECONDS),
            closing(found.sort(RUN_AT, ASCENDING).limit(most).batch_size(most)) as rows,
        ):
            return list(_at_most(BATCH_BYTES, rows))

    def _carry_out(self, fired: Sequence[FiredTimer], read_at: float) -> int:
        """Insert into recvq first: a row that was moved on does not fire again."""
        try:
            documents = [timer.document for timer in fired if timer.document is not None]
            stored = self._insert(documents, read_at)
        except StoreUnavailable as error:
            refused = never_taken(error)
            if not refused:
                raise
            # The other rows are read again.
            reason = "MongoDB does not take its document"
            return sum(self._set_aside(fired[place].as_read, reason) for place in refused)
        now = self._now()
        for place, timer in enumerate(fired):
            if place not in stored:
                late = (now - timer.run_at).total_seconds()
                self._figures.observe_fired(late)
                log.info("timer fired event_id=%s late_ms=%.0f", timer.event_id, late * 1000)
        return self._change([_moved_on(timer) for timer in fired])

    def _insert(self, documents: Sequence[RawBSONDocument], read_at: float) -> frozenset[int]:
        # Only here, since no timer may be due for days.
        self._guard.look_when_due()
        with self._guard.inserting(sum(len(document.raw) for document in documents)):
            # guard: old-rows-are-read-again
            if boottime() - read_at > FRESH_SECONDS:
                # Another leader may have fired them since, and recvq may no longer hold their
                # events.
                raise StoreUnavailable("the timers were read too long ago")
            return insert_documents(self._recvq, documents, timeout_seconds=COMMAND_SECONDS)

    def _change(self, changes: Sequence[UpdateOne]) -> int:
        """Return how many rows were as read; another process moved the rest."""
        with pymongo.timeout(COMMAND_SECONDS):
            try:
                return self._schedule.bulk_write(changes, ordered=False).matched_count
            except BulkWriteError as error:
                raise StoreUnavailable("rows of schedule not confirmed") from error

    def _set_aside(self, as_read: Mapping[str, Any], reason: str) -> int:
        """Set aside a row that can never fire, for the operator; it no longer delays the others."""
        aside = {"$set": {RUN_AT: None, SET_ASIDE: reason}}
        with pymongo.timeout(COMMAND_SECONDS):
            matched = self._schedule.update_one(as_read, aside).matched_count
        if matched:
            log.error(
                'timer is invalid and was set aside id=%s reason="%s"', as_read["_id"], reason
            )
        return matched


def _at_most(size_bytes: int, rows: Iterable[RawBSONDocument]) -> Iterator[RawBSONDocument]:
    """The first rows, up to `size_bytes`, and at least one."""
    total = 0
    for row in rows:
        yield row
        total += len(row.raw)
        if total >= size_bytes:
            return


def _moved_on(timer: FiredTimer) -> UpdateOne:
    """Move the row to its next time, or mark its end; MongoDB removes it a week later."""
    if timer.document is None:
        return UpdateOne(timer.as_read, {"$set": {RUN_AT: timer.next_at}})
    if timer.next_at is not None:
        return UpdateOne(timer.as_read, {"$set": {RUN_AT: timer.next_at, RANG: timer.run_at}})
    ended = {"$set": {RUN_AT: None}, "$currentDate": {ENDED_AT: True}}
    return UpdateOne(timer.as_read, ended)


def _brought_back(row: RawBSONDocument, now: datetime) -> UpdateOne | None:
    regular = regular_at(row, now=now)
    if regular is None or regular >= row[RUN_AT]:
        return None
    as_read = {"_id": row["_id"], "n": row.get("n"), RUN_AT: row[RUN_AT]}
    return UpdateOne(as_read, {"$set": {RUN_AT: regular}})
