"""The collection `schedule` as bots change it: timers set and cancelled, and rings overtaken.

A row belongs to the record with the highest `n`. So a set or cancel that comes late, again or in
another order changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from bson.errors import BSONError
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError, WriteError

from jobworker.conversations import SETTLE_TRIES
from jobworker.timers import row_of
from recvq.connect import DURABLE, MAJORITY
from recvq.documents import CONVERSATIONS, SCHEDULE, Document, conversation_id, name_of
from recvq.errors import StoreUnavailable, translated
from recvq.timers import TIMER

log = logging.getLogger(__name__)


class Schedule:
    """The rows of bots' timers. Every method raises StoreUnavailable when MongoDB is away."""

    def __init__(self, database: Database[Any]) -> None:
        options: Document = {"write_concern": DURABLE, "read_concern": MAJORITY}
        self._rows = database[SCHEDULE].with_options(**options)
        self._conversations = database[CONVERSATIONS].with_options(**options)

    def enter(self, effect: Mapping[str, Any]) -> str | None:
        """Have the row be as a recorded set or cancel says, unless a later record's is there.

        Returns why MongoDB will never take it; None once it, or the later one, stands there.
        """
        # Not `$lt`: a row without a number, made by hand, would stand in the way for ever.
        condition = {"_id": effect["timer"], "n": {"$not": {"$gte": effect["n"]}}}
        for _ in range(SETTLE_TRIES):
            try:
                with translated():
                    self._rows.update_one(condition, row_of(effect), upsert=True)
                return None
            except DuplicateKeyError:
                # Or another one inserted the row between this one's look and its insert.
                if self._stands(effect["timer"], {"$gte": effect["n"]}):
                    return None
            except (WriteError, BSONError) as error:
                return f"MongoDB refuses the row: {getattr(error, 'code', type(error).__name__)}"
        raise StoreUnavailable("the timer is not settled: it may be waiting for a majority")

    def overtook(self, document: Mapping[str, Any]) -> bool:
        """Whether a timer that rang was set anew or cancelled by a record since it was set."""
        ring = _ring(document["event"])
        if ring is None:
            return False
        row, later = ring
        # First where they come from, then where they go: so none is missed on its way.
        if not self._waits(conversation_id(document), row, later) and not self._stands(row, later):
            return False
        log.info("timer was overtaken, no handler runs event_id=%s", name_of(document))
        return True

    def _waits(self, id_: str, row: str, n: Document) -> bool:
        """Whether a set or cancel with such a number is in the conversation's outbox."""
        condition = {"_id": id_, "pending": {"$elemMatch": {"type": TIMER, "timer": row, "n": n}}}
        with translated():
            return self._conversations.find_one(condition, {"_id": 1}) is not None

    def _stands(self, row: str, n: Document) -> bool:
        """Whether the row has such a number."""
        with translated():
            return self._rows.find_one({"_id": row, "n": n}, {"_id": 1}) is not None


def _ring(event: Mapping[str, Any]) -> tuple[str, Document] | None:
    """The row of a timer that rang, and which numbers are later; None for any other event."""
    timer = event.get(TIMER) if event.get("type") == TIMER else None
    if not isinstance(timer, Mapping):
        return None
    row, n = timer.get("id"), timer.get("n")
    return (row, {"$gt": n}) if isinstance(row, str) and isinstance(n, int) else None
