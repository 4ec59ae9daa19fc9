"""Reading documents again by `_id`: from recvq, and from the oplog what recvq no longer holds."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pymongo.database import Database
from pymongo.errors import ExecutionTimeout

from recvq.connect import MAJORITY
from recvq.documents import RECVQ, Document
from recvq.errors import translated

log = logging.getLogger(__name__)

# Nothing but its time is indexed in an oplog, so a large one is read for long.
OPLOG_SECONDS = 10.0


def recall(database: Database[Any], ids: Sequence[Any]) -> Mapping[Any, Document]:
    """The documents of these ids; what is left out is nowhere. Raises StoreUnavailable.

    After a drop of recvq, what it held is still in the oplog, until that rolls over.
    """
    with translated():
        rows = database[RECVQ].find({"_id": {"$in": list(ids)}})
        found: dict[Any, Document] = {row["_id"]: row for row in rows}
        missing = [id_ for id_ in ids if id_ not in found]
        # guard: recall-from-oplog
        if missing:
            found.update(_from_oplog(database, missing))
    return found


def _from_oplog(database: Database[Any], ids: Sequence[Any]) -> Mapping[Any, Document]:
    """An insert into a capped collection is an entry of its own, never one in an applyOps."""
    oplog = database.client.local.get_collection("oplog.rs", read_concern=MAJORITY)
    namespace = f"{database.name}.{RECVQ}"
    entries = oplog.find(
        {"op": "i", "ns": namespace, "o._id": {"$in": list(ids)}},
        {"o": 1},
        max_time_ms=int(OPLOG_SECONDS * 1000),
    )
    try:
        found = {entry["o"]["_id"]: entry["o"] for entry in entries}
    except ExecutionTimeout:
        log.warning("the oplog is too large to find documents in it wanted=%d", len(ids))
        return {}
    log.info("documents read again from the oplog wanted=%d found=%d", len(ids), len(found))
    return found
