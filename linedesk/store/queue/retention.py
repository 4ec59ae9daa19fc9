"""How long recvq, the oplog and the disk keep unread documents at the rate of the last hour.

It measures by find, collStats and dbStats, without any judgement.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pymongo
from bson import ObjectId
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import OperationFailure

from linedesk.store.client import Client
from linedesk.store.collections import read_shape
from linedesk.store.documents import RECVQ
from linedesk.store.errors import UNAUTHORIZED, WrongCollection
from linedesk.store.queue.gauge import Gauge, Reach
from linedesk.store.records.events import ACCEPT_TIME

SIZES: list[Mapping[str, Any]] = [
    {"$collStats": {"storageStats": {}}},
    {"$project": {"size": "$storageStats.size", "maxSize": "$storageStats.maxSize"}},
]


@dataclass(frozen=True)
class Span:
    """The contents of a capped collection: its age, its size, and its limit."""

    seconds: float
    """The age of its oldest entry."""
    bytes: int
    most_bytes: int

    @property
    def bytes_per_second(self) -> float:
        """The mean write rate since its oldest entry."""
        return self.bytes / self.seconds if self.seconds > 0 else 0.0

    @property
    def keeps_seconds(self) -> float:
        """The time until an entry is overwritten at that rate; infinite without writes."""
        rate = self.bytes_per_second
        return self.most_bytes / rate if rate > 0 else math.inf


@dataclass(frozen=True)
class Disk:
    """The file system of MongoDB's data, in bytes."""

    free_bytes: int
    total_bytes: int


def oplog_span(client: Client) -> Span | None:
    """The oplog of the server; None if it has none. Raises the driver's errors."""
    oplog = client.local["oplog.rs"]
    oldest, newest = (_end(oplog, order) for order in (1, -1))
    if oldest is None or newest is None:
        return None
    # In whole seconds, like its timestamps: an oplog of one second has no rate yet.
    return _span(oplog, float(newest["ts"].time - oldest["ts"].time))


def recvq_span(database: Database[Any], *, now: datetime) -> Span | None:
    """recvq up to `now`; None while it is empty. Raises the driver's errors."""
    recvq = database[RECVQ]
    oldest = _end(recvq, 1)
    if oldest is None:
        return None
    return _span(recvq, max(0.0, (now - accepted_at(oldest)).total_seconds()))


def read_disk(database: Database[Any]) -> Disk:
    """The disk of the database, as reported by the server."""
    stats = database.command("dbStats")
    total, used = int(stats["fsTotalSize"]), int(stats["fsUsedSize"])
    return Disk(free_bytes=total - used, total_bytes=total)


def accepted_at(document: Mapping[str, Any]) -> datetime:
    """The arrival of a document of recvq; taken from `_id` if one made by hand lacks the time."""
    at, id_ = document.get(ACCEPT_TIME), document["_id"]
    if isinstance(at, datetime):
        return at
    return id_.generation_time if isinstance(id_, ObjectId) else datetime.now(UTC)


def _end(collection: Collection[Any], order: int) -> Mapping[str, Any] | None:
    shown = {"ts": 1, ACCEPT_TIME: 1}
    found: Mapping[str, Any] | None = collection.find_one({}, shown, sort=[("$natural", order)])
    return found


def _span(collection: Collection[Any], seconds: float) -> Span:
    [stats] = collection.aggregate(SIZES)
    return Span(seconds, int(stats["size"]), int(stats.get("maxSize") or 0))


log = logging.getLogger(__name__)

READ_SECONDS = 2.0
# The upper limit of all times: longer ones need no distinction.
MOST_LEFT_SECONDS = 30 * 24 * 3600.0
# Rates cover the last PACE_SECONDS, and need at least LEAST_PACE_SECONDS.
PACE_SECONDS = 3600.0
LEAST_PACE_SECONDS = 10.0
SAMPLE_SECONDS = 10.0
# An oplog filled to this share overwrites its entries, so its size no longer shows the rate.
FULL_SHARE = 0.9


class Retention:
    """The retention of one database, measured repeatedly. Belongs to one thread.

    Its methods raise the driver's errors.
    """

    def __init__(
        self, database: Database[Any], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._monotonic = monotonic
        self._gauge = Gauge(database)
        self._stored = Pace(monotonic)
        self._logged = Pace(monotonic)
        # The last measurement of sizes, which change slowly: the oplog's seconds, and the mean
        # bytes of a document in recvq.
        self._sized_at = -math.inf
        self._keeps: float | None = None
        self._mean: float | None = None
        self._oplog_is_closed = False

    def look(self) -> None:
        """Measure both sizes, unless measured a moment ago; call it before the other methods."""
        now = self._monotonic()
        if now - self._sized_at < SAMPLE_SECONDS:
            return
        with pymongo.timeout(READ_SECONDS):
            shape = read_shape(self._database)
            self._mean = None if shape is None else shape.bytes / max(1, shape.documents)
            self._keeps = self._oplog_keeps()
        self._sized_at = now

    def recvq(self, newest_record_id: int | None) -> tuple[float | None, float | None]:
        """The unread share, and the time until the rest is filled; None if unknown."""
        if newest_record_id is None:
            return 0.0, MOST_LEFT_SECONDS
        try:
            reach = self._gauge.measure(patient=True)
        except WrongCollection:
            return None, None
        rate = self._stored.rate(newest_record_id)
        if rate is None or self._mean is None:
            return reach.share, None
        return reach.share, _left(reach, rate * self._mean)

    @property
    def measured_seconds(self) -> float:
        """The part of the last hour on which recvq's rate is based; shorter after a start."""
        return self._stored.measured_seconds

    def oplog(self, *, behind_seconds: float) -> float | None:
        """How long the oplog still reaches back to a reader that is `behind_seconds` behind; None
        if unknown.
        """
        return None if self._keeps is None else _bounded(self._keeps - behind_seconds)

    def _oplog_keeps(self) -> float | None:
        if self._oplog_is_closed:
            return None
        try:
            span = oplog_span(self._database.client)
        except OperationFailure as error:
            if error.code != UNAUTHORIZED:
                raise
            log.warning("no right to read the oplog's size: run `linedesk init --users`")
            self._oplog_is_closed = True
            return None
        return None if span is None else self._keeps_seconds(span)

    def _keeps_seconds(self, span: Span) -> float | None:
        rate = self._logged.rate(span.bytes)
        if span.bytes >= span.most_bytes * FULL_SHARE:
            return span.keeps_seconds
        # A bulk write into a new collection, such as by a restore, shows no rate.
        return None if rate is None else span.most_bytes / rate if rate else math.inf


class Pace:
    """The growth of a count, per second of the last hour or since the first sample."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._samples: deque[tuple[float, int]] = deque()

    @property
    def measured_seconds(self) -> float:
        """The time from the oldest sample of the rate to now."""
        return self._monotonic() - self._samples[0][0] if self._samples else 0.0

    def rate(self, count: int) -> float | None:
        """The rate with `count` as the newest sample; None if there is too little data."""
        now, samples = self._monotonic(), self._samples
        if samples and count < samples[-1][1]:
            # A different collection, or one that was emptied.
            samples.clear()
        if not samples or now - samples[-1][0] >= SAMPLE_SECONDS:
            samples.append((now, count))
        while len(samples) > 1 and samples[1][0] <= now - PACE_SECONDS:
            samples.popleft()
        then, before = samples[0]
        return (count - before) / (now - then) if now - then >= LEAST_PACE_SECONDS else None


def _left(reach: Reach, bytes_per_second: float) -> float:
    free = max(0, reach.capped_bytes - reach.unread_bytes)
    return _bounded(free / bytes_per_second) if bytes_per_second else MOST_LEFT_SECONDS


def _bounded(seconds: float) -> float:
    return min(max(0.0, seconds), MOST_LEFT_SECONDS)
