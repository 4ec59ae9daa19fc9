"""Reads for display only: the rows of `status`, `jobs`, `calls` and recvq, and outboxes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from bson import ObjectId
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.read_concern import ReadConcern

from linedesk.store.documents import BATCHES, Document
from linedesk.store.records import batches
from linedesk.store.records.calls import ALSO_EVENT
from linedesk.store.records.effects import (
    BATCH,
    CALL,
    MEMBERS,
    RETRY_KEY,
    SEND,
    TRIED_AT,
    effects_of,
)
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.rows import ROWS, USUAL


def reported(database: Database[Any], name: str) -> Collection[Document]:
    """Return a collection whose rows are read in the state of the asked server.

    The rows are written without waiting for a majority. In a replica set without a majority, a
    majority read would not show new rows, at the moment when an operator needs them.
    """
    return database[name].with_options(read_concern=ReadConcern("local"))


# recvq has no index by conversation: so many of its newest documents are searched, heartbeats
# among them. Some 5 MB: a few hundredths of a second.
NEWEST_DOCUMENTS = 5_000
# The clocks of two processes differ by less, as `linedesk doctor` checks.
CLOCK_SLACK = timedelta(seconds=30)


def made_between(
    since: datetime | None, until: datetime | None, *, late: timedelta = timedelta()
) -> Document:
    """Return a condition on `_id` for documents made in a period; a few others match, too.

    An ObjectId begins with the second of its creation, so the index of `_id` finds a period.
    `late` is the longest delay between a row's moment and its `_id`.
    """
    found = {}
    if since is not None:
        found["$gte"] = ObjectId.from_datetime(since - CLOCK_SLACK)
    if until is not None:
        found["$lt"] = ObjectId.from_datetime(until + CLOCK_SLACK + late)
    return found


def starting(text: str) -> Document:
    """Return the condition for ids that begin with a text; the index serves it."""
    return {"_id": between(text)}


def between(start: str, end: str = "") -> Document:
    """Return the condition for values with this start and end; an index of the field serves it."""
    ends = {"$regex": f"{re.escape(end)}$"} if end else {}
    return {"$gte": start, "$lt": f"{start}{chr(sys.maxunicode)}", **ends}


def outbox_of(database: Database[Any], conversation: Mapping[str, Any]) -> list[Document]:
    """Return the waiting effects of a conversation, in order; each send with its try.

    Raises the errors of the driver.
    """

    def is_ready(id_: str) -> bool:
        return database[BATCHES].find_one(batches.ready(id_), {"_id": 1}) is not None

    return [effect for _, effect in effects_with_tries(conversation, is_ready=is_ready)]


def effects_with_tries(
    conversation: Mapping[str, Any], *, is_ready: Callable[[str], bool]
) -> list[tuple[str, Document]]:
    """Like `effects_of`, each send with its try of unknown outcome, as in a dead letter.

    `triedAt` and `as` are None without such a try. `retryKey` is the key that repeats the try; it
    is None if the send was sent together with others. `is_ready` returns whether a document in
    `batches` is ready; it is called for claims only.
    """
    call = conversation.get(CALL)
    if not isinstance(call, Mapping) or not isinstance(call.get(MEMBERS), list):
        call = {}
    counts = BATCH not in call or is_ready(call[BATCH])
    members = call.get(MEMBERS, ()) if counts else ()
    return [
        (place, _told(effect, call if place in members else None))
        for place, effect in effects_of(conversation)
    ]


def _told(effect: Document, call: Mapping[str, Any] | None) -> Document:
    """A send with its try; other effects, and entries typed in a shell, unchanged."""
    if not isinstance(effect, Mapping) or effect.get("type") != SEND:
        return effect
    untried = {TRIED_AT: None, "as": None, **effect}
    if call is None:
        return untried
    is_alone = BATCH not in call and len(call[MEMBERS]) == 1
    key = (call.get("key") or effect.get(RETRY_KEY)) if is_alone else None
    way = "multicast" if BATCH in call else call.get("as")
    return {**untried, TRIED_AT: call.get("at"), "as": way, RETRY_KEY: key}


# Rows of `calls` and `jobs`. Rows that are documents of their own, as releases before wrote them,
# are read by the same functions and stages.

ALSO_KEY: Final = "also.key"
_ALSO: Final = {"$cond": [{"$isArray": "$also"}, "$also", []]}
COUNTED: Final[Mapping[str, Any]] = {
    "sends": {"$add": [1, {"$size": _ALSO}]},
    "conversations": {
        "$size": {"$setUnion": [["$key"], {"$map": {"input": _ALSO, "in": "$$this.key"}}]}
    },
}
"""The projection that replaces `also`, which names up to 500 conversations, by its size."""


def naming(event_id: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The filters for calls with a send of the event, first or along; each uses an index."""
    return {EVENT_ID: event_id}, {ALSO_EVENT: event_id}


def of_key(key: str) -> dict[str, Any]:
    """The filter for calls with a send of the conversation; without an index."""
    return {"$or": [{"key": key}, {ALSO_KEY: key}]}


_ITSELF: Final = [{"$unsetField": {"field": "_id", "input": "$$ROOT"}}]
_INSIDE: Final = {"$cond": [{"$isArray": f"${ROWS}"}, f"${ROWS}", _ITSELF]}
TAKE_APART: Final[Sequence[Mapping[str, Any]]] = (
    {"$project": {"_id": 0, USUAL: 1, ROWS: {"$reverseArray": _INSIDE}}},
    {"$unwind": f"${ROWS}"},
    {"$replaceRoot": {"newRoot": {"$mergeObjects": [f"${USUAL}", f"${ROWS}"]}}},
)
"""The stages that make rows, without `_id`, of documents; the newest of each document first."""


def newest_rows(count: int) -> list[Mapping[str, Any]]:
    """The stages for the newest rows, for documents that are read in reverse natural order."""
    # A document has one row at least.
    return [{"$limit": count}, *TAKE_APART, {"$limit": count}]


def found_rows(*wanted: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The stages for the rows that match one of the filters, each of fields with an index."""
    inside = [{ROWS: {"$elemMatch": one}} for one in wanted]
    return [{"$match": {"$or": [*wanted, *inside]}}, *TAKE_APART, {"$match": {"$or": [*wanted]}}]


def rows_in(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a document, without `_id`; the oldest first."""
    usual, rows = document.get(USUAL) or {}, document.get(ROWS)
    for row in rows if isinstance(rows, list) else [document]:
        yield {name: value for name, value in {**usual, **row}.items() if name != "_id"}
