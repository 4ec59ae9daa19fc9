"""The newest calls of LINE's API that an operator wants to see.

`calls` is read from its newest end and only so far, since it has no index by what is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pymongo
from pymongo.database import Database

from linedesk.console.reading import reported
from linedesk.store.documents import CALLS, Document
from linedesk.store.errors import translated
from linedesk.store.records.calls import COUNTED, PAID, REASON, REQUEST_ID, of_key
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.runs import WAITED_MS

# At 250 bytes a row this reads 12 MB at most.
NEWEST_ROWS = 50_000
READ_SECONDS = 10.0
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
        if self.since is not None:
            query["at"] = {"$gte": self.since}
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
    """The newest rows that fit, the newest first, of NEWEST_ROWS. Raises StoreUnavailable."""
    stages: list[Mapping[str, Any]] = [
        {"$limit": NEWEST_ROWS},
        {"$match": wanted.query()},
        {"$limit": wanted.limit},
        {"$project": LISTED},
    ]
    with translated(), pymongo.timeout(READ_SECONDS):
        return list(reported(database, CALLS).aggregate(stages, hint={"$natural": -1}))
