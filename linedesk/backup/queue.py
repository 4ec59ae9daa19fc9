"""The events in recvq of the database that receives an import.

A front desk may have stored events before the import and during it. They are handled after it, like
all events that progress does not list as finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

from pymongo.database import Database

from linedesk.settings.errors import NotImported
from linedesk.store.client import DURABLE
from linedesk.store.collections import DISPATCHER
from linedesk.store.documents import (
    CONVERSATIONS,
    HELD,
    PROGRESS,
    RECVQ,
    Document,
    conversation_id,
    has_a_place,
    name_of,
)
from linedesk.store.errors import translated
from linedesk.store.limits import SAFE_ORDER_SLACK
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID

IN_DOUBT = (
    "recvq holds documents from before the export, and no progress shows which were handled. If no "
    "dispatcher has run on this database yet, run `linedesk pause all`, start the dispatcher, stop "
    "it after a minute, import, and run `linedesk resume all`: all of it is handled. If recvq is "
    "the one of the exported database, all of it counts as handled: run `db.recvq.drop()` in the "
    "mongo shell, then `linedesk init`, and import"
)
# The most documents that a killed or frozen dispatcher can have under way.
MOST_DECIDED = 10_000
SLICE = 1_000
# The fields that name a document's conversation and its id there.
NAMED = (EVENT_ID, "channel", "key")


def require_progress(database: Database[Any], *, exported_at: datetime) -> None:
    """Raise NotImported if no progress shows which of the documents before the export are handled.

    Younger documents came to a database that no dispatcher has read yet: all are to be handled.
    """
    older = {ACCEPT_TIME: {"$lt": exported_at}, "heartbeat": {"$ne": True}}
    with translated():
        progress = database[PROGRESS].find_one({"_id": DISPATCHER}, {"token": 1, "after": 1}) or {}
        if progress.get("after") is not None or progress.get("token") is not None:
            return
        if database[RECVQ].find_one(older, {"_id": 1}) is not None:
            raise NotImported(IN_DOUBT)


def finish_decided(database: Database[Any], *, epoch: int) -> None:
    """Add to progress the events that the conversations to be deleted have decided.

    A killed or frozen dispatcher has not saved them. Once the conversations are deleted, they would
    otherwise be decided and answered again.
    """
    with translated():
        held = database[HELD].find({}, {f"document.{name}": 1 for name in ("_id", *NAMED)})
        decided = _decided(database, (row["document"] for row in held))
        database[HELD].delete_many({"_id": {"$in": decided}})
        decided = _decided(database, _read_lately(database))
        database[PROGRESS].with_options(write_concern=DURABLE).update_one(
            {"_id": DISPATCHER, "epoch": epoch},
            {"$addToSet": {"finished": {"$each": decided}}},
        )


def _read_lately(database: Database[Any]) -> Iterator[Document]:
    """The documents that progress does not list, from some way behind the last finished one on."""
    progress = database[PROGRESS].find_one({"_id": DISPATCHER}, {"after": 1, "ring": 1}) or {}
    ring = set(progress.get("ring") or ())
    behind: int | None = None
    for document in database[RECVQ].find({}, NAMED).sort("$natural", -1):
        if has_a_place(document) and document["_id"] not in ring:
            yield document
        if document["_id"] == progress.get("after"):
            behind = SAFE_ORDER_SLACK
        elif behind is not None:
            behind -= 1
        if behind == 0:
            return


def _decided(database: Database[Any], documents: Iterable[Document]) -> list[Any]:
    """The ids of those that are in `applied` of their conversations."""
    found: list[Any] = []
    # Heartbeats and documents typed in a shell belong to no conversation.
    rest = (document for document in documents if "channel" in document and "key" in document)
    while len(found) < MOST_DECIDED and (some := list(islice(rest, SLICE))):
        ids = {"$in": list({conversation_id(document) for document in some})}
        rows = database[CONVERSATIONS].find({"_id": ids}, {"applied": 1})
        applied = {row["_id"]: set(row.get("applied") or ()) for row in rows}
        found += [
            document["_id"]
            for document in some
            if name_of(document) in applied.get(conversation_id(document), ())
        ]
    return found
