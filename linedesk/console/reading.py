"""Reads for display only: the rows of `status`, `jobs`, `calls` and recvq, and outboxes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from bson import ObjectId
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.read_concern import ReadConcern

from linedesk.store.documents import BATCHES, Document
from linedesk.store.records import batches
from linedesk.store.records.effects import (
    BATCH,
    CALL,
    MEMBERS,
    RETRY_KEY,
    SEND,
    TRIED_AT,
    effects_of,
)


def reported(database: Database[Any], name: str) -> Collection[Document]:
    """Return a collection whose rows are read in the state of the asked server.

    The rows are written without waiting for a majority. In a replica set without a majority, a
    majority read would not show new rows, at the moment when an operator needs them.
    """
    return database[name].with_options(read_concern=ReadConcern("local"))


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
