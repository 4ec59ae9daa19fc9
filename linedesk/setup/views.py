"""Views for find() in the mongo shell: events without texts; calls and runs, a row each.

linedesk itself does not read them.
`scripts/create_collection.py` writes them into the script for the mongo shell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pymongo.database import Database
from pymongo.errors import OperationFailure

from linedesk.operate.reading import COUNTED, TAKE_APART
from linedesk.setup.neighbours import NAMESPACE_EXISTS
from linedesk.store.documents import CALLS, JOBS, RECVQ
from linedesk.store.errors import translated
from linedesk.store.records.calls import PAID, REASON, REQUEST_ID
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID
from linedesk.store.records.runs import WAITED_MS


@dataclass(frozen=True)
class MongoView:
    """A view: its collection and pipeline; a comment states the limit of its cost."""

    on: str
    pipeline: Sequence[Mapping[str, Any]]


VIEWS: Mapping[str, MongoView] = {
    # With the field paths of recvq, so that its indexes apply; the newest first by sort({$natural:
    # -1}).
    "v_events": MongoView(
        RECVQ,
        [
            {"$match": {"heartbeat": {"$exists": False}}},
            {
                "$project": {
                    **dict.fromkeys((ACCEPT_TIME, EVENT_ID, "channel", "key", "unsent"), 1),
                    **dict.fromkeys(("event.type", "event.mode", "event.source"), 1),
                    **dict.fromkeys(("event.message.type", "event.message.id"), 1),
                    **dict.fromkeys(("event.deliveryContext", "event.timer.name"), 1),
                }
            },
        ],
    ),
    # The newest first by sort({$natural: -1}); a condition reads all of the collection.
    "v_calls": MongoView(
        CALLS,
        [
            *TAKE_APART,
            {
                "$project": {
                    **dict.fromkeys(("at", "endpoint", "status", "ms", "class", WAITED_MS), 1),
                    **dict.fromkeys((PAID, EVENT_ID, "key", "attempt", REQUEST_ID, REASON), 1),
                    **COUNTED,
                }
            },
        ],
    ),
    # The same.
    "v_jobs": MongoView(JOBS, TAKE_APART),
}


def ensure_views(database: Database[Any]) -> list[str]:
    """Create or update all views, also those of another version; returns the changes.

    A collection of the same name is not changed. Raises StoreUnavailable.
    """
    changed = []
    with translated():
        rows = database.list_collections(filter={"name": {"$in": list(VIEWS)}})
        found = {row["name"]: row for row in rows}
        for name, view in VIEWS.items():
            wanted: dict[str, Any] = {"viewOn": view.on, "pipeline": list(view.pipeline)}
            row = found.get(name)
            if row is None:
                _create(database, name, wanted)
            elif row["type"] == "view" and row["options"] != wanted:
                database.command("collMod", name, **wanted)
            else:
                continue
            changed.append(name)
    return changed


def _create(database: Database[Any], name: str, options: Mapping[str, Any]) -> None:
    try:
        database.command("create", name, **options)
    except OperationFailure as error:
        # Another process created it at the same time, which is fine.
        if error.code != NAMESPACE_EXISTS:
            raise
