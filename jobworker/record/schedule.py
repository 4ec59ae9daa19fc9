"""The collection `schedule` as bots change it: timers set and cancelled, and fired events
overtaken.

A row belongs to the record with the highest `n`. A late, repeated or reordered set or cancel
therefore changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from bson.errors import BSONError
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError, WriteError
from pymongo.read_concern import ReadConcern

from jobworker.effects import row_of
from jobworker.record.record import n_of
from linedesk.store.client import DURABLE, LOCAL, MAJORITY
from linedesk.store.documents import CONVERSATIONS, SCHEDULE, Document, conversation_id, name_of
from linedesk.store.errors import StoreUnavailable, translated
from linedesk.store.records.effects import OUTBOX_PAIRS
from linedesk.store.records.letters import LATER_ROW, WRITE_REFUSED, Cause
from linedesk.store.records.timers import RUN_AT
from linedesk.store.timers import TIMER

log = logging.getLogger(__name__)

SETTLE_TRIES = 5


class Schedule:
    """The rows of bots' timers. Every method raises StoreUnavailable when MongoDB is away.

    `timer_set` gets the due time of each row that is written; None of one that is cancelled.
    """

    def __init__(
        self,
        database: Database[Any],
        timer_set: Callable[[datetime | None], None] = lambda due_at: None,
    ) -> None:
        self._timer_set = timer_set
        self._rows = database[SCHEDULE].with_options(write_concern=DURABLE)
        self._conversations = database[CONVERSATIONS]

    def enter(self, effect: Mapping[str, Any]) -> Cause | None:
        """Write a recorded set or cancel to the row, unless the row is of a later record.

        Returns why MongoDB will never accept it; None once it, or a later one, is written.
        """
        # Not `$lt`: a row without a number, created by hand, would block it permanently.
        condition = {
            "_id": effect["timer"],
            "n": {"$not": {"$gte": effect["n"]}},  # guard: number-of-the-row
        }
        for _ in range(SETTLE_TRIES):
            try:
                with translated():
                    self._rows.update_one(condition, row_of(effect), upsert=True)
                self._timer_set(effect[RUN_AT])
                return None
            except DuplicateKeyError:
                # Or another process inserted the row between the read and the insert.
                # guard: first-rows-are-read -> body
                if self._stands(effect["timer"], {"$gte": effect["n"]}, MAJORITY):
                    log.debug("timer is already stored, or a later one id=%s", effect["id"])
                    return self._not_counted(effect)
            except (WriteError, BSONError) as error:
                return Cause(WRITE_REFUSED, {"errorCode": getattr(error, "code", None) or 0})
        raise StoreUnavailable("the timer is not settled: it may be waiting for a majority")

    def _not_counted(self, effect: Mapping[str, Any]) -> Cause | None:
        """Return why its row cannot be of a later record; None if it can, as usual.

        A conversation that was deleted by hand counts from the start; all its timers would then be
        too old.
        """
        with translated():
            # The row first, since a later record is written to its conversation first.
            rows = self._rows.with_options(read_concern=MAJORITY)
            row = rows.find_one({"_id": effect["timer"]}, {"n": 1})
            conversations = self._conversations.with_options(read_concern=LOCAL)
            found = conversations.find_one({"_id": conversation_id(effect)}, {"n": 1})
        if row is None or row["n"] <= n_of(found):
            return None
        return LATER_ROW

    def overtook(self, document: Mapping[str, Any]) -> bool:
        """Return whether a timer that fired was set again or cancelled by a later record."""
        fired = _fired_timer(document["event"])
        if fired is None:
            return False
        where = conversation_id(document), *fired
        # A new primary has all majority writes, but may first show an older state to majority
        # reads; its other writes may be rolled back.
        if not self._is_later(*where, LOCAL):
            return False
        # guard: overtaken-on-a-majority
        if not self._is_later(*where, MAJORITY):
            raise StoreUnavailable("what overtook a timer may be waiting for a majority")
        log.info("timer was overtaken, no handler runs event_id=%s", name_of(document))
        return True

    def stands_behind(self, document: Mapping[str, Any]) -> bool:
        """Return whether the row of a fired timer agrees with the event, or is of a later record.

        A row remains for a week after its last event. The read concern is local, with which a new
        primary shows all majority writes.
        """
        event = document["event"]
        fired = _fired_timer(event)
        if fired is None:
            return False
        row, later = fired
        told = {name: {"$eq": event[TIMER].get(name)} for name in ("n", "name", "data")}
        told |= {name: {"$eq": document[name]} for name in ("channel", "key")}
        told["source"] = {"$eq": event.get("source")}
        return _finds(self._rows, {"_id": row, "$or": [told, {"n": later}]}, LOCAL)

    def _is_later(self, id_: str, row: str, n: Document, concern: ReadConcern) -> bool:
        """Whether a set or cancel with such a number is in the outbox or in its row."""
        # First the source, then the destination: so none is missed while moving.
        # guard: asked-as-they-move ->
        #     return self._stands(row, n, concern) or self._waits(id_, row, n, concern)
        return self._waits(id_, row, n, concern) or self._stands(row, n, concern)

    def _waits(self, id_: str, row: str, n: Document, concern: ReadConcern) -> bool:
        is_later = {
            "$and": [
                {"$eq": ["$$this.v.type", TIMER]},
                {"$eq": ["$$this.v.timer", {"$literal": row}]},
                {"$gt": ["$$this.v.n", n["$gt"]]},
            ]
        }
        waits = {"$expr": {"$anyElementTrue": [{"$map": {"input": OUTBOX_PAIRS, "in": is_later}}]}}
        return _finds(self._conversations, {"_id": id_, **waits}, concern)

    def _stands(self, row: str, n: Document, concern: ReadConcern) -> bool:
        return _finds(self._rows, {"_id": row, "n": n}, concern)


def _finds(collection: Collection[Any], condition: Document, concern: ReadConcern) -> bool:
    with translated():
        found = collection.with_options(read_concern=concern).find_one(condition, {"_id": 1})
    return found is not None


def _fired_timer(event: Mapping[str, Any]) -> tuple[str, Document] | None:
    """Return the row of a fired timer, and which numbers are later; None for other events."""
    timer = event.get(TIMER) if event.get("type") == TIMER else None
    if not isinstance(timer, Mapping):
        return None
    row, n = timer.get("id"), timer.get("n")
    return (row, {"$gt": n}) if isinstance(row, str) and isinstance(n, int) else None
