"""Scans recvq for the documents that a feed without a position can no longer deliver (G9).

The order of steps makes this safe. First, T is taken from the server's clock. Then a causally
consistent majority read waits until all writes up to T are visible. Only then a stream begins at T.
Without the wait, a stored document was observed to be missing from both scan and stream.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bson.timestamp import Timestamp
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.errors import OperationFailure, PyMongoError

from linedesk.store.client import MAJORITY
from linedesk.store.collections import check_recvq
from linedesk.store.documents import Document, has_a_place
from linedesk.store.errors import StoreUnavailable, translate
from linedesk.store.limits import SAFE_ORDER_SLACK

log = logging.getLogger(__name__)

KEPT_IDS = 10_000
LONG_PASS_DOCUMENTS = 5_000
# CappedPositionLost and CursorNotFound: the scan was overtaken; it begins again from progress.
OVERTAKEN_CODES = frozenset({136, 43})


@dataclass
class ScanPass:
    """One scan of recvq, from some places before a document to the newest."""

    operation_time: Timestamp
    seen: OrderedDict[Any, None] = field(default_factory=OrderedDict)
    taken: int = 0
    """The documents handed over by this pass and those before it, and how many of them were new."""
    new: int = 0
    read: int = 0
    last: Any = None
    started: float = field(default_factory=time.monotonic)

    def note(self, id_: Any) -> None:
        """Remember that the pass met this document; forgets the oldest ids beyond the bound."""
        self.read += 1
        self.last = id_
        self.seen[id_] = None
        if len(self.seen) > KEPT_IDS:
            self.seen.popitem(last=False)

    def is_long(self, window_seconds: float) -> bool:
        """Whether the stream from its T may be too old already, or its ids too many."""
        took = time.monotonic() - self.started
        return self.read > LONG_PASS_DOCUMENTS or took > window_seconds / 10


class Rescan:
    """Scans of recvq by the feed's client."""

    def __init__(self, collection: Collection[Any]) -> None:
        self._collection = collection.with_options(read_concern=MAJORITY)
        self._client = collection.database.client

    def now(self) -> Timestamp:
        """The server's operation time: earlier writes have this time or an earlier one."""
        try:
            with self._client.start_session() as session:
                return self._time(session)
        except PyMongoError as error:
            raise translate(error) from error

    def _time(self, session: ClientSession) -> Timestamp:
        self._client.admin.command("ping", session=session)
        assert session.operation_time is not None, "a replica set always tells its time"
        return session.operation_time

    def scan(
        self,
        after: Any,
        take: Callable[[Document], bool],
        stopped: Callable[[], bool],
    ) -> ScanPass | None:
        """Pass every document that may be unfinished to `take`, until a pass is short enough.

        `take` returns whether the document was new.

        Returns the last pass: stream from its `operation_time` and drop the ids it has `seen`.
        Returns None if `stopped` returned True; it is asked at each document read, and at each one
        counted on the way back to the start. Raises StoreUnavailable: a new scan loses no document;
        WrongCollection if recvq is missing, not capped or without its index.
        If `after` is not in recvq, an error is logged.
        """
        window_seconds = self._oplog_window_seconds()
        before: ScanPass | None = None
        while True:
            one = self._pass(after, before, take, stopped)
            if one is None or not one.is_long(window_seconds):
                return one
            log.info("recvq scanned, scanning again for newer ones documents=%d", one.read)
            before, after = one, one.last

    def _pass(
        self,
        after: Any,
        before: ScanPass | None,
        take: Callable[[Document], bool],
        stopped: Callable[[], bool],
    ) -> ScanPass | None:
        try:
            # guard: causal-scan ->
            #     with self._client.start_session(causal_consistency=False) as session:
            with self._client.start_session(causal_consistency=True) as session:
                one = ScanPass(self._time(session))
                if before is not None:
                    one.taken, one.new = before.taken, before.new
                # Behind the time: the stream has every later drop.
                # guard: checked-behind-the-time
                check_recvq(self._collection.database)
                for document in self._documents(after, session, stopped):
                    if stopped():
                        return None
                    if not has_a_place(document):
                        log.error("not a front desk document, skipped id=%s", document["_id"])
                        continue
                    one.note(document["_id"])
                    if before is None or document["_id"] not in before.seen:
                        one.taken += 1
                        one.new += take(document)
                # guard: time-before-scan ->
                #     one.operation_time = self._time(session)
                #     return one
                return one
        except PyMongoError as error:
            raise _unavailable_or(error) from error

    def _documents(
        self, after: Any, session: ClientSession, stopped: Callable[[], bool]
    ) -> Iterator[Document]:
        """Read recvq in order, from some places before `after`; all if that is gone."""
        record = self._anchor(after, session, stopped)
        if record is None:
            yield from self._collection.find({}, session=session).sort("$natural", 1)
            return
        for document in self._from(record, session):
            del document["$recordId"]
            yield document

    def _anchor(
        self, after: Any, session: ClientSession, stopped: Callable[[], bool]
    ) -> tuple[int, int] | None:
        """Return the record id SAFE_ORDER_SLACK places before `after`, and its distance to the end.

        None if `after` is not in recvq. Transfers only `_id`s, from the newest backwards.
        """
        if after is None:
            return None
        if self._collection.find_one({"_id": after}, {"_id": 1}, session=session) is None:
            log.error(
                "the last finished document is no longer in recvq: recvq was made again, "
                "or documents were overwritten before they were handled after=%s",
                after,
            )
            return None
        newest_first = self._collection.find(
            {}, {"_id": 1}, show_record_id=True, session=session
        ).sort("$natural", -1)
        distance, behind, record = 0, -1, 0
        for row in newest_first:
            if stopped():
                return None
            distance, record = distance + 1, row["$recordId"]
            if behind >= 0 or row["_id"] == after:
                behind += 1
            # guard: scan-starts-behind -> if behind >= 0:
            if behind >= SAFE_ORDER_SLACK:
                break
        return (record, distance) if behind >= 0 else None

    def _from(self, anchor: tuple[int, int], session: ClientSession) -> Iterator[Document]:
        """Return the documents from the anchor on.

        `skip` is MongoDB's only way to start in the middle of a natural order. Overwritten
        documents shift the places between counting and reading, so the first record id is checked.
        If the anchor was skipped, the scan starts further back.
        """
        record, distance = anchor
        total = int(self._collection.estimated_document_count())
        skip = max(0, total - distance)
        while True:
            cursor = self._collection.find({}, show_record_id=True, session=session)
            found = iter(cursor.sort("$natural", 1).skip(skip))
            first = next(found, None)
            if skip > 0 and (first is None or first["$recordId"] > record):
                skip = max(0, skip - max(1000, skip // 2))
                continue
            break
        if first is not None and first["$recordId"] >= record:
            yield first
        yield from (document for document in found if document["$recordId"] >= record)

    def _oplog_window_seconds(self) -> float:
        """Return the time span of the oplog, by its oldest and newest entry."""
        oplog = self._client.local["oplog.rs"]
        try:
            ends = [
                oplog.find({}, {"ts": 1}).sort("$natural", direction).limit(1).next()["ts"].time
                for direction in (1, -1)
            ]
        except PyMongoError as error:
            # The oldest entry may have been truncated in the meantime.
            raise _unavailable_or(error) from error
        return float(max(1, ends[1] - ends[0]))


def _unavailable_or(error: PyMongoError) -> Exception:
    """Return StoreUnavailable if the cursor was lost; else the error that `translate` returns."""
    if isinstance(error, OperationFailure) and error.code in OVERTAKEN_CODES:
        return StoreUnavailable(f"MongoDB error {error.code}")
    return translate(error)
