"""The writes of an import: a database is emptied of its state, and gets that of the export.

Dead letters stay, and those of the export join them: whatever was given up since, or replayed, is
so whatever becomes of the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import BulkWriteError

from linedesk.errors import NotImported
from linedesk.importhold import Hold
from linedesk.restored import Written
from recvq.collections import INDEXES
from recvq.documents import CONVERSATIONS, DEADLETTERS, SCHEDULE
from recvq.errors import StoreUnavailable, translated
from recvq.insert import DUPLICATE_KEY

STATE = (CONVERSATIONS, SCHEDULE)
BATCH_ROWS = 1_000
BATCH_BYTES = 8 * 1024 * 1024


def write(
    database: Database[Any],
    written: Iterable[Written],
    hold: Hold,
    *,
    left: Iterable[Written],
    wrote: Callable[[str], None],
) -> None:
    """Have the state be what is written here and nothing else; `wrote` is told of each batch.

    `left` are letters of the state that goes. It begins from nothing, so it makes no difference how
    far an import before this one came. Raises NotImported for a document that MongoDB refuses,
    StoreUnavailable.
    """
    _make_indexes(database)
    _insert_all(database, left, hold, wrote)
    for name in STATE:
        _empty(database[name], hold)
    _insert_all(database, written, hold, wrote)


def _insert_all(
    database: Database[Any], written: Iterable[Written], hold: Hold, wrote: Callable[[str], None]
) -> None:
    for collection, batch in _batches(written):
        hold.require()
        _insert(database[collection], batch)
        wrote(collection)


def _make_indexes(database: Database[Any]) -> None:
    """Those of a collection that was dropped, too."""
    with translated():
        for name in (*STATE, DEADLETTERS):
            for index in INDEXES[name]:
                database[name].create_index(index.keys, **index.options)


def _empty(collection: Collection[Any], hold: Hold) -> None:
    """By slices, since deleting all at once may take longer than a command may."""
    while True:
        hold.require()
        with translated():
            ids = [row["_id"] for row in collection.find({}, {"_id": 1}).limit(BATCH_ROWS)]
            if not ids:
                return
            collection.delete_many({"_id": {"$in": ids}})


def _batches(written: Iterable[Written]) -> Iterator[tuple[str, list[RawBSONDocument]]]:
    """Documents by their collections, some megabytes at a time, in their order."""
    waiting: dict[str, list[RawBSONDocument]] = {}
    sizes: dict[str, int] = {}
    for collection, document in written:
        raw = RawBSONDocument(bson.encode(document))
        batch = waiting.setdefault(collection, [])
        batch.append(raw)
        sizes[collection] = sizes.get(collection, 0) + len(raw.raw)
        if len(batch) >= BATCH_ROWS or sizes[collection] >= BATCH_BYTES:
            yield collection, waiting.pop(collection)
            del sizes[collection]
    yield from waiting.items()


def _insert(collection: Collection[Any], documents: Sequence[RawBSONDocument]) -> None:
    """Store them on a majority. A letter that is there is the first one of its thing, and stays."""
    try:
        with translated():
            collection.insert_many(documents, ordered=False)
    except BulkWriteError as error:
        _require_stored(collection.name, error.details)


def _require_stored(collection: str, details: Mapping[str, Any]) -> None:
    failed = details["writeErrors"]
    if collection == DEADLETTERS:
        failed = [one for one in failed if one["code"] != DUPLICATE_KEY]
    for one in failed:
        raise NotImported(
            f"MongoDB refuses {one['op']['_id']!r} of {collection} (error {one['code']}): mend "
            "what it says there, and run the import again"
        )
    if details["writeConcernErrors"]:
        raise StoreUnavailable("documents not confirmed in time")
