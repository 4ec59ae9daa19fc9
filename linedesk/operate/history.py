"""Depth, lag and latencies of the last hours: the rows that a dispatcher leaves in `history`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pymongo
from pymongo.database import Database

from linedesk.operate.format import for_long
from linedesk.operate.reading import reported
from linedesk.operate.text import known
from linedesk.runtime.language import gettext as _
from linedesk.runtime.status_row import STARTED_AT
from linedesk.store.documents import AUDIT, HISTORY, STATUS, Document
from linedesk.store.errors import translated
from linedesk.store.records.audit import DONE
from linedesk.store.records.history import MEASURED

# The acts that begin or end a pause.
PAUSING = ("pause", "resume", "resume and drop")

READ_SECONDS = 5.0
# A curve has as many points as a screen can show.
POINTS = 360
MOST_MARKS = 100

Mark = tuple[datetime, str]
"""A moment and what happened then, in the language of the context."""


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


def read_marks(database: Database[Any], *, hours: float) -> list[Mark]:
    """Return the starts of processes and the operators' pauses of the last hours.

    Raises StoreUnavailable, after READ_SECONDS at most.
    """
    since = datetime.now(UTC) - timedelta(hours=hours)
    done = {"at": {"$gte": since}, "act": {"$in": list(PAUSING)}, "outcome": DONE}
    with translated(), pymongo.timeout(READ_SECONDS):
        started = reported(database, STATUS).find({STARTED_AT: {"$gte": since}})
        rows = list(started.sort(STARTED_AT, -1).limit(MOST_MARKS))
        acts = list(reported(database, AUDIT).find(done).sort("at", -1).limit(MOST_MARKS))
    marks = [(row["at"], f"{known(row['act'])} {row.get('on')}") for row in acts]
    words = _("{role} started, version {version}")
    for row in rows:
        role, version = known(str(row.get("role"))), row.get("version")
        marks.append((row[STARTED_AT], words.format(role=role, version=version)))
    return marks


def gaps(rows: Sequence[Document], *, longest_seconds: float) -> Iterator[Mark]:
    """Yield the times without rows, longer than so many seconds, between rows in time order."""
    for one, other in pairwise(rows):
        seconds = (other["at"] - one["at"]).total_seconds()
        if seconds > longest_seconds:
            words = _("nothing recorded for {time}: without MongoDB or a leading dispatcher")
            yield one["at"], words.format(time=for_long(seconds))
