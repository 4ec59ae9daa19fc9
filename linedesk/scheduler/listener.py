"""Watches changes of `schedule` by a change stream, without polling.

It keeps no position: the scheduler reads all rows after each opening of the stream. A failure is
logged once, and the pause before the next retry grows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from bson.codec_options import DatetimeConversion
from bson.errors import BSONError
from bson.timestamp import Timestamp
from pymongo.collection import Collection
from pymongo.errors import OperationFailure, PyMongoError

from linedesk.runtime.backoff import growing_seconds
from linedesk.runtime.liveness import moment
from linedesk.runtime.thread import BackgroundThread
from linedesk.store.documents import Document
from linedesk.store.errors import (
    AUTHENTICATION_FAILED,
    AccessRefused,
    QueueError,
    StoreUnavailable,
    translated,
)
from linedesk.store.records.timers import RUN_AT

log = logging.getLogger(__name__)

# All errors of MongoDB, recvq and the time zone files: timers survive each of them.
TROUBLE = (QueueError, PyMongoError, BSONError, OSError)

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 3.0


class Trouble:
    """The failures of one thread: `words` begin the log line of a failure, `over` the line of its
    end.
    """

    def __init__(
        self, words: str, *, over: str, longest_pause_seconds: float = LONGEST_PAUSE_SECONDS
    ) -> None:
        self._words = words
        self._over = over
        self._longest_pause_seconds = longest_pause_seconds
        self._failures = 0
        self._reason: str | None = None
        self.told: str | None = None
        """The failure and its start, for the status; None without one."""

    def met(self, error: Exception) -> float:
        """Log the reason, if it is new; returns the seconds to pause.

        Raises AccessRefused again: only a new process reads a replaced password.
        """
        if isinstance(error, AccessRefused) and error.code == AUTHENTICATION_FAILED:
            raise error
        self._failures += 1
        reason = _reason(error)
        if reason != self._reason:
            self._reason = reason
            self.told = f"{self._words} since {moment(datetime.now(UTC))}: {reason}"
            # Errors that a retry cannot fix, such as a missing right, need an operator.
            say = log.warning if isinstance(error, StoreUnavailable) else log.error
            say('%s, trying again reason="%s"', self._words, reason)
        return growing_seconds(
            self._failures, first=FIRST_PAUSE_SECONDS, most=self._longest_pause_seconds
        )

    def over(self) -> None:
        """The failure has ended."""
        if self._reason is not None:
            log.info("%s tries=%d", self._over, self._failures)
        self._failures, self._reason, self.told = 0, None, None


def _reason(error: Exception) -> str:
    if isinstance(error, OperationFailure):
        return f"MongoDB error {error.code}"
    return str(error) if isinstance(error, QueueError) else type(error).__name__


# The longest wait of one read, so that a stop takes effect within a second.
STEP_SECONDS = 0.5
# The pause is reset only after the stream was open for this time without an error. It therefore
# also grows if each opening succeeds and the next read fails.
HEALTHY_SECONDS = 5.0
JOIN_SECONDS = 10.0

SET, MOVED = f"fullDocument.{RUN_AT}", f"updateDescription.updatedFields.{RUN_AT}"
PIPELINE: list[Document] = [
    {"$match": {"$or": [{SET: {"$type": "date"}}, {MOVED: {"$type": "date"}}]}},
    {"$project": {"clusterTime": 1, SET: 1, MOVED: 1}},
]


class Heard(Protocol):
    """Called for a row that is due at `run_at`, or with None if any row may have changed.

    Reads at `time` of the server, or later, include the change.
    """

    def __call__(self, run_at: datetime | None, time: Timestamp | None) -> None: ...


class ScheduleListener(BackgroundThread):
    """A thread that watches `schedule`, with a client that quickly detects a lost server."""

    def __init__(
        self,
        schedule: Collection[Any],
        heard: Heard,
        *,
        step_seconds: float = STEP_SECONDS,
        longest_pause_seconds: float = LONGEST_PAUSE_SECONDS,
    ) -> None:
        super().__init__("doorbell", self._run)
        # A date beyond Python's range, in a row made by hand, must not end the stream.
        options = schedule.codec_options.with_options(
            datetime_conversion=DatetimeConversion.DATETIME_AUTO
        )
        self._schedule = schedule.with_options(codec_options=options)
        self._heard = heard
        self._step_seconds = step_seconds
        self._trouble = Trouble(
            "changes of schedule are not received",
            over="changes of schedule are received again",
            longest_pause_seconds=longest_pause_seconds,
        )

    @property
    def trouble(self) -> str | None:
        """Why changes are not received, and since when; None while they are."""
        return self._trouble.told

    def _run(self) -> None:
        while not self._stop.is_set():
            self.activity.busy()
            try:
                with translated():
                    self._listen()
            except TROUBLE as error:
                pause = self._trouble.met(error)
                # Without a stream each failure triggers a read of the rows.
                self._heard(None, None)
                self._stop.wait(pause)

    def _listen(self) -> None:
        """Watch until a stop or an error; the collection may also be dropped."""
        opened, healthy_at = self._server_time(), time.monotonic() + HEALTHY_SECONDS
        with self._schedule.watch(
            PIPELINE,
            start_at_operation_time=opened,
            max_await_time_ms=int(self._step_seconds * 1000),
        ) as stream:
            self._heard(None, opened)
            self._look_for_index()
            while stream.alive and not self._stop.is_set():
                self.activity.busy()
                change = stream.try_next()
                if time.monotonic() > healthy_at:
                    self._trouble.over()
                if change is not None:
                    self._heard(_run_at(change), change["clusterTime"])
        if not self._stop.is_set():
            raise StoreUnavailable("schedule was dropped or renamed")

    def _look_for_index(self) -> None:
        """Log a missing index, which makes timers late: a dropped `schedule` returns without it."""
        try:
            indexes = self._schedule.index_information()
        except OperationFailure:
            # Without the right to list indexes timers fire, too.
            return
        if RUN_AT not in indexes:
            log.error('schedule has no index runAt, run "linedesk init": each read scans all rows')

    def _server_time(self) -> Timestamp:
        client = self._schedule.database.client
        with client.start_session() as session:
            client.admin.command("ping", session=session)
            assert session.operation_time is not None, "a replica set always returns its time"
            return session.operation_time


def _run_at(change: Mapping[str, Any]) -> datetime | None:
    update = change.get("updateDescription", {}).get("updatedFields", {})
    run_at = change.get("fullDocument", update).get(RUN_AT)
    return run_at if isinstance(run_at, datetime) else None
