"""Reads of what is only shown: the rows of `status`, `jobs`, `calls` and recvq, and outboxes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from bson import ObjectId
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.read_concern import ReadConcern

from linedesk.store.documents import BATCHES, Document
from linedesk.store.records import batches
from linedesk.store.records.effects import effects_with_tries


def reported(database: Database[Any], name: str) -> Collection[Document]:
    """A collection whose rows are read as the server that is asked has them.

    They are written without waiting for a majority. In a set without a majority, majority reads
    would show them standing still, just when an operator looks.
    """
    return database[name].with_options(read_concern=ReadConcern("local"))


# The clocks of two processes differ by less, as `linedesk doctor` checks.
CLOCK_SLACK = timedelta(seconds=30)


def made_between(
    since: datetime | None, until: datetime | None, *, late: timedelta = timedelta()
) -> Document:
    """The condition on `_id` that documents made in a period fulfil, among a few others.

    An ObjectId begins with the second of its making, so the index of `_id` finds a period.
    `late` is how much later than its moment a row may get its `_id`.
    """
    found = {}
    if since is not None:
        found["$gte"] = ObjectId.from_datetime(since - CLOCK_SLACK)
    if until is not None:
        found["$lt"] = ObjectId.from_datetime(until + CLOCK_SLACK + late)
    return found


def outbox_of(database: Database[Any], conversation: Mapping[str, Any]) -> list[Document]:
    """What waits in a conversation that was read, in its order; each send with its try.

    Raises what the driver raises.
    """

    def is_ready(id_: str) -> bool:
        return database[BATCHES].find_one(batches.ready(id_), {"_id": 1}) is not None

    return [effect for _, effect in effects_with_tries(conversation, is_ready=is_ready)]
