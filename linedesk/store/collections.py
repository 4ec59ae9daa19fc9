"""recvq as its writers need it: capped, with its unique index, and in this release's schema.

It is inspected only by collStats, since a front desk has no right to list collections. `linedesk
init` makes all collections (`linedesk.setup.collections`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pymongo.database import Database
from pymongo.errors import OperationFailure

from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark
from linedesk.store.documents import PROGRESS, RECVQ, SCHEMA
from linedesk.store.errors import UNAUTHORIZED, OtherSchema, WrongCollection, translated
from linedesk.store.records.events import EVENT_ID

MEGABYTE = 1024 * 1024
# Rows that exist from the start: an upsert cannot use $$NOW (MongoDB error 224), and one
# counter numbers the epochs of every lease in the database (docs/reference/collections.md).
EPOCHS = "epochs"
DISPATCHER = "dispatcher"

NAMESPACE_NOT_FOUND = 26
LACKS_INDEX = mark("{name} lacks its unique index on eventId: run `linedesk init`")

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
    """recvq as collStats describes it; sizes in bytes of BSON, like the cap."""

    capped: bool
    capped_bytes: int
    bytes: int
    documents: int
    indexes: frozenset[str]


def read_shape(database: Database[Any]) -> Shape | None:
    """The shape of recvq, None if it does not exist. Raises the driver's errors."""
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
    """The shape, if writers may insert; raises WrongCollection if not.

    collStats shows that the index eventId exists, not that it is unique: `check_recvq` checks that
    at the start, if the user may list indexes.
    """
    name = f"{database}.{RECVQ}"
    if shape is None:
        told = _("{name} does not exist: run `linedesk init` first")
        raise WrongCollection(told.format(name=name))
    if not shape.capped:
        told = _("{name} is not capped: run `linedesk init`, which caps it and keeps its documents")
        raise WrongCollection(told.format(name=name))
    if EVENT_ID not in shape.indexes:
        raise WrongCollection(_(LACKS_INDEX).format(name=name))
    return shape


def require_schema(database: Database[Any]) -> int | None:
    """The schema number of the documents, None if no dispatcher has run yet.

    Raises OtherSchema if this release does not support it, and StoreUnavailable.
    """
    with translated():
        row = database[PROGRESS].find_one({"_id": "dispatcher"}, {"schema": 1})
    schema = None if row is None else int(row.get("schema") or 1)
    if schema not in (None, SCHEMA):
        what = _("the database {name}").format(name=database.name)
        raise OtherSchema(what, schema, SCHEMA)
    return schema


def check_recvq(database: Database[Any]) -> None:
    """Raise WrongCollection unless recvq is capped and has its unique index.

    An insert into a missing recvq would create one that is uncapped and without the index, so every
    writer checks first. The uniqueness of the index is checked if the user's rights allow it: a
    front desk's do not.
    """
    with translated():
        require_shape(read_shape(database), database=database.name)
        try:
            index = database[RECVQ].index_information().get(EVENT_ID, {})
        except OperationFailure as error:
            if error.code != UNAUTHORIZED:
                raise
            return
    if not index.get("unique"):
        raise WrongCollection(_(LACKS_INDEX).format(name=f"{database.name}.{RECVQ}"))
