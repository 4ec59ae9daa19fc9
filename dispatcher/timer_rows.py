"""Turns a due row of `schedule` into a document for recvq and its next time. Pure."""

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
from linedesk.store.recurrence import Recurrence
from linedesk.store.timers import due_event_id, make_timer_document

# With a clock that was ahead by less than this, rows may have fired that must not fire again.
FAR_AHEAD = timedelta(days=7)

TEXTS = ("_id", "channel", "key", "name")


class BrokenRow(Exception):
    """The row can never fire; the message has the reason."""


@dataclass(frozen=True)
class FiredTimer:
    """One firing of a row; `as_read` matches the row until a process has carried it out."""

    event_id: str
    run_at: datetime
    as_read: Document
    document: RawBSONDocument | None
    """None in the quiet hours of its rule: it is put off until `next_at`."""
    next_at: datetime | None
    """The next time of the row; None if this was its last."""


def fired_timer(stored: RawBSONDocument, *, now: datetime, accept_time: datetime) -> FiredTimer:
    """The firing of a due row, as read from the server. Raises BrokenRow.

    A repeating row that was missed several times fires once, and next at its regular time after
    `now`.
    """
    row = _sound(stored)
    rule = None if row.get("every") is None else _rule(row)
    quiet_until = None if rule is None else rule.quiet_until(now)
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
        document=None if quiet_until else RawBSONDocument(document),
        next_at=quiet_until or (None if rule is None else rule.after(now)),
    )


def regular_at(stored: RawBSONDocument, *, now: datetime) -> datetime | None:
    """The next time of a repeating row; None for other rows, for ended and for invalid ones.

    It is after the time for which the row last fired, although the clock may have been ahead then.
    Exception: after a clock that was a week or more ahead, days would be missed.
    """
    try:
        row = bson.decode(stored.raw, aware_options())
        rule = _rule(row)
    except (BSONError, BrokenRow):
        return None
    fired_at = row.get(RANG)
    if isinstance(fired_at, datetime) and fired_at < now + FAR_AHEAD:
        return rule.after(max(now, fired_at))
    return rule.after(now)


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


def _rule(row: Mapping[str, Any]) -> Recurrence:
    every = row.get("every")
    if not isinstance(every, Mapping):
        raise BrokenRow("every is no object")
    try:
        return Recurrence.from_document(every)
    except ValueError as error:
        raise BrokenRow(f"every is {error}") from None
