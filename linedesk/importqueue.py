"""What waits in the database that an export is imported into: recvq, judged by its own progress.

A front desk may have stored events before the import and while it runs. They are handled after
it, like all that progress does not name as finished.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pymongo.database import Database

from dispatcher.ledger import RING_SLOTS
from linedesk.errors import NotImported
from recvq.collections import DISPATCHER
from recvq.connect import DURABLE
from recvq.documents import PROGRESS, RECVQ
from recvq.errors import translated

IN_DOUBT = (
    "recvq holds documents from before the export, and no progress tells which were handled: with "
    "--recvq skip all that it holds counts as handled, with --recvq handle all of it is handled, "
    "and what was answered before may be answered again"
)


def require_clear_queue(
    database: Database[Any], *, exported_at: datetime, wish: str | None
) -> None:
    """Raise NotImported where nobody can tell what of recvq was handled, and nobody has said it.

    Without a progress that is so for what is older than the export. What is younger came to a
    database that no dispatcher has seen yet.
    """
    if wish is not None:
        return
    older = {"acceptTime": {"$lt": exported_at}, "heartbeat": {"$ne": True}}
    with translated():
        progress = database[PROGRESS].find_one({"_id": DISPATCHER}, {"token": 1, "after": 1}) or {}
        if progress.get("after") is not None or progress.get("token") is not None:
            return
        if database[RECVQ].find_one(older, {"_id": 1}) is not None:
            raise NotImported(IN_DOUBT)


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
                    "at": datetime.now(UTC),
                }
            },
        )
