"""The newest calls of LINE's API that an operator wants to see.

`calls` is read from its newest end, or that of a period, and only so far, since it has no index by
what else is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pymongo
from pymongo.database import Database

from linedesk.console.reading import made_between, reported
from linedesk.store.documents import CALLS, RECVQ, Document
from linedesk.store.errors import translated
from linedesk.store.records.calls import COUNTED, PAID, REASON, REQUEST_ID, of_key
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.runs import WAITED_MS

# At 250 bytes a row this reads 12 MB at most.
NEWEST_ROWS = 50_000
READ_SECONDS = 10.0
# Rows wait in memory while MongoDB is away; those written later still are not found by a period.
WRITTEN_LATE = timedelta(minutes=10)
# As `is_taken` has it.
TAKEN = {"$or": [{"status": {"$gte": 200, "$lt": 300}}, {"status": 409}]}


LISTED: Mapping[str, Any] = {
    **dict.fromkeys(("at", "ms", "method", "endpoint", "status", REQUEST_ID, EVENT_ID), 1),
    **dict.fromkeys(("key", "attempt", "class", WAITED_MS, PAID, REASON), 1),
    **COUNTED,
    "_id": 0,
}
"""What lists show of a row: of what travelled in it besides only how much that was."""


@dataclass(frozen=True)
class Wanted:
    """Which calls; what is None narrows nothing."""

    since: datetime | None = None
    until: datetime | None = None
    endpoint: str | None = None
    """A part of it."""
    status: int | None = None
    """0 stands for a call without an answer."""
    failed: bool = False
    key: str | None = None
    limit: int = 50

    def query(self) -> Document:
        """The filter for MongoDB."""
        query: Document = {}
        bounds = {"$gte": self.since, "$lt": self.until}
        if at := {name: moment for name, moment in bounds.items() if moment is not None}:
            query["at"] = at
        if self.status is not None:
            query["status"] = self.status or None
        if self.key is not None:
            query |= of_key(self.key)
        if self.endpoint is not None:
            found = {"$indexOfCP": [{"$ifNull": ["$endpoint", ""]}, self.endpoint]}
            query["$expr"] = {"$gte": [found, 0]}
        if self.failed:
            query["$nor"] = [TAKEN]
        return query


def newest_calls(database: Database[Any], wanted: Wanted) -> list[Document]:
    """The newest rows that fit, the newest first, of NEWEST_ROWS. Raises StoreUnavailable.

    The rows before `wanted.until` are found by the index of `_id`. A row has the channel of its
    event, where recvq still has that.
    """
    stages: list[Mapping[str, Any]] = [
        {"$limit": NEWEST_ROWS},
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
        channels = channels_of_events(database, [row.get(EVENT_ID) for row in rows])
    return [{**row, **_channel_in(channels, row)} for row in rows]


def _channel_in(channels: Mapping[str, str], row: Mapping[str, Any]) -> Document:
    channel = channels.get(str(row.get(EVENT_ID)))
    return {} if channel is None else {"channel": channel}


def channels_of_events(database: Database[Any], names: Iterable[Any]) -> dict[str, str]:
    """The channel of each of these events that recvq still has. Raises what the driver raises."""
    wanted = {EVENT_ID: {"$in": sorted({name for name in names if isinstance(name, str)})}}
    rows = reported(database, RECVQ).find(wanted, [EVENT_ID, "channel"])
    return {row[EVENT_ID]: row["channel"] for row in rows if isinstance(row.get("channel"), str)}
