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

# At 250 bytes a row this reads 12 MB at most.
NEWEST_ROWS = 50_000
READ_SECONDS = 10.0
# What a 2xx is to a send: 409 says that LINE had it already.
TAKEN = {"$or": [{"status": {"$gte": 200, "$lt": 300}}, {"status": 409}]}


def is_taken(status: Any) -> bool:
    """Whether a row's status is one of TAKEN; it has none where LINE did not answer."""
    return isinstance(status, int) and (200 <= status < 300 or status == 409)


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
            query["key"] = self.key
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
        {"$project": {"_id": 0}},
    ]
    with translated(), pymongo.timeout(READ_SECONDS):
        return list(reported(database, CALLS).aggregate(stages, hint={"$natural": -1}))
