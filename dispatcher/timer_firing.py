"""Fires due timers: inserts them into recvq, then moves each row to its next time or its end.

A process that dies in between leaves rows that are still due. They fire again under the same
eventId, which recvq stores once. So two leaders, or an older release's scheduler beside this one,
fire each timer once. The guard of recvq is used only when a timer is inserted, or soon will be.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pymongo
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from pymongo import ASCENDING, UpdateOne
from pymongo.database import Database
from pymongo.errors import BulkWriteError

from dispatcher.metrics import TimerMetrics
from dispatcher.timer_rows import BrokenRow, FiredTimer, fired_timer, regular_at
from linedesk.runtime.clock import boottime
from linedesk.store.client import DURABLE, LOCAL
from linedesk.store.documents import RECVQ, SCHEDULE
from linedesk.store.errors import StoreUnavailable, translated
from linedesk.store.insert import insert_documents
from linedesk.store.queue.guard import Guard
from linedesk.store.records.timers import ENDED_AT, RANG, RUN_AT, SET_ASIDE
from linedesk.store.spool.drain import NEVER_TAKEN

log = logging.getLogger(__name__)

BATCH_ROWS = 500
BATCH_BYTES = 4 * 1024 * 1024
# The time limit of one command.
COMMAND_SECONDS = 5.0
# Rows read longer ago, by a process that was frozen since, are read again.
FRESH_SECONDS = 10.0
# No day in any time zone is shorter.
SHORTEST_DAY = timedelta(hours=22)

# One unreadable value must not hide the other rows: a date beyond Python's range, a text that is
# not UTF-8.
AS_STORED: CodecOptions[RawBSONDocument] = CodecOptions(
    document_class=RawBSONDocument,
    tz_aware=True,
    unicode_decode_error_handler="replace",
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
)


class TimerFiring:
    """Belongs to one thread. Its methods raise StoreUnavailable, and the driver's errors.

    `guard` raises RecvqClosed while recvq has no room for an insert; nobody starts its thread.
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
            fired, broken = _sorted_out(rows, now)
            settled = sum(self._set_aside(as_read, reason) for as_read, reason in broken)
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
        """Move daily rows back that fired by a clock which was ahead; returns early at a stop."""
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
            stored = self._insert([timer.document for timer in fired], read_at)
        except StoreUnavailable as error:
            refused = _refused(error)
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


def _sorted_out(
    rows: Iterable[RawBSONDocument], now: datetime
) -> tuple[list[FiredTimer], list[tuple[Mapping[str, Any], str]]]:
    """The timers that fire, and the invalid rows: as read, with the reason."""
    fired: list[FiredTimer] = []
    broken: list[tuple[Mapping[str, Any], str]] = []
    for row in rows:
        try:
            fired.append(fired_timer(row, now=now, accept_time=datetime.now(UTC)))
        except BrokenRow as error:
            broken.append(({"_id": row["_id"], RUN_AT: row[RUN_AT]}, str(error)))
    return fired, broken


def _moved_on(timer: FiredTimer) -> UpdateOne:
    """Move the row to its next time, or mark its end; MongoDB removes it a week later."""
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


def _refused(error: StoreUnavailable) -> list[int]:
    """The indexes of documents that MongoDB rejects because of their content, by error code."""
    cause = error.__cause__
    if not isinstance(cause, BulkWriteError) or cause.details["writeConcernErrors"]:
        return []
    errors = cause.details["writeErrors"]
    return [failure["index"] for failure in errors if failure["code"] in NEVER_TAKEN]
