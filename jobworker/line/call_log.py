"""One row in `calls` per LINE API call: the data that LINE advises bot makers to log, since it
offers no logs of its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import uuid4

import pymongo
from pymongo import ReturnDocument
from pymongo.collection import Collection
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from jobworker.line.gate import current_ticket
from jobworker.line.group_sizes import GroupSizes
from jobworker.metrics import WorkerMetrics
from jobworker.row_log import RowLog
from linedesk.store.documents import LEASES, Document
from linedesk.store.limits import USER, day_of, sent_id
from linedesk.store.records.calls import MULTICAST, PUSH, CallRecord
from linedesk.store.records.events import EVENT_ID

log = logging.getLogger(__name__)

COUNT_SECONDS = 2.0


def people_of(endpoint: str, to: Any, in_group: Callable[[Any], int | None]) -> int | None:
    """Return how many people LINE counts for a successful send; None if only LINE knows.

    `in_group` returns the number of people in a group or room, as far as LINE has told it.

    LINE's page "Messaging API pricing": the count is of people and not of message objects, and
    replies are free.
    """
    if endpoint == PUSH:
        return 1 if _is_user(to) else in_group(to)
    if endpoint == MULTICAST:
        return len(to) if isinstance(to, Sequence) and not isinstance(to, str) else None
    return 0 if endpoint.endswith("/reply") else None


Kind = Literal["replies", "pushes", "groups"]


class SentHere:
    """The sends of this process in this month and today. Its owner's lock guards it."""

    def __init__(self) -> None:
        self._month = ""
        self._part: Counter[str] = Counter()

    def add(self, kind: Kind, count: int, now: datetime) -> None:
        """LINE accepted a call just now."""
        if self._month != sent_id(now):
            self._month, self._part = sent_id(now), Counter()
        if self._part["day"] != day_of(now).day:
            self._part["day"], self._part["today"] = day_of(now).day, 0
        self._part[kind] += count
        self._part["today"] += 0 if kind == "replies" else count

    def part(self, now: datetime) -> dict[str, int]:
        """Return its part of the month's document; empty if it sent nothing in this month."""
        return dict(self._part) if self._month == sent_id(now) else {}


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
        super().__init__(collection, unwritten=self._figures.unwritten("calls"))
        self._now = now
        self.groups = GroupSizes()
        """Replaced by the one that asks LINE."""
        self._leases = collection.database[LEASES].with_options(
            write_concern=WriteConcern(w=1), read_concern=ReadConcern("local")
        )
        # Its part of the month's document: repeated writes count nothing twice.
        self._part = uuid4().hex
        self._lock = threading.Lock()
        # Under _lock.
        self._sent = SentHere()
        self._stored: Document = {}
        self._is_stored = False
        self._figures.set("counted_today_messages", self.counted_today)

    def counted_today(self) -> int:
        """Return how many messages LINE has counted today for linedesk's calls, as far as known."""
        with self._lock:
            now = self._now()
            others = self._stored if self._stored.get("_id") == sent_id(now) else {}
            parts = {**others, self._part: self._sent.part(now) or None}
        today = day_of(now).day
        return sum(
            one["today"]
            for one in parts.values()
            if isinstance(one, Mapping) and one["day"] == today
        )

    def write(self) -> None:
        """Write the waiting rows, and what was sent; for the writer's thread. Raises nothing."""
        super().write()
        with self._lock:
            if self._is_stored:
                return
            self._is_stored = True
            now = self._now()
            part = self._sent.part(now)
        month = {"_id": sent_id(now)}
        try:
            with pymongo.timeout(COUNT_SECONDS):
                stored = (
                    self._leases.find_one_and_update(
                        month,
                        {"$set": {self._part: part}},
                        upsert=True,
                        return_document=ReturnDocument.AFTER,
                    )
                    if part
                    else self._leases.find_one(month)
                )
        except PyMongoError:
            # The next batch tries again.
            with self._lock:
                self._is_stored = False
            return
        with self._lock:
            self._stored = stored or {}

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
        ticket = current_ticket()
        row = CallRecord(
            at=self._now(),
            method=method,
            endpoint=endpoint,
            event_id=context.get(EVENT_ID),
            key=context.get("key"),
            attempt=context.get("attempt", 1),
            turn_class=ticket.turn_class.word if ticket else None,
            waited_ms=round(ticket.waited_seconds * 1000, 1) if ticket else None,
            people=people_of(endpoint, to, self.groups.people),
            also=context.get("also") or [],
        )
        started = time.monotonic()
        try:
            yield row
        finally:
            seconds = time.monotonic() - started
            row.ms = round(seconds * 1000, 1)
            log.debug(
                "called LINE method=%s endpoint=%s status=%s request_id=%s event_id=%s "
                "attempt=%d ms=%.1f%s",
                *(row.method, row.endpoint, row.status, row.request_id),
                *(row.event_id, row.attempt, row.ms),
                f' reason="{row.reason.words}"' if row.reason else "",
            )
            self._figures.called(host, endpoint, row.status, seconds)
            if row.is_sent:
                self._took(row, to)
            self.add(row.to_document())

    def _took(self, row: CallRecord, to: Any) -> None:
        """Count a send that LINE accepted."""
        endpoint, people = row.endpoint or "", 1 if row.people is None else row.people
        is_group = endpoint == PUSH and not _is_user(to)
        self._figures.sent(endpoint, sends=1 + len(row.also), people=people, is_group=is_group)
        kind: Kind = "groups" if is_group else "pushes"
        if endpoint.endswith("/reply"):
            kind, people = "replies", 1
        with self._lock:
            self._sent.add(kind, people, self._now())
            self._is_stored = False


def _is_user(to: Any) -> bool:
    return str(to).startswith(USER)
