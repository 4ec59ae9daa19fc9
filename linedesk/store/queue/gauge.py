"""Measures the unread share of recvq, whose newest documents must not overwrite unread ones.

A capped collection overwrites by bytes, so bytes are counted. The gauge reads only what a front
desk's rights allow: find and collStats on recvq, and find on `progress`.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

import pymongo
from pymongo.cursor import Cursor
from pymongo.database import Database
from pymongo.errors import ExecutionTimeout, OperationFailure
from pymongo.read_concern import ReadConcern

from linedesk.store.collections import DISPATCHER, read_shape, require_shape
from linedesk.store.documents import PROGRESS, RECVQ
from linedesk.store.limits import ORDER_SLACK

WARN_SHARE = 0.80
WARN_AGAIN_SHARE = 0.75
CLOSE_SHARE = 0.95
OPEN_SHARE = 0.90

# Up to this many unread documents are added up at each measurement: it takes MongoDB 10 ms.
FEW = 10_000
# A longer sum is repeated only after this multiple of its duration.
REST = 10.0


@dataclass(frozen=True)
class Marks:
    """Record ids of the last finished document and of the newest one.

    `after` is None if no document is finished yet, or if it is no longer in recvq.
    """

    after: int | None
    newest: int

    @property
    def behind(self) -> int | None:
        """The record id behind which documents may be unread; None: all may be."""
        return None if self.after is None else max(self.after - ORDER_SLACK, 0)


@dataclass(frozen=True)
class Sum:
    """The bytes of all documents behind one record id, up to another one inclusive."""

    behind: int
    upto: int
    bytes: int
    due_at: float = 0.0
    """When the whole sum may be made again, to exclude documents finished since."""

    def serves(self, marks: Marks, behind: int, few: int = FEW) -> bool:
        """Whether adding the newer documents is enough, instead of a new sum.

        The result includes documents finished since: it may be too high, and is never too low.
        """
        return self.behind <= behind <= self.upto <= marks.newest and marks.newest - behind > few


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
        """The same with `more_bytes` added."""
        return Reach(self.unread_bytes + more_bytes, self.capped_bytes)


log = logging.getLogger(__name__)

READ_SECONDS = 2.0
SUM_SECONDS = 5.0
CAPPED_POSITION_LOST = 136
# guard: bytes-not-counts -> BYTES = {"$group": {"_id": None, "bytes": {"$sum": 600}}}
BYTES = {"$group": {"_id": None, "bytes": {"$sum": {"$bsonSize": "$$ROOT"}}}}


class Gauge:
    """Measures one recvq repeatedly, and keeps a long sum for the next time.

    Belongs to one thread at a time. Raises WrongCollection for a recvq that is missing, uncapped or
    without its index, and the driver's errors.
    """

    def __init__(
        self,
        database: Database[Any],
        *,
        few: int = FEW,
        rest: float = REST,
        sum_seconds: float = SUM_SECONDS,
    ) -> None:
        self._database = database
        self._few = few
        self._rest = rest
        self._sum_seconds = sum_seconds
        # Not on a majority: unconfirmed inserts take space already.
        self._recvq = database[RECVQ].with_options(read_concern=ReadConcern("local"))
        self._sum: Sum | None = None

    def measure(self, *, patient: bool) -> Reach:
        """Measure; takes at most READ_SECONDS and SUM_SECONDS if MongoDB answers.

        Unless `patient`, an earlier long sum is used, which may be too high, never too low.
        """
        with pymongo.timeout(READ_SECONDS):
            # Read first: documents finished in the meantime only make the result too high.
            after = self._after()
            marks = self._marks(after)
            shape = require_shape(read_shape(self._database), database=self._database.name)
        unread = 0 if marks is None else self._unread(marks, patient=patient)
        # guard: share-of-capped-size ->
        #     return Reach(shape.bytes if unread is None else unread, max(1, shape.bytes))
        return Reach(shape.bytes if unread is None else unread, shape.capped_bytes)

    def _after(self) -> Any:
        progress = self._database[PROGRESS].find_one({"_id": DISPATCHER}, {"after": 1})
        return progress and progress.get("after")

    def _marks(self, after: Any) -> Marks | None:
        """None for an empty collection."""
        found = None if after is None else self._record_id(self._find({"_id": after}))
        newest = self._newest()
        return None if newest is None else Marks(found, newest)

    def _newest(self) -> int | None:
        return self._record_id(self._find({}).sort("$natural", -1))

    def _find(self, wanted: dict[str, Any]) -> Cursor[Any]:
        return self._recvq.find(wanted, {"_id": 1}, show_record_id=True)

    def _record_id(self, cursor: Cursor[Any]) -> int | None:
        for document in cursor.limit(-1):
            return int(document["$recordId"])
        return None

    def _unread(self, marks: Marks, *, patient: bool) -> int | None:
        """Bytes that may be unread; None: all."""
        behind, known = marks.behind, self._sum
        if behind is None:
            self._sum = None
            return None
        if known is None or not known.serves(marks, behind, self._few):
            return self._whole(behind, marks.newest, patient=patient)
        if patient and time.monotonic() >= known.due_at:
            return self._whole(behind, marks.newest, patient=patient)
        return self._with_newest(known, marks)

    def _with_newest(self, known: Sum, marks: Marks) -> int:
        total = known.bytes + self._bytes_behind(known.upto, marks.newest)
        if marks.newest - known.upto > self._few:
            self._sum = Sum(known.behind, marks.newest, total, known.due_at)
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
        self._sum = Sum(behind, newest, total, began + took * (1 + self._rest))
        return total

    def _bytes_behind(self, behind: int, newest: int) -> int:
        """At least the bytes of all documents behind one record id, up to the newest.

        The newest documents are added up, since record ids can be counted but not searched. New
        documents replace the oldest ones in that range, so it adds up as many more.
        """
        more = ORDER_SLACK
        while True:
            total = self._bytes_of_newest(newest - behind + more)
            came = (self._newest() or newest) - newest
            if came <= more:
                return total
            more = 2 * came

    def _bytes_of_newest(self, count: int) -> int:
        # MongoDB's own time limit: otherwise a long sum would look like an unreachable server.
        rows = self._recvq.aggregate(
            [{"$limit": count}, BYTES],
            hint={"$natural": -1},
            maxTimeMS=int(self._sum_seconds * 1000),
        )
        return sum(int(row["bytes"]) for row in rows)
