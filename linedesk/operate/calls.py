"""The newest calls of LINE's API that match a query, and the meaning of a row for one send.

`calls` is read from its newest end, or from the end of a period, up to a limit: the collection has
no index for the other conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pymongo
from pymongo.database import Database

from linedesk.operate.reading import COUNTED, made_between, newest_rows, of_key, reported
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import ngettext
from linedesk.store.documents import CALLS, RECVQ, Document
from linedesk.store.errors import translated
from linedesk.store.records.calls import PAID, REASON, REQUEST_ID, CallRecord
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.runs import WAITED_MS

# At 180 bytes a row this reads 9 MB at most.
NEWEST_ROWS = 50_000
READ_SECONDS = 10.0
# Rows wait in memory while MongoDB is away. A period does not find rows that are written later.
WRITTEN_LATE = timedelta(minutes=10)
# The same condition as `is_taken`.
TAKEN = {"$or": [{"status": {"$gte": 200, "$lt": 300}}, {"status": 409}]}


LISTED: Mapping[str, Any] = {
    **dict.fromkeys(("at", "ms", "method", "endpoint", "status", REQUEST_ID, EVENT_ID), 1),
    **dict.fromkeys(("key", "attempt", "class", WAITED_MS, PAID, REASON), 1),
    **COUNTED,
    "_id": 0,
}
"""The fields that lists show of a row; of the other sends in the same call only their number."""


@dataclass(frozen=True)
class Wanted:
    """The calls to list; None is no condition."""

    since: datetime | None = None
    until: datetime | None = None
    failed: bool = False
    key: str | None = None
    limit: int = 50

    def query(self) -> Document:
        """Return the filter for MongoDB."""
        query: Document = {}
        bounds = {"$gte": self.since, "$lt": self.until}
        if at := {name: moment for name, moment in bounds.items() if moment is not None}:
            query["at"] = at
        if self.key is not None:
            query |= of_key(self.key)
        if self.failed:
            query["$nor"] = [TAKEN]
        return query


def newest_calls(database: Database[Any], wanted: Wanted) -> list[Document]:
    """Return the newest matching rows of NEWEST_ROWS, the newest first. Raises StoreUnavailable.

    The index of `_id` finds the rows before `wanted.until`. A row has the channel of its event
    where recvq still has the event.
    """
    stages: list[Mapping[str, Any]] = [
        *newest_rows(NEWEST_ROWS),
        {"$match": wanted.query()},
        {"$limit": wanted.limit},
        {"$project": LISTED},
    ]
    hint: str | Mapping[str, int] = {"$natural": -1}
    if wanted.until is not None:
        made = made_between(wanted.since, wanted.until, late=WRITTEN_LATE)
        stages = [{"$match": {"_id": made}}, {"$sort": {"_id": -1}}, *stages]
        hint = "_id_"
    with translated(), pymongo.timeout(READ_SECONDS):
        rows = list(reported(database, CALLS).aggregate(stages, hint=hint))
        names = {EVENT_ID: {"$in": [row[EVENT_ID] for row in rows if row.get(EVENT_ID)]}}
        events = reported(database, RECVQ).find(names, {EVENT_ID: 1, "channel": 1, "_id": 0})
        channels = {row.pop(EVENT_ID): row for row in events}
    return [{**row, **channels.get(row.get(EVENT_ID), {})} for row in rows]


def cost_words(row: Mapping[str, Any]) -> str | None:
    """Return the messages that LINE counts for a taken call; None for other or older rows."""
    call = CallRecord.from_document(row)
    if not call.is_sent or PAID not in row:
        return None
    if call.people is None:
        return _("counted, only LINE knows for how many people")
    if not call.people:
        return _("free")
    return ngettext("{count} counted message", "{count} counted messages", call.people).format(
        count=f"{call.people:,}"
    )


def reason_words(row: Mapping[str, Any]) -> str | None:
    """Return LINE's reason for a refused call; None where LINE took it or gave no reason."""
    reason = CallRecord.from_document(row).reason
    return reason.words if reason else None


def sends_of(row: Mapping[str, Any], event_id: str) -> int:
    """Return how many sends of the event a call carried."""
    call = CallRecord.from_document(row)
    return [call.event_id, *(one.get(EVENT_ID) for one in call.also)].count(event_id)
