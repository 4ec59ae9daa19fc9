"""The newest calls of LINE's API that an operator wants to see, and what a row tells of one send.

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

from linedesk.console.format import brief
from linedesk.console.reading import made_between, reported
from linedesk.store.documents import CALLS, RECVQ, Document
from linedesk.store.errors import translated
from linedesk.store.records.calls import COUNTED, PAID, REASON, REQUEST_ID, CallRecord, of_key
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


def cost_words(row: Mapping[str, Any]) -> str | None:
    """What LINE counts for a call that it took; None for any other, and for older rows."""
    call = CallRecord.from_document(row)
    if not call.is_sent or PAID not in row:
        return None
    if call.people is None:
        return "counted, LINE alone knows for how many people"
    if not call.people:
        return "free"
    return f"{call.people:,} counted message{'' if call.people == 1 else 's'}"


def reason_words(row: Mapping[str, Any]) -> str | None:
    """Why LINE refused the call, as LINE says; None where it took it or gave no reason."""
    reason = CallRecord.from_document(row).reason
    return reason.words if reason else None


def company_words(row: Mapping[str, Any], event_id: str) -> str | None:
    """What travelled in the call besides the event's own send; None where nothing did."""
    call = CallRecord.from_document(row)
    keys = {call.key, *(one.get("key") for one in call.also)}
    if len(keys) > 1:
        return f"in one multicast to {max(len(keys), call.people or 0):,} people"
    others = 1 + len(call.also) - max(1, sends_of(row, event_id))
    if not others:
        return None
    return f"travelled with {others} other send{'' if others == 1 else 's'} of this conversation"


def sends_of(row: Mapping[str, Any], event_id: str) -> int:
    """How many sends of the event a call carried."""
    call = CallRecord.from_document(row)
    return [call.event_id, *(one.get(EVENT_ID) for one in call.also)].count(event_id)


def wait_words(row: Mapping[str, Any]) -> str | None:
    """How long it waited at the gate, and in which class; None for older rows."""
    call = CallRecord.from_document(row)
    if not isinstance(call.waited_ms, (int, float)):
        return None
    return f"after {brief(call.waited_ms / 1000)} at the gate, class {call.turn_class}"
