"""Events and their results: the newest of the queue, or of one conversation, with the answers.

The index of `_id`, whose values begin with the time, finds a period. recvq has no index by
conversation, so only its newest documents are searched. Rows of `calls` have no texts, so an answer
that LINE took is shown without its text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pymongo
from pymongo.database import Database

from linedesk.operate.events.rows import Rows, read_present, read_rows
from linedesk.operate.events.story import Step, steps_of
from linedesk.operate.events.verdict import Verdict, verdict
from linedesk.operate.reading import NEWEST_DOCUMENTS, made_between, reported
from linedesk.store.documents import HELD, RECVQ, Document, name_of, text_of
from linedesk.store.errors import translated
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID

# The events of one list; some 2 MB with their runs, calls and letters.
MOST_EVENTS = 1_000
MOST_OF_ONE = 50
READ_SECONDS = 10.0
SHOWN = (
    *(EVENT_ID, "channel", "key", ACCEPT_TIME, "unsent", "event.type", "event.message.type"),
    *("event.message.id", "event.mode", "event.source.userId"),
)
TEXTS = ("event.message.text", "event.postback.data")


@dataclass(frozen=True)
class EventLine:
    """One event of a list."""

    event_id: str
    channel: str | None
    key: str | None
    at: datetime | None
    """The arrival of the webhook."""
    what: str
    sender: str | None
    """The id of the user who wrote, also in a group."""
    text: str | None
    """The user's text; None where it is hidden, or there is none."""
    outcome: Verdict
    answers: Sequence[Step] = ()
    """The steps of its sends; only in the list of a conversation."""


def events_between(
    database: Database[Any],
    since: datetime | None,
    until: datetime | None,
    *,
    limit: int = MOST_EVENTS,
) -> list[EventLine]:
    """Return the newest events of a period, the newest first; None leaves an end open.

    Raises StoreUnavailable.
    """
    bounds = {"$gte": since, "$lt": until}
    at = {name: moment for name, moment in bounds.items() if moment is not None}
    wanted = {"_id": made_between(since, until), ACCEPT_TIME: at, "heartbeat": {"$ne": True}}
    with translated(), pymongo.timeout(READ_SECONDS):
        found = reported(database, RECVQ).find(wanted, list(SHOWN))
        return _read_lines(database, list(found.sort("_id", -1).hint("_id_").limit(limit)))


def events_of(
    database: Database[Any], channel: str, key: str, *, text: bool = False
) -> list[EventLine]:
    """Return the newest events of a conversation with their answers, the newest first.

    `text` includes the texts. Raises StoreUnavailable.
    """
    with translated(), pymongo.timeout(READ_SECONDS):
        return _read_lines(
            database, _of_one(database, channel, key, text), text=text, with_answers=True
        )


def _of_one(database: Database[Any], channel: str, key: str, text: bool) -> list[Document]:
    whose = {"channel": channel, "key": key}
    fields = (*SHOWN, *(TEXTS if text else ()))
    stages: list[Mapping[str, Any]] = [
        {"$limit": NEWEST_DOCUMENTS},
        {"$match": whose},
        {"$limit": MOST_OF_ONE},
        {"$project": dict.fromkeys(fields, 1)},
    ]
    stored = list(reported(database, RECVQ).aggregate(stages, hint={"$natural": -1}))
    known = {row["_id"] for row in stored}
    held = database[HELD].find(whose, {"document": 1}).sort("n", 1).limit(MOST_OF_ONE)
    waiting = [
        {**row["document"], "_id": row["_id"]}
        for row in held
        if row["_id"] not in known and isinstance(row.get("document"), Mapping)
    ]
    return [*stored, *waiting]


def _read_lines(
    database: Database[Any],
    documents: Sequence[Document],
    *,
    text: bool = False,
    with_answers: bool = False,
) -> list[EventLine]:
    found = read_rows(database, {name_of(one): one for one in documents})
    present, now = read_present(database), datetime.now(UTC)
    lines = [
        EventLine(
            event_id=rows.name,
            channel=document.get("channel"),
            key=document.get("key"),
            at=at if isinstance(at := document.get(ACCEPT_TIME), datetime) else None,
            what=rows.what,
            sender=text_of(document, "event", "source", "userId"),
            text=_text(document) if text else None,
            outcome=verdict(rows, present, now=now),
            answers=_answers_of(rows, text=text) if with_answers else (),
        )
        for rows in found.values()
        for document in [rows.document or {}]
    ]
    return sorted(lines, key=lambda one: one.at.timestamp() if one.at else 0.0, reverse=True)


def _answers_of(rows: Rows, *, text: bool) -> list[Step]:
    """Return the steps of an event's sends, in the order of time."""
    return [
        one
        for one in steps_of(rows, text=text)
        if one.is_answer and one.facts.get("id") != rows.name
    ]


def _text(document: Document) -> str | None:
    written = text_of(document, "event", "message", "text")
    return written or text_of(document, "event", "postback", "data")
