"""Timers as documents: the row in `schedule`, and its event. Pure.

The jobworker sets and cancels timers, and the dispatcher fires them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import ObjectId

from linedesk.store.documents import Document
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID
from linedesk.store.records.timers import RUN_AT

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMER = "timer"
"""The `type` of a timer's event; LINE's events never have it."""
STATE_TIMER = "~state"
"""The name of linedesk's own timer that ends a state."""
START_TIMER = "~start:"
"""The beginning of the names of those that call a handler of `bot.start_timers` once."""


MOST_NAME_LETTERS = 100
# Names of linedesk's own timers begin with it.
RESERVED = "~"


def check_name(name: object) -> None:
    """Raise ValueError for a name that a timer cannot have."""
    if not isinstance(name, str) or not 1 <= len(name) <= MOST_NAME_LETTERS:
        told = "" if isinstance(name, str) else f", and is not a {type(name).__name__}"
        raise ValueError(f"a timer's name has 1 to {MOST_NAME_LETTERS} letters{told}")
    if "/" in name or name.startswith(RESERVED):
        raise ValueError(f"a timer's name has no '/' and does not begin with '{RESERVED}'")


def timer_id(channel: str, key: str, name: str, *, member: str | None = None) -> str:
    """The `_id` in `schedule` of a conversation's timer, or of one member's in a group."""
    whose = f"{key}/{member}" if member else key
    return f"{channel}/{whose}/{name}"


def due_event_id(row: Mapping[str, Any]) -> str:
    """The permanent name of one firing of the row: `timer:<_id>:<n>:<runAt>`."""
    # guard: one-name-of-a-ring -> return f"timer:{row['_id']}:{row['n']}:{ObjectId()}"
    return f"timer:{row['_id']}:{row['n']}:{_readable(row[RUN_AT])}"


def make_timer_document(row: Mapping[str, Any], *, accept_time: datetime) -> Document:
    """The recvq document of a due row; it has the same eventId however often it is made.

    Its event has the form of LINE's events, with the source of the event that set the timer.
    """
    event: Document = {
        "type": TIMER,
        "mode": "active",
        "timestamp": (row[RUN_AT] - EPOCH) // timedelta(milliseconds=1),
        TIMER: {name: row[name] for name in ("name", "n", RUN_AT, "data")} | {"id": row["_id"]},
    }
    if row.get("source") is not None:
        event["source"] = row["source"]
    return {
        "_id": ObjectId(),
        EVENT_ID: due_event_id(row),
        "channel": row["channel"],
        "key": row["key"],
        ACCEPT_TIME: accept_time,
        "event": event,
    }


def _readable(moment: datetime) -> str:
    """UTC with milliseconds, like a BSON date."""
    utc = moment.astimezone(UTC)
    return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03d}Z"
