"""The number and age of unfinished documents, and how long recvq and the oplog keep them.

A measurement reads from the ends of recvq and by `_id`, so its cost does not depend on the amount
stored. Only the bytes of unread documents are added up, and rarely if there are many
(`linedesk/store/queue/gauge.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import compress
from typing import Any

import pymongo
from bson import Int64
from pymongo.database import Database
from pymongo.errors import OperationFailure

from linedesk.store.client import aware_options
from linedesk.store.documents import HELD, RECVQ, Document, has_a_place
from linedesk.store.errors import translated
from linedesk.store.queue.gauge import CAPPED_POSITION_LOST
from linedesk.store.queue.retention import Retention, accepted_at
from linedesk.store.records.events import ACCEPT_TIME

READ_SECONDS = 2.0
# The number of newest documents that are checked by `_id`. It exceeds ORDER_SLACK: if one of these
# was read, all documents before them were read, too.
NEWEST = 100

KEY_NOT_FOUND = 211


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
class Depth:
    """Figures of one moment, in seconds and shares; None if unknown."""

    lag_documents: int
    """Documents stored and not read yet. Above NEWEST the count includes refused redeliveries."""
    lag_seconds: float
    """Age of the oldest of these; 0 if there are none."""
    documents: int
    """All unfinished documents: unread, being processed, and in `held`."""
    oldest_seconds: float
    """Age of the oldest of these; 0 if there are none."""
    behind_seconds: float = 0.0
    """The same age without documents in `held` (stuck or paused): the lag of progress."""
    unpaused_documents: int = 0
    """All unfinished documents without those in `held` that are paused."""
    unpaused_oldest_seconds: float = 0.0
    """Age of the oldest of these."""
    unread_share: float | None = None
    """The share of recvq that is unread or unfinished; beyond 1 it would be overwritten."""
    recvq_left_seconds: float | None = None
    """The time until that if no document were finished, at most 30 days."""
    oplog_left_seconds: float | None = None
    """The time until the oplog no longer reaches back to the saved position, at most 30 days."""
    retention_measured_seconds: float | None = None
    """The part of the last hour on which both rates are based."""


class DepthGauge:
    """Measures one recvq repeatedly. Belongs to one thread.

    `ask` returns the reader's state for documents with the given `_id`s.
    """

    def __init__(
        self,
        database: Database[Any],
        ask: Callable[[Sequence[Any]], FeedPosition],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        read_seconds: float = READ_SECONDS,
    ) -> None:
        self._database = database
        self._read_seconds = read_seconds
        self._recvq = database[RECVQ]
        self._ask = ask
        self._lasting = Retention(database, monotonic=monotonic)

    def measure(self) -> Depth:
        """Measure. Raises StoreUnavailable, AccessRefused, and other errors of the driver."""
        with translated():
            with pymongo.timeout(self._read_seconds):
                newest = self._newest()
                # The reader ignores documents typed in a shell without a place in a queue.
                named = [row for row in newest if has_a_place(row)]
                standing = self._ask([row["_id"] for row in named])
                unread = list(compress(named, standing.unread))
                lag, unread_at = len(unread), min(map(accepted_at, unread), default=None)
                if lag == len(named) and len(newest) == NEWEST:
                    lag, unread_at = self._long_lag(newest[0], standing.newest)
                in_hand_at = self._accepted(standing.oldest)
                held_at = self._oldest_held() if standing.held else None
            behind = _age(in_hand_at, unread_at)
            # One that is not read yet may be as old as the oldest of all.
            unpaused_at = (standing.unpaused_at or held_at) if standing.unpaused else None
            self._lasting.look()
            share, recvq_left = self._lasting.recvq(newest[0]["$recordId"] if newest else None)
            return Depth(
                lag_documents=lag,
                lag_seconds=_age(unread_at),
                documents=lag + standing.documents + standing.held,
                oldest_seconds=max(behind, _age(held_at)),
                behind_seconds=behind,
                unpaused_documents=lag + standing.documents + standing.unpaused,
                unpaused_oldest_seconds=max(behind, _age(unpaused_at)),
                unread_share=share,
                recvq_left_seconds=recvq_left,
                oplog_left_seconds=self._lasting.oplog(behind_seconds=behind),
                retention_measured_seconds=self._lasting.measured_seconds,
            )

    # Unread documents.

    def _newest(self) -> list[Document]:
        shown = {ACCEPT_TIME: 1, "channel": 1, "key": 1}
        found = self._recvq.find({}, shown, show_record_id=True)
        return list(found.sort("$natural", -1).limit(NEWEST))

    def _long_lag(self, newest: Document, last_read: Any) -> tuple[int, datetime | None]:
        """The number of unread documents, and the arrival of the next one."""
        read = self._record_id(last_read)
        following = None if read is None else self._first_behind(read)
        if following is None:
            # The last document read is no longer in recvq, so all of recvq is unread.
            following = self._first()
            if following is None:
                return 0, None
            read = int(following["$recordId"]) - 1
        assert read is not None, "a document was found behind it"
        return max(NEWEST, int(newest["$recordId"]) - read), accepted_at(following)

    def _record_id(self, id_: Any) -> int | None:
        if id_ is None:
            return None
        for row in self._recvq.find({"_id": id_}, {"_id": 1}, show_record_id=True).limit(-1):
            return int(row["$recordId"])
        return None

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

    def _first(self) -> Document | None:
        found = self._recvq.find({}, {ACCEPT_TIME: 1}, show_record_id=True)
        for row in found.sort("$natural", 1).limit(-1):
            return dict(row)
        return None

    # Documents being processed, and in `held`.

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


def _age(*moments: datetime | None) -> float:
    """Seconds since the earliest of them; 0 if there is none."""
    known = [at for at in moments if at is not None]
    return max(0.0, (datetime.now(UTC) - min(known)).total_seconds()) if known else 0.0
