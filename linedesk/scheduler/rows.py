"""What a row of `schedule` comes to when it is due: a document, and its next time. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import bson
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument

from linedesk.store.client import aware_options
from linedesk.store.documents import Document
from linedesk.store.limits import MOST_DOCUMENT_BYTES
from linedesk.store.records.timers import RANG, RUN_AT
from linedesk.store.timers import Daily, due_event_id, make_timer_document

# A clock that was ahead by less may have let rows ring that are not to ring again.
FAR_AHEAD = timedelta(days=7)

TEXTS = ("_id", "channel", "key", "name")


class BrokenRow(Exception):
    """The row can never ring as it is; the message says why."""


@dataclass(frozen=True)
class FiredTimer:
    """One ring of a row; `as_read` matches the row until somebody has carried it out."""

    event_id: str
    run_at: datetime
    as_read: Document
    document: RawBSONDocument
    next_at: datetime | None
    """When the row rings next; None if this was its last time."""


def fired_timer(stored: RawBSONDocument, *, now: datetime, accept_time: datetime) -> FiredTimer:
    """What a row that is due, as the server sent it, comes to. Raises BrokenRow.

    A daily row that was missed several times rings once, and next at its regular time after `now`.
    """
    row = _sound(stored)
    daily = None if row.get("every") is None else _daily(row)
    document = bson.encode(make_timer_document(row, accept_time=accept_time))
    if len(document) > MOST_DOCUMENT_BYTES:
        raise BrokenRow("it is too large for a document of recvq")
    return FiredTimer(
        event_id=due_event_id(row),
        run_at=row[RUN_AT],
        as_read={
            "_id": row["_id"],
            "n": row["n"],  # guard: row-of-this-number
            RUN_AT: row[RUN_AT],  # guard: row-of-this-time
        },
        document=RawBSONDocument(document),
        next_at=None if daily is None else daily.after(now),
    )


def regular_at(stored: RawBSONDocument, *, now: datetime) -> datetime | None:
    """When a daily row should ring next; None for any other row, and for a broken one.

    After the time that it rang for last, although the clock may have been ahead then; unless it was
    ahead by a week or more: nobody is to miss all the days until then.
    """
    try:
        row = bson.decode(stored.raw, aware_options())
        daily = _daily(row)
    except (BSONError, BrokenRow):
        return None
    fired_at = row.get(RANG)
    if isinstance(fired_at, datetime) and fired_at < now + FAR_AHEAD:
        return daily.after(max(now, fired_at))
    return daily.after(now)


def _sound(stored: RawBSONDocument) -> Document:
    try:
        row = bson.decode(stored.raw, aware_options())
    except BSONError:
        raise BrokenRow("a date or text in it cannot be read") from None
    for part in TEXTS:
        if not isinstance(row.get(part), str) or not row[part]:
            raise BrokenRow(f"{part} is no text")
    if not isinstance(row.get("n"), int) or isinstance(row["n"], bool):
        raise BrokenRow("n is no whole number")
    if not isinstance(row[RUN_AT], datetime):
        raise BrokenRow("runAt is no date")
    if not isinstance(row.get("data"), Mapping):
        raise BrokenRow("data is no object")
    return row


def _daily(row: Mapping[str, Any]) -> Daily:
    every = row.get("every")
    if not isinstance(every, Mapping):
        raise BrokenRow("every is no object")
    try:
        return Daily.from_document(every)
    except ValueError as error:
        raise BrokenRow(f"every is {error}") from None
