"""The use of recvq: its unread bytes, the lag of its reader, and how long it and the oplog last.

A capped collection overwrites by bytes, so bytes are counted. The other figures come from the ends
of recvq and from single documents, so their cost does not depend on the amount stored. `measure`
reads only what a front desk's rights allow: find and collStats on recvq, and find on `progress`.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import compress
from typing import Any

import pymongo
from bson import Int64, ObjectId
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import ExecutionTimeout, OperationFailure
from pymongo.read_concern import ReadConcern

from linedesk.store.client import Client, aware_options
from linedesk.store.collections import COLL_STATS, DISPATCHER, Shape, read_shape, require_shape
from linedesk.store.documents import HELD, PROGRESS, RECVQ, Document, has_a_place
from linedesk.store.errors import UNAUTHORIZED, WrongCollection, translated
from linedesk.store.limits import ORDER_SLACK
from linedesk.store.records.events import ACCEPT_TIME

log = logging.getLogger(__name__)

WARN_SHARE = 0.80
WARN_AGAIN_SHARE = 0.75
CLOSE_SHARE = 0.95
OPEN_SHARE = 0.90

READ_SECONDS = 2.0
SUM_SECONDS = 5.0
# Up to this many unread documents are added up at each measurement: it takes MongoDB 10 ms.
FEW = 10_000
# A longer sum is repeated only after this multiple of its duration.
REST = 10.0
# The number of newest documents that are checked by `_id`. It exceeds ORDER_SLACK: if one of these
# was read, all documents before them were read, too.
NEWEST = 100

# The upper limit of all times: longer ones need no distinction.
MOST_LEFT_SECONDS = 30 * 24 * 3600.0
# Rates cover the last PACE_SECONDS, and need at least LEAST_PACE_SECONDS.
PACE_SECONDS = 3600.0
LEAST_PACE_SECONDS = 10.0
SAMPLE_SECONDS = 10.0
# An oplog filled to this share overwrites its entries, so its size no longer shows the rate.
FULL_SHARE = 0.9

KEY_NOT_FOUND = 211
CAPPED_POSITION_LOST = 136
# guard: bytes-not-counts -> BYTES = {"$group": {"_id": None, "bytes": {"$sum": 600}}}
BYTES = {"$group": {"_id": None, "bytes": {"$sum": {"$bsonSize": "$$ROOT"}}}}

Depth = dict[str, float | None]
"""Figures of one moment by the names of their metrics; None if unknown."""


@dataclass(frozen=True)
class Reach:
    """The unread bytes of the collection, and the limits at which it closes."""

    unread_bytes: int
    capped_bytes: int

    @property
    def share(self) -> float:
        """0 to 1; the collection overwrites unread documents beyond 1."""
        return min(1.0, self.unread_bytes / self.capped_bytes)

    def closes(self, *, closed: bool) -> bool:
        """Whether inserts must stop; a closed recvq opens again only below OPEN_SHARE.

        With one common limit it would open with each finished document, and its writers would
        switch back and forth between two stores.
        """
        return self.share >= (OPEN_SHARE if closed else CLOSE_SHARE)

    def warns(self, *, warned: bool) -> bool:
        """Whether to warn the operator: once, until the share falls below WARN_AGAIN_SHARE."""
        return self.share >= (WARN_AGAIN_SHARE if warned else WARN_SHARE)

    def plus(self, more_bytes: int) -> Reach:
        return Reach(self.unread_bytes + more_bytes, self.capped_bytes)


@dataclass(frozen=True)
class Sum:
    """The bytes of all documents behind one record id, up to another one inclusive."""

    behind: int
    upto: int
    bytes: int
    due_at: float = 0.0
    """When the whole sum may be made again, to exclude documents finished since."""

    def serves(self, behind: int, newest: int) -> bool:
        """Whether adding the newer documents is enough, instead of a new sum.

        The result includes documents finished since: it may be too high, and is never too low.
        """
        return self.behind <= behind <= self.upto <= newest and newest - behind > FEW


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
class FeedPosition:
    """The state of the reader of recvq at one moment."""

    newest: Any
    """`_id` of the last document read; None before the first."""
    unread: Sequence[bool]
    """For each document in question, whether it has not been read."""
    oldest: Any
    """`_id` of the oldest document read but unfinished; None if there is none."""
    documents: int
    """The number of documents read but unfinished."""
    held: int
    """The number of documents in `held`."""
    unpaused: int
    """The number of these that no pause covers."""
    unpaused_at: datetime | None = None
    """The arrival of the oldest of these; None if it is not in memory."""


@dataclass(frozen=True)
class Reading:
    """The values that one measurement reads from recvq and `progress`."""

    after: int | None
    """Record id of the last finished document; None without one, or if recvq lost it."""
    newest: list[Document]
    """The newest documents, the last one first, with their record ids."""
    shape: Shape | None

    @property
    def behind(self) -> int | None:
        """The record id behind which documents may be unread; None: all may be."""
        return None if self.after is None else max(self.after - ORDER_SLACK, 0)

    @property
    def newest_id(self) -> int:
        """Record id of the newest document; 0 in an empty recvq."""
        return _record_id(self.newest) or 0


class RecvqUsage:
    """Measures one recvq repeatedly, in one thread at a time. Raises the driver's errors."""

    def __init__(
        self, database: Database[Any], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._monotonic = monotonic
        # Not on a majority: unconfirmed inserts take space already.
        self._recvq = database[RECVQ].with_options(read_concern=ReadConcern("local"))
        self._sum: Sum | None = None
        self._stored = Pace(monotonic)
        self._logged = Pace(monotonic)
        # The oplog's length changes slowly, and is measured every SAMPLE_SECONDS.
        self._oplog_due = -math.inf
        self._oplog_keeps: float | None = None

    def measure(self, *, patient: bool) -> Reach:
        """Measure the unread bytes, in at most READ_SECONDS and SUM_SECONDS if MongoDB answers.

        Unless `patient`, an earlier long sum is used, which may be too high, never too low. Raises
        WrongCollection for a recvq that is missing, uncapped or without its index.
        """
        with pymongo.timeout(READ_SECONDS):
            reading = self._read(1)
        return self._reach(reading, patient=patient)

    def depth(self, ask: Callable[[Sequence[Any]], FeedPosition]) -> Depth:
        """Measure all figures. `ask` returns the reader's state for documents with these `_id`s.

        Raises StoreUnavailable, AccessRefused, and other errors of the driver.
        """
        with translated():
            with pymongo.timeout(READ_SECONDS):
                reading = self._read(NEWEST)
                # The reader ignores documents typed in a shell without a place in a queue.
                named = [row for row in reading.newest if has_a_place(row)]
                position = ask([row["_id"] for row in named])
                unread = list(compress(named, position.unread))
                lag, unread_at = len(unread), min(map(accepted_at, unread), default=None)
                if lag == len(named) and len(reading.newest) == NEWEST:
                    lag, unread_at = self._long_lag(reading.newest_id, position.newest)
                in_hand_at = self._accepted(position.oldest)
                held_at = self._oldest_held() if position.held else None
                self._look_at_oplog()
            behind = _age(in_hand_at, unread_at)
            # One that is not read yet may be as old as the oldest of all.
            unpaused_at = (position.unpaused_at or held_at) if position.unpaused else None
            share, recvq_left = self._left(reading)
            oplog = self._oplog_keeps
            return {
                # Far behind, the count includes refused redeliveries.
                "lag_documents": lag,
                "lag_seconds": _age(unread_at),
                "queue_documents": lag + position.documents + position.held,
                "oldest_unfinished_seconds": max(behind, _age(held_at)),
                "behind_seconds": behind,
                "unpaused_documents": lag + position.documents + position.unpaused,
                "unpaused_oldest_seconds": max(behind, _age(unpaused_at)),
                "recvq_unread_share": share,
                "recvq_left_seconds": recvq_left,
                "oplog_left_seconds": None if oplog is None else _bounded(oplog - behind),
                "retention_measured_seconds": self._stored.measured_seconds,
            }

    def _read(self, documents: int) -> Reading:
        # First: documents finished in the meantime only make the result too high.
        progress = self._database[PROGRESS].find_one({"_id": DISPATCHER}, {"after": 1})
        after = self._record_id((progress or {}).get("after"))
        return Reading(after, self._newest(documents), read_shape(self._database))

    def _newest(self, documents: int) -> list[Document]:
        shown = {ACCEPT_TIME: 1, "channel": 1, "key": 1}
        found = self._recvq.find({}, shown, show_record_id=True)
        return list(found.sort("$natural", -1).limit(-documents))

    def _record_id(self, id_: Any) -> int | None:
        if id_ is None:
            return None
        return _record_id(self._recvq.find({"_id": id_}, {"_id": 1}, show_record_id=True).limit(-1))

    # Unread bytes.

    def _reach(self, reading: Reading, *, patient: bool) -> Reach:
        shape = require_shape(reading.shape, database=self._database.name)
        unread = self._unread(reading, patient=patient) if reading.newest else 0
        # guard: share-of-capped-size ->
        #     return Reach(shape.bytes if unread is None else unread, max(1, shape.bytes))
        return Reach(shape.bytes if unread is None else unread, shape.capped_bytes)

    def _unread(self, reading: Reading, *, patient: bool) -> int | None:
        """Bytes that may be unread; None: all."""
        known, behind, newest = self._sum, reading.behind, reading.newest_id
        if behind is None:
            self._sum = None
            return None
        if known is None or not known.serves(behind, newest):
            return self._whole(behind, newest, patient=patient)
        if patient and time.monotonic() >= known.due_at:
            return self._whole(behind, newest, patient=patient)
        total = known.bytes + self._bytes_behind(known.upto, newest)
        if newest - known.upto > FEW:
            self._sum = Sum(known.behind, newest, total, known.due_at)
        return total

    def _whole(self, behind: int, newest: int, *, patient: bool) -> int | None:
        began = time.monotonic()
        self._sum = None
        try:
            total = self._bytes_behind(behind, newest)
        except ExecutionTimeout:
            if not patient:
                raise
            log.warning(
                "the sum of recvq's unread bytes takes too long documents=%d", newest - behind
            )
            return None
        except OperationFailure as error:
            # The scan reached the oldest documents while they were overwritten, so it saw all of
            # them.
            if error.code != CAPPED_POSITION_LOST:
                raise
            return None
        took = time.monotonic() - began
        self._sum = Sum(behind, newest, total, began + took * (1 + REST))
        return total

    def _bytes_behind(self, behind: int, newest: int) -> int:
        """At least the bytes of all documents behind one record id, up to the newest.

        The newest documents are added up, since record ids can be counted but not searched. New
        documents replace the oldest ones in that range, so it adds up as many more.
        """
        more = ORDER_SLACK
        while True:
            # MongoDB's own time limit: otherwise a long sum would look like an unreachable server.
            rows = self._recvq.aggregate(
                [{"$limit": newest - behind + more}, BYTES],
                hint={"$natural": -1},
                maxTimeMS=int(SUM_SECONDS * 1000),
            )
            total = sum(int(row["bytes"]) for row in rows)
            came = (_record_id(self._newest(1)) or newest) - newest
            if came <= more:
                return total
            more = 2 * came

    # Unread and unfinished documents.

    def _long_lag(self, newest: int, last_read: Any) -> tuple[int, datetime | None]:
        """The number of unread documents, and the arrival of the next one."""
        read = self._record_id(last_read)
        following = None if read is None else self._first_behind(read)
        if following is None:
            # The last document read is no longer in recvq, so all of recvq is unread.
            following = self._recvq.find_one(
                {}, {ACCEPT_TIME: 1}, sort=[("$natural", 1)], show_record_id=True
            )
            if following is None:
                return 0, None
            read = int(following["$recordId"]) - 1
        assert read is not None, "a document was found behind it"
        return max(NEWEST, newest - read), accepted_at(following)

    def _first_behind(self, record_id: int) -> Document | None:
        """The next document in recvq's natural order; None if the given one is gone."""
        # Like a resumed collection copy: the server seeks the place without a scan.
        next_one: Document = {
            "find": RECVQ,
            "hint": {"$natural": 1},
            "projection": {ACCEPT_TIME: 1},
            "limit": 1,
            "singleBatch": True,
            "$_requestResumeToken": True,
            "$_resumeAfter": {"$recordId": Int64(record_id)},
        }
        try:
            answer = self._database.command(next_one, codec_options=aware_options())
        except OperationFailure as error:
            if error.code not in (KEY_NOT_FOUND, CAPPED_POSITION_LOST):
                raise
            return None
        rows: list[Document] = answer["cursor"]["firstBatch"]
        return rows[0] if rows else None

    def _accepted(self, id_: Any) -> datetime | None:
        if id_ is None:
            return None
        found = self._recvq.find_one({"_id": id_}, {ACCEPT_TIME: 1})
        # The `_id` of a document that recvq has lost has at least the second of its arrival.
        return accepted_at({"_id": id_} if found is None else found)

    def _oldest_held(self) -> datetime | None:
        shown = {f"document.{ACCEPT_TIME}": 1}
        for row in self._database[HELD].find({}, shown).sort("_id", 1).limit(-1):
            return accepted_at({"_id": row["_id"], **row.get("document", {})})
        return None

    # How long they are kept.

    def _left(self, reading: Reading) -> tuple[float | None, float | None]:
        """The unread share, and the time until the rest is filled; None if unknown."""
        if not reading.newest:
            return 0.0, MOST_LEFT_SECONDS
        try:
            reach = self._reach(reading, patient=True)
        except WrongCollection:
            return None, None
        rate = self._stored.rate(reading.newest_id)
        if rate is None or reading.shape is None:
            return round(reach.share, 6), None
        per_second = rate * reading.shape.bytes / max(1, reading.shape.documents)
        free = max(0, reach.capped_bytes - reach.unread_bytes)
        return round(reach.share, 6), _bounded(free / per_second if per_second else math.inf)

    def _look_at_oplog(self) -> None:
        now = self._monotonic()
        if now < self._oplog_due:
            return
        try:
            span = oplog_span(self._database.client)
        except OperationFailure as error:
            if error.code != UNAUTHORIZED:
                raise
            log.warning("no right to read the oplog's size: run `linedesk init --users`")
            self._oplog_due = math.inf
            return
        self._oplog_due = now + SAMPLE_SECONDS
        self._oplog_keeps = None if span is None else self._keeps(span)

    def _keeps(self, span: Span) -> float | None:
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
        return round(self._monotonic() - self._samples[0][0], 3) if self._samples else 0.0

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
    [stats] = collection.aggregate(COLL_STATS)
    return Span(seconds, int(stats["size"]), int(stats.get("maxSize") or 0))


def _record_id(rows: Iterable[Document]) -> int | None:
    for row in rows:
        return int(row["$recordId"])
    return None


def _age(*moments: datetime | None) -> float:
    """Seconds since the earliest of them; 0 if there is none."""
    known = [at for at in moments if at is not None]
    if not known:
        return 0.0
    return round(max(0.0, (datetime.now(UTC) - min(known)).total_seconds()), 3)


def _bounded(seconds: float) -> float:
    return round(min(max(0.0, seconds), MOST_LEFT_SECONDS), 3)
