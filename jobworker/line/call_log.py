"""One row in `calls` per LINE API call: the data that LINE advises bot makers to log, since it
offers no logs of its own.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pymongo
from pymongo.collection import Collection
from pymongo.errors import PyMongoError

from jobworker.line.gate import current_turn
from jobworker.line.today import Today, midnight
from jobworker.metrics import WorkerMetrics
from jobworker.row_log import RowLog
from linedesk.store.limits import USER
from linedesk.store.records.calls import MULTICAST, PAID, PUSH, CallRecord
from linedesk.store.records.events import EVENT_ID

log = logging.getLogger(__name__)

# Today's sends of earlier processes are counted once, in this many of the newest rows: 12 MB.
NEWEST_ROWS = 50_000
COUNT_SECONDS = 10.0
AGAIN_SECONDS = 60.0


def people_of(endpoint: str, to: Any) -> int | None:
    """Return how many people LINE counts for a successful send; None if only LINE knows.

    LINE's page "Messaging API pricing": the count is of people and not of message objects, and
    replies are free.
    """
    if endpoint == PUSH:
        return 1 if str(to).startswith(USER) else None
    if endpoint == MULTICAST:
        return len(to) if isinstance(to, Sequence) and not isinstance(to, str) else None
    return 0 if endpoint.endswith("/reply") else None


class CallLog(RowLog):
    """The rows of `calls`; each call is counted in the figures, too."""

    def __init__(
        self,
        collection: Collection[Any],
        figures: WorkerMetrics | None = None,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._figures = figures or WorkerMetrics()
        super().__init__(collection, unwritten=self._figures.unwritten_rows["calls"].inc)
        self._now = now
        self._lock = threading.Lock()
        # Under _lock.
        self._today = Today()
        # When the first call of this process began.
        self._first_at: datetime | None = None
        # Used by the writer's thread: when to count the sends of earlier processes.
        self._count_at = -math.inf
        self._figures.counted_today.set_function(self.counted_today)

    def counted_today(self) -> int:
        """Return how many messages LINE has counted today for linedesk's calls, as far as known.

        A push to a group counts as one, since only LINE knows how many people it reaches.
        """
        with self._lock:
            return self._today.messages(self._now())

    def look(self) -> None:
        """Count the earlier processes' sends of today once; raises nothing. For the writer's
        thread.
        """
        if time.monotonic() < self._count_at:
            return
        now = self._now()
        with self._lock:
            until = self._first_at or now
        stages: list[Mapping[str, Any]] = [
            {"$limit": NEWEST_ROWS},
            {"$match": {"at": {"$gte": midnight(now), "$lt": until}, PAID: {"$exists": True}}},
            {"$group": {"_id": None, PAID: {"$sum": {"$ifNull": [f"${PAID}", 1]}}}},
        ]
        try:
            with pymongo.timeout(COUNT_SECONDS):
                found = list(self._collection.aggregate(stages, hint={"$natural": -1}))
        except PyMongoError:
            # Reporting waits until MongoDB answers.
            self._count_at = time.monotonic() + AGAIN_SECONDS
            return
        self._count_at = math.inf
        with self._lock:
            self._today.add(sum(row[PAID] for row in found), now)

    @contextmanager
    def noted(
        self,
        method: str,
        endpoint: str,
        context: Mapping[str, Any],
        *,
        host: str = "api",
        to: Any = None,
    ) -> Iterator[CallRecord]:
        """Note one call; the caller fills in `status`, `request_id` and `reason` from the answer.

        `to` is a send's recipient in the form of LINE's API.
        """
        turn = current_turn()
        row = CallRecord(
            at=self._now(),
            method=method,
            endpoint=endpoint,
            event_id=context.get(EVENT_ID),
            key=context.get("key"),
            attempt=context.get("attempt", 1),
            turn_class=turn.turn_class.word if turn else None,
            waited_ms=round(turn.waited_seconds * 1000, 1) if turn else None,
            people=people_of(endpoint, to),
            also=context.get("also") or [],
        )
        with self._lock:
            self._first_at = self._first_at or row.at
        started = time.monotonic()
        try:
            yield row
        finally:
            seconds = time.monotonic() - started
            row.ms = round(seconds * 1000, 1)
            log.info(
                "called LINE method=%s endpoint=%s status=%s request_id=%s event_id=%s "
                "attempt=%d ms=%.1f%s",
                *(row.method, row.endpoint, row.status, row.request_id),
                *(row.event_id, row.attempt, row.ms),
                f' reason="{row.reason.words}"' if row.reason else "",
            )
            self._figures.called(host, endpoint, row.status, seconds)
            if row.is_sent:
                self._took(row)
            self.add(row.to_document())

    def _took(self, row: CallRecord) -> None:
        """Count a send that LINE accepted."""
        counted = 1 if row.people is None else row.people
        self._figures.sent(row.endpoint or "", sends=1 + len(row.also), people=row.people)
        with self._lock:
            self._today.add(counted, row.at or self._now())
