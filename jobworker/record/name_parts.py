"""Fills in `nameParts` of conversations, by which operators find people.

A write that changes a name takes `nameParts` away in the same update, so pieces of a name that is
gone are gone with it. Conversations without the field are then read by its index and given it:
those of a new name, of an older release, and of a backup.
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
# A thousand a second at most, with the pause of the thread that calls `look`.
MOST_AT_ONCE = 500
LOOK_SECONDS = 1.0
# MongoDB is away, or the index is not there yet.
AGAIN_SECONDS = 60.0
FILL_SECONDS = 10.0


class NameParts:
    """Belongs to one thread. What it writes follows from the document alone, so a write of a
    predecessor does no harm.
    """

    def __init__(self, database: Database[Any], *, most_at_once: int = MOST_AT_ONCE) -> None:
        self._conversations = durable(database[CONVERSATIONS])
        self._most_at_once = most_at_once
        self._look_at = -math.inf

    def look(self) -> None:
        """Fill in some where any are missing; raises nothing."""
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
        """Returns how many were missing, `most_at_once` at most."""
        # By the index or not at all: a look must not read every conversation.
        rows = list(
            self._conversations.find(MISSING, NAMES).hint(NAME_PARTS).limit(self._most_at_once)
        )
        if rows:
            self._conversations.bulk_write([_filling(row) for row in rows], ordered=False)
        return len(rows)


def _filling(row: Mapping[str, Any]) -> UpdateOne:
    """Unless its names have changed since it was read."""
    profile = row.get("profile")
    own = profile.get("displayName") if isinstance(profile, Mapping) else None
    same = {"_id": row["_id"]}
    # guard: names-as-they-were-read
    same |= {"profile.displayName": own, "members": row.get("members")}
    return UpdateOne(same, {"$set": {NAME_PARTS: name_parts(names_in(row))}})
