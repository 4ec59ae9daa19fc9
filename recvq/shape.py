"""What recvq is like at this moment: capped or not, how large, with which indexes; and by which
release documents were written.

recvq's is read by collStats alone, which the front desk's rights allow; listing collections they
do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pymongo.database import Database
from pymongo.errors import OperationFailure

from recvq.documents import PROGRESS, RECVQ, SCHEMA
from recvq.errors import NewerSchema, WrongCollection, translated

NAMESPACE_NOT_FOUND = 26

COLL_STATS: list[Mapping[str, Any]] = [
    {"$collStats": {"storageStats": {}}},
    {
        "$project": {
            "capped": "$storageStats.capped",
            "maxSize": "$storageStats.maxSize",
            "size": "$storageStats.size",
            "count": "$storageStats.count",
            "indexes": "$storageStats.indexSizes",
        }
    },
]


@dataclass(frozen=True)
class Shape:
    """recvq as collStats describes it; sizes in bytes of BSON, which is what a cap counts."""

    capped: bool
    capped_bytes: int
    bytes: int
    documents: int
    indexes: frozenset[str]


def read_shape(database: Database[Any]) -> Shape | None:
    """The shape of recvq, None where it does not exist. Raises what the driver raises."""
    try:
        [stats] = database[RECVQ].aggregate(COLL_STATS)
    except OperationFailure as error:
        if error.code == NAMESPACE_NOT_FOUND:
            return None
        raise
    return Shape(
        capped=bool(stats.get("capped")),
        capped_bytes=int(stats.get("maxSize", 0)),
        bytes=int(stats["size"]),
        documents=int(stats["count"]),
        indexes=frozenset(stats["indexes"]),
    )


def require_shape(shape: Shape | None, *, database: str) -> Shape:
    """The shape, if it is one that a writer may insert into; raises WrongCollection if not.

    collStats tells that the index eventId is there, not that it is unique: `check_recvq` asks
    for that at the start, where the user may list indexes.
    """
    name = f"{database}.{RECVQ}"
    if shape is None:
        raise WrongCollection(f"{name} does not exist: run `linedesk init` first")
    if not shape.capped:
        raise WrongCollection(uncapped(database))
    if "eventId" not in shape.indexes:
        raise WrongCollection(lacks_index(database))
    return shape


def require_schema(database: Database[Any]) -> int | None:
    """By which number the documents were written, None where no dispatcher has run yet.

    Raises NewerSchema where this release does not know it, and StoreUnavailable.
    """
    with translated():
        row = database[PROGRESS].find_one({"_id": "dispatcher"}, {"schema": 1})
    schema = None if row is None else int(row.get("schema") or 1)
    if schema is not None and schema > SCHEMA:
        raise NewerSchema(f"the database {database.name}", schema, SCHEMA)
    return schema


def uncapped(database: str) -> str:
    """What is wrong with a recvq that is not capped, and what to do."""
    return (
        f"{database}.{RECVQ} is not capped: the dispatcher makes it right and keeps what it holds; "
        "start one if none runs"
    )


def foreign(database: str) -> str:
    """What is wrong with a recvq that holds what no front desk stored, and what to do."""
    return (
        f"{database}.{RECVQ} exists but is not capped and was not made by linedesk: rename it "
        f"(db.{RECVQ}.renameCollection('{RECVQ}_old')), then run `linedesk init` again"
    )


def lacks_index(database: str) -> str:
    """What is wrong with a recvq that takes an event twice, and what to do."""
    return f"{database}.{RECVQ} lacks its unique index on eventId: run `linedesk init`"
