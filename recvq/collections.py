"""The collections of database line_bot and their indexes: making them, and checking recvq.

`scripts/create_collection.js` makes the same from the mongo shell; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pymongo import ASCENDING
from pymongo.database import Database
from pymongo.errors import OperationFailure

from recvq.documents import (
    CALLS,
    CONTROL,
    CONVERSATIONS,
    DEADLETTERS,
    HELD,
    LEASES,
    PROGRESS,
    RECVQ,
    SCHEDULE,
    STATUS,
)
from recvq.errors import WrongCollection, translated

MEGABYTE = 1024 * 1024
DEFAULT_CAPPED_BYTES = 1024 * MEGABYTE
CALLS_BYTES = 64 * MEGABYTE
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
    ],
    HELD: [Index([("key", ASCENDING), ("n", ASCENDING)], {"name": "key_n"})],
    SCHEDULE: [
        Index([("runAt", ASCENDING)], {"name": "runAt"}),
        Index(
            [("endedAt", ASCENDING)],
            {"name": "endedAt", "expireAfterSeconds": WEEK_SECONDS},
        ),
    ],
}
PLAIN = (PROGRESS, LEASES, CONVERSATIONS, HELD, SCHEDULE, DEADLETTERS, CONTROL, STATUS)


def create_collections(
    database: Database[Any], *, capped_bytes: int = DEFAULT_CAPPED_BYTES
) -> list[str]:
    """Make every collection, index and seed row that is missing; returns the names it made.

    May be run again. Raises WrongCollection where a recvq exists that is not capped, and changes
    nothing then; raises StoreUnavailable when MongoDB cannot be reached.
    """
    with translated():
        existing = _options(database)
        if RECVQ in existing and not existing[RECVQ].get("capped"):
            raise WrongCollection(_uncapped(database.name))
        made = [name for name in (RECVQ, CALLS, *PLAIN) if name not in existing]
        for name in made:
            _create(database, name, capped_bytes)
        for name, indexes in INDEXES.items():
            for index in indexes:
                database[name].create_index(index.keys, **index.options)
        _seed(database)
    return made


def check_recvq(database: Database[Any]) -> None:
    """Raise WrongCollection unless recvq is capped and has its unique index.

    An insert into a missing recvq would make one that is uncapped and without the index, so
    every writer asks this first.
    """
    with translated():
        options = _options(database).get(RECVQ)
        if options is None:
            raise WrongCollection(
                f"{database.name}.{RECVQ} does not exist: run `linedesk init` first"
            )
        if not options.get("capped"):
            raise WrongCollection(_uncapped(database.name))
        index = database[RECVQ].index_information().get("eventId", {})
    if not index.get("unique"):
        raise WrongCollection(
            f"{database.name}.{RECVQ} lacks its unique index on eventId: run `linedesk init`"
        )


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
    if name == CALLS:
        return {"capped": True, "size": CALLS_BYTES}
    return {}


def _uncapped(database: str) -> str:
    return (
        f"{database}.{RECVQ} exists but is not capped, so it was not made by linedesk: rename or "
        f"drop it (db.{RECVQ}.renameCollection('{RECVQ}_old')), then run `linedesk init` again"
    )


def _seed(database: Database[Any]) -> None:
    leases = database[LEASES]
    # A progress that outlived its leases must not be held by an epoch above every new one.
    progress = database[PROGRESS].find_one({"_id": DISPATCHER}, {"epoch": 1}) or {"epoch": 0}
    leases.update_one({"_id": EPOCHS}, {"$max": {"epoch": progress["epoch"]}}, upsert=True)
    vacant = {"owner": None, "epoch": 0, "until": None}
    leases.update_one({"_id": DISPATCHER}, {"$setOnInsert": vacant}, upsert=True)
