"""Fills in `nameParts` of conversations, by which operators find people.

A write that changes a name removes `nameParts` in the same update, so no parts of an old name
remain. Conversations without the field are then found by its index and get it: those with a new
name, of an older release, and of a backup.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from typing import Any

import pymongo
from pymongo import UpdateOne
from pymongo.database import Database
from pymongo.errors import PyMongoError

from linedesk.store.client import durable
from linedesk.store.documents import CONVERSATIONS
from linedesk.store.records.conversations import NAME_PARTS, name_parts, names_in

log = logging.getLogger(__name__)

MISSING = {NAME_PARTS: {"$exists": False}}
NAMES = ("profile.displayName", "members")
# At most a thousand a second, with the pause of the thread that calls `look`.
MOST_AT_ONCE = 500
LOOK_SECONDS = 1.0
# MongoDB is away, or the index does not exist yet.
AGAIN_SECONDS = 60.0
FILL_SECONDS = 10.0


class NameParts:
    """Belongs to one thread. Its writes depend on the document only, so a predecessor's write is
    harmless.
    """

    def __init__(self, database: Database[Any], *, most_at_once: int = MOST_AT_ONCE) -> None:
        self._conversations = durable(database[CONVERSATIONS])
        self._most_at_once = most_at_once
        self._look_at = -math.inf

    def look(self) -> None:
        """Fill in some that are missing; raises nothing."""
        if time.monotonic() < self._look_at:
            return
        try:
            with pymongo.timeout(FILL_SECONDS):
                found = self._fill()
        except PyMongoError as error:
            kind = type(error).__name__
            log.info("names are not made searchable for now error=%s", kind)
            self._look_at = time.monotonic() + AGAIN_SECONDS
        else:
            if found < self._most_at_once:
                self._look_at = time.monotonic() + LOOK_SECONDS

    def _fill(self) -> int:
        """Return how many were missing, at most `most_at_once`."""
        # By the index or not at all: a check must not read every conversation.
        rows = list(
            self._conversations.find(MISSING, NAMES).hint(NAME_PARTS).limit(self._most_at_once)
        )
        if rows:
            self._conversations.bulk_write([_filling(row) for row in rows], ordered=False)
        return len(rows)


def _filling(row: Mapping[str, Any]) -> UpdateOne:
    """The update, unless its names have changed since it was read."""
    profile = row.get("profile")
    own = profile.get("displayName") if isinstance(profile, Mapping) else None
    same = {"_id": row["_id"]}
    # guard: names-as-they-were-read
    same |= {"profile.displayName": own, "members": row.get("members")}
    return UpdateOne(same, {"$set": {NAME_PARTS: name_parts(names_in(row))}})
