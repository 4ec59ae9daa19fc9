"""Fills in `nameParts` of conversations, by which operators find people.

A write that changes a name removes `nameParts` in the same update, so no parts of an old name
remain. Conversations without the field are then found by its index and get it: those with a new
name, of an older release, and of a backup.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pymongo import UpdateOne
from pymongo.database import Database

from jobworker.record.looks import Look
from linedesk.store.client import durable
from linedesk.store.documents import CONVERSATIONS
from linedesk.store.records.conversations import NAME_PARTS, name_parts, names_in

MISSING = {NAME_PARTS: {"$exists": False}}
NAMES = ("profile.displayName", "members")
# At most a thousand a second, with the pause of the thread that calls `look`.
MOST_AT_ONCE = 500


class NameParts(Look):
    """Fills in some that are missing. Its writes depend on the document only, so a predecessor's
    write is harmless.
    """

    what = "names to be made searchable"
    every_seconds = 1.0

    def __init__(self, database: Database[Any]) -> None:
        super().__init__()
        self._conversations = durable(database[CONVERSATIONS])

    def act(self) -> bool:
        # By the index or not at all: a check must not read every conversation.
        rows = list(self._conversations.find(MISSING, NAMES).hint(NAME_PARTS).limit(MOST_AT_ONCE))
        if rows:
            self._conversations.bulk_write([_filling(row) for row in rows], ordered=False)
        return len(rows) == MOST_AT_ONCE


def _filling(row: Mapping[str, Any]) -> UpdateOne:
    """The update, unless its names have changed since it was read."""
    profile = row.get("profile")
    own = profile.get("displayName") if isinstance(profile, Mapping) else None
    same = {"_id": row["_id"]}
    # guard: names-as-they-were-read
    same |= {"profile.displayName": own, "members": row.get("members")}
    return UpdateOne(same, {"$set": {NAME_PARTS: name_parts(names_in(row))}})
