"""The waiting timers, the next one first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pymongo
from pymongo.database import Database

from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark
from linedesk.store.documents import SCHEDULE
from linedesk.store.errors import translated
from linedesk.store.records.timers import RUN_AT, SET_BY
from linedesk.store.timers import STATE_TIMER

MOST_TIMERS = 200
READ_SECONDS = 10.0
END_OF_STATE = mark("end of its state")


@dataclass(frozen=True)
class TimerLine:
    """One timer of a list."""

    id: str
    channel: str | None
    key: str | None
    name: str
    member: str | None
    """The member of a group whose timer it is."""
    at: datetime
    every: str | None
    """`07:30 Asia/Tokyo` for a daily timer."""
    set_by: str | None
    """The event that set it."""


def timers_due(database: Database[Any], *, limit: int = MOST_TIMERS) -> list[TimerLine]:
    """Return the waiting timers. Raises StoreUnavailable."""
    waiting = {RUN_AT: {"$type": "date"}}
    with translated(), pymongo.timeout(READ_SECONDS):
        rows = database[SCHEDULE].find(waiting, {"data": 0, "source": 0})
        return [_line(row) for row in rows.sort(RUN_AT, 1).limit(limit)]


def _line(row: Mapping[str, Any]) -> TimerLine:
    whose = f"{row.get('channel')}/{row.get('key')}/"
    member, name = str(row["_id"]).removeprefix(whose).rpartition("/")[::2]
    every, set_by = row.get("every"), row.get(SET_BY)
    return TimerLine(
        id=str(row["_id"]),
        channel=row.get("channel"),
        key=row.get("key"),
        name=_(END_OF_STATE) if name == STATE_TIMER else name,
        member=member or None,
        at=row[RUN_AT],
        every=f"{every.get('at')} {every.get('tz')}" if isinstance(every, Mapping) else None,
        set_by=set_by if isinstance(set_by, str) else None,
    )
