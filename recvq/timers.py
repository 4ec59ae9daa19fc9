"""Timers as documents: the row in `schedule`, and the event in recvq that it becomes when due.

Who sets and cancels is the jobworker, who lets them ring the scheduler. Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import ObjectId

from recvq.documents import Document

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMER = "timer"
"""The `type` of a timer's event, which no event of LINE's has."""


def timer_id(channel: str, key: str, name: str, *, member: str | None = None) -> str:
    """The `_id` in `schedule` of a conversation's timer, or of one member's in a group."""
    whose = f"{key}/{member}" if member else key
    return f"{channel}/{whose}/{name}"


def due_event_id(row: Mapping[str, Any]) -> str:
    """What names this one ring of the row for good: `timer:<_id>:<n>:<runAt>`."""
    # guard: one-name-of-a-ring -> return f"timer:{row['_id']}:{row['n']}:{ObjectId()}"
    return f"timer:{row['_id']}:{row['n']}:{_readable(row['runAt'])}"


def make_timer_document(row: Mapping[str, Any], *, accept_time: datetime) -> Document:
    """The recvq document of a row that is due; the same eventId however often it is made.

    Its event is shaped like LINE's, with the source of the event that set the timer.
    """
    event: Document = {
        "type": TIMER,
        "mode": "active",
        "timestamp": (row["runAt"] - EPOCH) // timedelta(milliseconds=1),
        TIMER: {name: row[name] for name in ("name", "n", "runAt", "data")} | {"id": row["_id"]},
    }
    if row.get("source") is not None:
        event["source"] = row["source"]
    return {
        "_id": ObjectId(),
        "eventId": due_event_id(row),
        "channel": row["channel"],
        "key": row["key"],
        "acceptTime": accept_time,
        "event": event,
    }


def _readable(moment: datetime) -> str:
    """UTC with the milliseconds that a BSON date holds."""
    utc = moment.astimezone(UTC)
    return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03d}Z"
