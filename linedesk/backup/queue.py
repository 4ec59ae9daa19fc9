"""What waits in the database that an export is imported into: recvq, judged by its own progress.

A front desk may have stored events before the import and while it runs. They are handled after
it, like all that progress does not name as finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from pymongo.database import Database

from dispatcher.progress.tracker import RING_SLOTS
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
    "recvq holds documents from before the export, and no progress tells which were handled. If no "
    "dispatcher has run on this database yet, say --recvq handle: all of it is handled. If recvq "
    "is the one that the export had, say --recvq skip: all that it holds counts as handled, "
    "since what was answered before would be answered again"
)
# A dispatcher that was killed or frozen has at most so many in hand.
MOST_DECIDED = 10_000
SLICE = 1_000
# What tells of a document in which conversation it was decided, and under which name.
NAMED = (EVENT_ID, "channel", "key")


def is_to_be_skipped(database: Database[Any], *, exported_at: datetime, wish: str | None) -> bool:
    """Whether all that recvq holds counts as handled, as `wish` decides where progress cannot tell.

    Without a progress what is older than the export is in doubt, and NotImported is raised without
    a wish. What is younger came to a database that no dispatcher has seen yet.
    """
    older = {ACCEPT_TIME: {"$lt": exported_at}, "heartbeat": {"$ne": True}}
    with translated():
        progress = database[PROGRESS].find_one({"_id": DISPATCHER}, {"token": 1, "after": 1}) or {}
        if progress.get("after") is not None or progress.get("token") is not None:
            return False
        if database[RECVQ].find_one(older, {"_id": 1}) is None:
            return False
    if wish is None:
        raise NotImported(IN_DOUBT)
    return wish == "skip"


def finish_decided(database: Database[Any], *, epoch: int) -> None:
    """Have progress name what the conversations that are to go have decided already.

    A dispatcher that was killed, or is frozen, has not saved it; without the conversations it
    would be decided and answered again.
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
    """What progress does not name, back to some way behind the last finished one."""
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
    # Heartbeats, and what somebody typed in a shell, belong to no conversation.
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


def finish_recvq(database: Database[Any], *, epoch: int) -> None:
    """Set progress to now: what recvq holds is finished, and what comes from here on is not.

    The ring gets the newest ids, since a scan begins some way behind the last finished document.
    """
    with translated():
        newest = database[RECVQ].find({}, {"_id": 1}).sort("$natural", -1).limit(RING_SLOTS)
        ids = [row["_id"] for row in newest][::-1]
        database[PROGRESS].with_options(write_concern=DURABLE).update_one(
            {"_id": DISPATCHER, "epoch": epoch},
            {
                "$set": {
                    "feed": None,
                    "token": None,
                    "after": ids[-1] if ids else None,
                    "finished": [],
                    "passed": len(ids),
                    "ring": ids + [None] * (RING_SLOTS - len(ids)),
                    "starts": 0,
                    "trying": None,
                    "watched": [],
                    "at": datetime.now(UTC),
                }
            },
        )
