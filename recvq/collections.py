"""The collections of database line_bot and their indexes: making them, and checking recvq.

`scripts/create_collection.js` makes the same from the mongo shell; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pymongo import ASCENDING, IndexModel
from pymongo.database import Database
from pymongo.errors import OperationFailure

from recvq.documents import (
    AUDIT,
    CALLS,
    CONTROL,
    CONVERSATIONS,
    DEADLETTERS,
    HELD,
    HISTORY,
    JOBS,
    LEASES,
    PROGRESS,
    RECVQ,
    SCHEDULE,
    STATUS,
)
from recvq.errors import UNAUTHORIZED, WrongCollection, translated
from recvq.shape import foreign, lacks_index, read_shape, require_shape

MEGABYTE = 1024 * 1024
DEFAULT_CAPPED_BYTES = 1024 * MEGABYTE
# What only tells of the work, the oldest overwritten by the newest.
CAPPED_BYTES: Mapping[str, int] = {
    CALLS: 64 * MEGABYTE,
    JOBS: 64 * MEGABYTE,
    # At a row each ten seconds more than a week.
    HISTORY: 32 * MEGABYTE,
}
DAY_SECONDS = 24 * 3600
WEEK_SECONDS = 7 * 24 * 3600

# Rows that exist from the start: an upsert cannot use $$NOW (MongoDB error 224), and one
# counter numbers the epochs of every lease in the database (architecture: documents).
EPOCHS = "epochs"
DISPATCHER = "dispatcher"

NAMESPACE_EXISTS = 48


@dataclass(frozen=True)
class Index:
    """One index as `create_index` takes it."""

    keys: list[tuple[str, int]]
    options: Mapping[str, Any]


INDEXES: Mapping[str, list[Index]] = {
    RECVQ: [
        Index(
            [("eventId", ASCENDING)],
            {
                "name": "eventId",
                "unique": True,
                "partialFilterExpression": {"eventId": {"$exists": True}},
            },
        ),
        Index(
            # For an unsend, which must not read the whole collection to find its message.
            [("event.message.id", ASCENDING)],
            {
                "name": "messageId",
                "partialFilterExpression": {"event.message.id": {"$exists": True}},
            },
        ),
    ],
    CONVERSATIONS: [
        Index(
            # Read with a hint: the filter makes it the list of conversations with an outbox.
            [("at", ASCENDING)],
            {
                "name": "pending",
                "partialFilterExpression": {"pending.0": {"$exists": True}},
            },
        ),
        Index(
            [("unsentAt", ASCENDING)],
            {
                "name": "unsentAt",
                "partialFilterExpression": {"unsentAt": {"$exists": True}},
            },
        ),
    ],
    DEADLETTERS: [
        # The cause stands in it so that a list by cause reads no letters but those it shows.
        Index([("lastAt", ASCENDING), ("cause", ASCENDING)], {"name": "lastAt_cause"}),
        Index(
            [("document.event.message.id", ASCENDING)],
            {
                "name": "messageId",
                "partialFilterExpression": {"document.event.message.id": {"$exists": True}},
            },
        ),
        Index(
            [("replayedAt", ASCENDING)],
            {"name": "replayedAt", "expireAfterSeconds": WEEK_SECONDS},
        ),
    ],
    HELD: [
        Index(
            [("channel", ASCENDING), ("key", ASCENDING), ("n", ASCENDING)],
            {"name": "channel_key_n"},
        ),
    ],
    SCHEDULE: [
        Index([("runAt", ASCENDING)], {"name": "runAt"}),
        Index(
            [("endedAt", ASCENDING)],
            {"name": "endedAt", "expireAfterSeconds": WEEK_SECONDS},
        ),
    ],
    CALLS: [Index([("eventId", ASCENDING)], {"name": "eventId"})],
    JOBS: [Index([("eventId", ASCENDING)], {"name": "eventId"})],
    HISTORY: [Index([("at", ASCENDING)], {"name": "at"})],
    AUDIT: [Index([("at", ASCENDING)], {"name": "at"})],
    STATUS: [Index([("at", ASCENDING)], {"name": "at", "expireAfterSeconds": DAY_SECONDS})],
    CONTROL: [
        # What was released; a pause has no `doneAt`.
        Index([("doneAt", ASCENDING)], {"name": "doneAt", "expireAfterSeconds": DAY_SECONDS}),
    ],
}
PLAIN = (PROGRESS, LEASES, CONVERSATIONS, HELD, SCHEDULE, DEADLETTERS, CONTROL, STATUS, AUDIT)


def create_collections(
    database: Database[Any], *, capped_bytes: int = DEFAULT_CAPPED_BYTES
) -> list[str]:
    """Make every collection, index and seed row that is missing; returns the names it made.

    May be run again. A recvq that came back uncapped, by an insert after a drop, is left to the
    dispatcher, which converts it. Raises WrongCollection where recvq is somebody else's, and
    changes nothing then; raises StoreUnavailable when MongoDB cannot be reached.
    """
    with translated():
        existing = _options(database)
        if RECVQ in existing and not existing[RECVQ].get("capped"):
            _require_ours(database)
        made = create_missing(database, capped_bytes=capped_bytes)
        _seed(database)
    return made


def create_missing(database: Database[Any], *, capped_bytes: int) -> list[str]:
    """Make the collections and indexes that are missing, no rows; returns the names it made."""
    existing = _options(database)
    made = [name for name in (RECVQ, *CAPPED_BYTES, *PLAIN) if name not in existing]
    for name in made:
        # A plain collection comes with its indexes, by one command less.
        if name not in INDEXES or _creation(name, capped_bytes):
            _create(database, name, capped_bytes)
    # An uncapped recvq may hold an event twice: its index is made by whoever converts it.
    uncapped_recvq = RECVQ in existing and not existing[RECVQ].get("capped")
    for name, indexes in INDEXES.items():
        if name != RECVQ or not uncapped_recvq:
            models = [IndexModel(index.keys, **index.options) for index in indexes]
            database[name].create_indexes(models)
    return made


def _require_ours(database: Database[Any]) -> None:
    """Raise WrongCollection if recvq has a document that no front desk stored."""
    stranger = {"$or": [{"acceptTime": {"$exists": False}}, {"event": {"$exists": False}}]}
    if database[RECVQ].find_one({**stranger, "heartbeat": {"$ne": True}}, {"_id": 1}) is not None:
        raise WrongCollection(foreign(database.name))


def check_recvq(database: Database[Any]) -> None:
    """Raise WrongCollection unless recvq is capped and has its unique index.

    An insert into a missing recvq would make one that is uncapped and without the index, so
    every writer asks this first. Whether the index is unique is asked where the user's rights
    allow it: a front desk's do not.
    """
    with translated():
        require_shape(read_shape(database), database=database.name)
        try:
            index = database[RECVQ].index_information().get("eventId", {})
        except OperationFailure as error:
            if error.code != UNAUTHORIZED:
                raise
            return
    if not index.get("unique"):
        raise WrongCollection(lacks_index(database.name))


def _options(database: Database[Any]) -> dict[str, Mapping[str, Any]]:
    return {row["name"]: row.get("options", {}) for row in database.list_collections()}


def _create(database: Database[Any], name: str, capped_bytes: int) -> None:
    try:
        database.create_collection(name, check_exists=False, **_creation(name, capped_bytes))
    except OperationFailure as error:
        # Another process that sets up at the same time made it: as good.
        if error.code != NAMESPACE_EXISTS:
            raise


def _creation(name: str, capped_bytes: int) -> dict[str, Any]:
    if name == RECVQ:
        return {"capped": True, "size": capped_bytes}
    if name in CAPPED_BYTES:
        return {"capped": True, "size": CAPPED_BYTES[name]}
    return {}


def _seed(database: Database[Any]) -> None:
    leases = database[LEASES]
    # What outlived the counter must not be held by an epoch above every new one.
    own, epoch = {"_id": DISPATCHER}, {"epoch": 1}
    left = [rows.find_one(own, epoch) or {"epoch": 0} for rows in (database[PROGRESS], leases)]
    highest = max(row["epoch"] for row in left)
    leases.update_one({"_id": EPOCHS}, {"$max": {"epoch": highest}}, upsert=True)
    vacant = {"owner": None, "epoch": 0, "until": None}
    leases.update_one({"_id": DISPATCHER}, {"$setOnInsert": vacant}, upsert=True)
