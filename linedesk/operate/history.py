"""Depth, lag and latencies of the last hours: the rows that a dispatcher leaves in `history`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pymongo
from pymongo.database import Database

from linedesk.operate.reading import reported
from linedesk.store.documents import HISTORY, Document
from linedesk.store.errors import translated
from linedesk.store.records.history import MEASURED

READ_SECONDS = 5.0
# A curve has as many points as a screen can show.
POINTS = 360


def read_history(database: Database[Any], *, hours: float) -> list[Document]:
    """Return the rows of `history` of the last hours, in time order and at most POINTS of them.

    Where there are more, each row is a slice of time with the largest values measured in it. Slices
    without a measurement are left out. Raises StoreUnavailable, after READ_SECONDS at most.
    """
    since = datetime.now(UTC) - timedelta(hours=hours)
    slice_ms = int(hours * 3_600_000 / POINTS)
    slice_ = {"$subtract": [{"$toLong": "$at"}, {"$mod": [{"$toLong": "$at"}, slice_ms]}]}
    largest = {name: {"$max": f"${name}"} for name in MEASURED}
    stages: list[Mapping[str, Any]] = [
        {"$match": {"at": {"$gte": since}}},
        {"$group": {"_id": slice_, "at": {"$max": "$at"}, **largest}},
        {"$sort": {"_id": 1}},
        {"$project": {"_id": 0}},
    ]
    with translated(), pymongo.timeout(READ_SECONDS):
        return list(reported(database, HISTORY).aggregate(stages))
