"""For how long recvq and the oplog still hold what is unread, at the rate of the last hour."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import pymongo
from pymongo.database import Database
from pymongo.errors import OperationFailure

from recvq.capacity import Span, oplog_span
from recvq.errors import UNAUTHORIZED, WrongCollection
from recvq.gauge import Gauge
from recvq.reach import Reach
from recvq.shape import read_shape

log = logging.getLogger(__name__)

READ_SECONDS = 2.0
# What stands for ever, and for what comes to it a year or a day from now is all the same.
MOST_LEFT_SECONDS = 30 * 24 * 3600.0
# A rate is that of the last so many seconds, from so many on.
PACE_SECONDS = 3600.0
LEAST_PACE_SECONDS = 10.0
SAMPLE_SECONDS = 10.0
# An oplog that is full by this part overwrites, and its size tells no rate any more.
FULL_SHARE = 0.9


class Lasting:
    """Of one database, looked at again and again. Belongs to one thread.

    Its methods raise what the driver raises.
    """

    def __init__(
        self, database: Database[Any], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._monotonic = monotonic
        self._gauge = Gauge(database)
        self._stored = Pace(monotonic)
        self._logged = Pace(monotonic)
        # Of the last look at their sizes, which change slowly: the oplog's seconds, and the mean
        # bytes of a document in recvq.
        self._sized_at = -math.inf
        self._keeps: float | None = None
        self._mean: float | None = None
        self._oplog_is_closed = False

    def look(self) -> None:
        """See how large both are, unless that was seen a moment ago; before the other methods."""
        now = self._monotonic()
        if now - self._sized_at < SAMPLE_SECONDS:
            return
        with pymongo.timeout(READ_SECONDS):
            shape = read_shape(self._database)
            self._mean = None if shape is None else shape.bytes / max(1, shape.documents)
            self._keeps = self._oplog_keeps()
        self._sized_at = now

    def recvq(self, newest_record_id: int | None) -> tuple[float | None, float | None]:
        """The part that is unread, and for how long the rest lasts; None where that is unknown."""
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

    def oplog(self, *, behind_seconds: float) -> float | None:
        """For how long it reaches back to who is so far behind in reading; None if unknown."""
        return None if self._keeps is None else _bounded(self._keeps - behind_seconds)

    def _oplog_keeps(self) -> float | None:
        if self._oplog_is_closed:
            return None
        try:
            span = oplog_span(self._database.client)
        except OperationFailure as error:
            if error.code != UNAUTHORIZED:
                raise
            log.warning("the oplog's size may not be read: `linedesk init --users` allows it")
            self._oplog_is_closed = True
            return None
        return None if span is None else self._keeps_seconds(span)

    def _keeps_seconds(self, span: Span) -> float | None:
        rate = self._logged.rate(span.bytes)
        if span.bytes >= span.most_bytes * FULL_SHARE:
            return span.keeps_seconds
        # What was written into a new one at once, such as by a restore, is no rate.
        return None if rate is None else span.most_bytes / rate if rate else math.inf


class Pace:
    """How fast a count goes up, per second of the last hour or since it was seen first."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._samples: deque[tuple[float, int]] = deque()

    def rate(self, count: int) -> float | None:
        """With this one as the newest; None while it is too early to say."""
        now, samples = self._monotonic(), self._samples
        if samples and count < samples[-1][1]:
            # Another collection, or one that was emptied.
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
