"""How much is stored and unfinished, how old it is, and how long recvq and the oplog keep it.

A look reads from the ends of recvq and by `_id`, so it costs the same whatever is stored; only the
bytes that are unread are added up, seldom where they are many (`linedesk/store/queue/gauge.py`).
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
# So many of the newest are asked for by name. They are more than ORDER_SLACK, so where one of
# these was read all before them were.
NEWEST = 100

KEY_NOT_FOUND = 211


@dataclass(frozen=True)
class FeedPosition:
    """What the reader of recvq knows at one moment, of all that it has read."""

    newest: Any
    """`_id` of the last document that was read; None before the first."""
    unread: Sequence[bool]
    """Of each document that it was asked for whether it has not read it."""
    oldest: Any
    """`_id` of the oldest unfinished one in hand; None if there is none."""
    documents: int
    """How many are in hand unfinished."""
    held: int
    """How many are in `held`."""


@dataclass(frozen=True)
class Depth:
    """All of one moment; seconds and shares. What cannot be known is None."""

    lag_documents: int
    """Stored, and not read yet. Above NEWEST redeliveries that recvq refused count along."""
    lag_seconds: float
    """Age of the oldest of these; 0 if there are none."""
    documents: int
    """All that is unfinished: unread, in hand, held."""
    oldest_seconds: float
    """Age of the oldest of these; 0 if there are none."""
    behind_seconds: float = 0.0
    """Likewise, without what is in `held`: stuck alone, or paused. Progress is so far behind."""
    unread_share: float | None = None
    """How much of recvq is unread or unfinished; beyond 1 it would be overwritten."""
    recvq_left_seconds: float | None = None
    """Until that would happen if nothing more were finished, at most 30 days."""
    oplog_left_seconds: float | None = None
    """Until the oplog would no longer reach back to the saved position, likewise."""
    retention_measured_seconds: float | None = None
    """Both by the rate of so much of the last hour."""


class DepthGauge:
    """Measures one recvq again and again. Belongs to one thread.

    `ask` tells what was read of the documents whose `_id` it is handed.
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
        """Raises StoreUnavailable, AccessRefused, and what else the driver raises."""
        with translated():
            with pymongo.timeout(self._read_seconds):
                newest = self._newest()
                # What was typed in a shell and has no place in a line is passed over by who reads.
                named = [row for row in newest if has_a_place(row)]
                standing = self._ask([row["_id"] for row in named])
                unread = list(compress(named, standing.unread))
                lag, unread_at = len(unread), min(map(accepted_at, unread), default=None)
                if lag == len(named) and len(newest) == NEWEST:
                    lag, unread_at = self._long_lag(newest[0], standing.newest)
                in_hand_at = self._accepted(standing.oldest)
                held_at = self._oldest_held() if standing.held else None
            behind = _age(in_hand_at, unread_at)
            self._lasting.look()
            share, recvq_left = self._lasting.recvq(newest[0]["$recordId"] if newest else None)
            return Depth(
                lag_documents=lag,
                lag_seconds=_age(unread_at),
                documents=lag + standing.documents + standing.held,
                oldest_seconds=max(behind, _age(held_at)),
                behind_seconds=behind,
                unread_share=share,
                recvq_left_seconds=recvq_left,
                oplog_left_seconds=self._lasting.oplog(behind_seconds=behind),
                retention_measured_seconds=self._lasting.measured_seconds,
            )

    # What was not read yet.

    def _newest(self) -> list[Document]:
        shown = {ACCEPT_TIME: 1, "channel": 1, "key": 1}
        found = self._recvq.find({}, shown, show_record_id=True)
        return list(found.sort("$natural", -1).limit(NEWEST))

    def _long_lag(self, newest: Document, last_read: Any) -> tuple[int, datetime | None]:
        """How many documents were not read, and when the next one arrived."""
        read = self._record_id(last_read)
        following = None if read is None else self._first_behind(read)
        if following is None:
            # What was read last is in recvq no more, so nothing that is in it was read.
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
        """The next document by recvq's own order; None if that one is gone."""
        # As a copy of a collection is resumed: the server seeks the place, and scans nothing.
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

    # What is in hand, and in `held`.

    def _accepted(self, id_: Any) -> datetime | None:
        if id_ is None:
            return None
        found = self._recvq.find_one({"_id": id_}, {ACCEPT_TIME: 1})
        # What recvq has lost meanwhile tells at least the second of its arrival.
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
