"""The rows of events, runs, calls and dead letters as they are written, by one change stream.

It only reads, and reconnects after an outage of MongoDB. Rows of runs and calls are written up to
half a second late: each row is held back for a second, and rows come in order of time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from typing import Any

from pymongo.database import Database
from pymongo.errors import PyMongoError

from linedesk.operate.reading import ALSO_KEY, rows_in
from linedesk.store.documents import CALLS, DEADLETTERS, JOBS, RECVQ, Document, name_of
from linedesk.store.errors import is_transient, translate
from linedesk.store.records.calls import REQUEST_ID, CallRecord, is_taken
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID
from linedesk.store.records.letters import LAST_AT
from linedesk.store.records.rows import ROWS, USUAL
from linedesk.store.records.runs import WAITED_MS

log = logging.getLogger(__name__)

KINDS = {RECVQ: "event", JOBS: "run", CALLS: "call", DEADLETTERS: "dead"}
ROW_KINDS = ("run", "call")
AWAIT_MS = 250
HOLD_SECONDS = 1.0
RETRY_SECONDS = 1.0
RESUMABLE = "ResumableChangeStreamError"
SHOWN = (
    *("_id", EVENT_ID, "channel", "key", ACCEPT_TIME, "at", "ms", "unsent"),
    *("event.type", "event.message.type", "document.event.type", "document.event.message.type"),
    *("document.unsent", "effect.way", "effect.type", "cause", "about", "attempts", LAST_AT),
    *("type", WAITED_MS, "attempt", "outcome", "effects", "error", "thread"),
    *("method", "endpoint", "status", REQUEST_ID),
)
TEXT = ("event.message.text", "document.event.message.text")


@dataclass(frozen=True)
class Came:
    """One event, run, call or dead letter."""

    kind: str
    row: Document

    @property
    def at(self) -> datetime | None:
        """The time at which it happened; for a run and a call the end."""
        row = self.row
        at = row.get("at") or row.get(LAST_AT) or row.get(ACCEPT_TIME)
        if not isinstance(at, datetime):
            return None
        return at + timedelta(milliseconds=row.get("ms") or 0.0)

    @property
    def happened(self) -> float:
        """The same in seconds since 1970; a row without a time comes first."""
        return self.at.timestamp() if self.at is not None else 0.0

    @property
    def event_id(self) -> str:
        """The id of its event, or of the dead letter."""
        if self.kind in ROW_KINDS:
            return self.row.get(EVENT_ID) or "-"
        return name_of(self.row)

    @property
    def has_failed(self) -> bool:
        """Whether the line is shown in red."""
        if self.kind == "call":
            return not is_taken(self.row.get("status"))
        return self.kind == "dead" or self.row.get("outcome") in ("failed", "timeout")


def coming(database: Database[Any], *, key: str | None, text: bool) -> Iterator[Came]:
    """Yield the rows that are written from now on.

    Rows that arrive within the hold are in order of time. Raises StoreUnavailable if MongoDB is
    down at first, later only errors that are not transient.
    """
    # The number keeps rows of the same moment in the order of their arrival.
    held: list[tuple[float, int, float, Came]] = []
    numbers = count()
    for change in _changes(database, _stages(key=key, text=text)):
        for came in _came(change, key) if change is not None else ():
            heappush(held, (came.happened, next(numbers), time.monotonic(), came))
        while held and held[0][2] <= time.monotonic() - HOLD_SECONDS:
            yield heappop(held)[3]


def _changes(
    database: Database[Any], stages: Sequence[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any] | None]:
    """Yield each document as it is written, and None if there was none for a moment."""
    token: Mapping[str, Any] | None = None
    was_open, pause = False, threading.Event()
    while True:
        try:
            with database.watch(stages, resume_after=token, max_await_time_ms=AWAIT_MS) as stream:
                was_open = True
                while stream.alive:
                    change = stream.try_next()
                    token = stream.resume_token
                    yield change
                # The database was dropped: the stream cannot be resumed.
                token = None
        except PyMongoError as error:
            is_passing = is_transient(error) or error.has_error_label(RESUMABLE)
            if not (was_open and is_passing):
                raise translate(error) from error
            log.warning("MongoDB does not answer, retrying error=%s", type(error).__name__)
            pause.wait(RETRY_SECONDS)


def _came(change: Mapping[str, Any], key: str | None) -> Iterator[Came]:
    kind, document = KINDS[change["ns"]["coll"]], change["fullDocument"]
    if kind not in ROW_KINDS:
        yield Came(kind, document)
        return
    for row in rows_in(document):
        others = CallRecord.from_document(row).also
        row.pop("also", None)
        if key is None or key in (row.get("key"), *(one.get("key") for one in others)):
            yield Came(kind, row)


def _stages(*, key: str | None, text: bool) -> list[Mapping[str, Any]]:
    wanted: Document = {
        "operationType": "insert",
        "ns.coll": {"$in": list(KINDS)},
        "fullDocument.heartbeat": {"$ne": True},
    }
    if key is not None:
        keys = ("key", ALSO_KEY, f"{ROWS}.key", f"{ROWS}.{ALSO_KEY}")
        wanted["$or"] = [{f"fullDocument.{name}": key} for name in keys]
    names = (*SHOWN, *(TEXT if text else ()), *([] if key is None else [ALSO_KEY]))
    shown = {f"fullDocument.{name}": 1 for name in (*names, USUAL, *(f"{ROWS}.{n}" for n in names))}
    return [{"$match": wanted}, {"$project": {"ns": 1, **shown}}]
