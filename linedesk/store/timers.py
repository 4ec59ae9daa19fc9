"""Timers as documents: the row in `schedule`, its event, and its next time. Pure.

The jobworker sets and cancels timers, and the dispatcher fires them. A daily timer has a time of
day in a zone of the IANA database, with daylight saving time.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bson import ObjectId

from linedesk.store.documents import Document
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID
from linedesk.store.records.timers import RUN_AT

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMER = "timer"
"""The `type` of a timer's event; LINE's events never have it."""
STATE_TIMER = "~state"
"""The name of linedesk's own timer that ends a state."""


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


# Errors for a folder of the database, such as "Asia", and for an impossible file name.
_NO_ZONES = frozenset({errno.EISDIR, errno.ENAMETOOLONG})
_TIME_OF_DAY = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])", re.ASCII)


@dataclass(frozen=True)
class Daily:
    """Every day at `at` on the clocks of `zone`."""

    at: time
    zone: ZoneInfo

    @classmethod
    def parse(cls, at: str, tz: str) -> Daily:
        """Parse a text such as "07:30" and a zone such as "Asia/Tokyo"; raises ValueError.

        Raises OSError if a zone cannot be read at the moment, for example with too many open files.
        """
        match = _TIME_OF_DAY.fullmatch(at)
        if match is None:
            raise ValueError(f"not a time of day such as 07:30: {at!r}")
        try:
            zone = ZoneInfo(tz)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in _NO_ZONES:
                raise
            raise ValueError(f"not a time zone such as Asia/Tokyo: {tz!r}") from error
        return cls(time(int(match[1]), int(match[2])), zone)

    @classmethod
    def from_document(cls, every: Mapping[str, Any]) -> Daily:
        """Read the form of `as_document`; raises as `parse`."""
        return cls.parse(str(every.get("at")), str(every.get("tz")))

    def as_document(self) -> dict[str, str]:
        """The field `every` of a row in `schedule`."""
        return {"at": f"{self.at:%H:%M}", "tz": self.zone.key}

    def after(self, moment: datetime) -> datetime:
        """The next time after `moment`, in UTC; once a day, also when the clocks change.

        A time that clocks skip in spring fires as long after midnight as on other days. A time that
        occurs twice in autumn fires the first time.
        """
        day = moment.astimezone(self.zone).date() - timedelta(days=1)
        while (rings := self._on(day)) <= moment:
            day += timedelta(days=1)
        return rings

    def _on(self, day: date) -> datetime:
        return datetime.combine(day, self.at, self.zone).astimezone(UTC)
