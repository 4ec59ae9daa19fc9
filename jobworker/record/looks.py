"""Regular checks on the thread that writes rows, and the one that makes names searchable."""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pymongo
from pymongo.errors import PyMongoError

from dispatcher.commit.committer import MOST_TOGETHER, Change, Committer
from linedesk.store.documents import CONVERSATIONS
from linedesk.store.errors import QueueError, WriteRefused, translate
from linedesk.store.records.conversations import NAME_PARTS, name_parts, names_in

log = logging.getLogger(__name__)

# The shortest pause after an error: MongoDB is away, or an index does not exist yet.
AGAIN_SECONDS = 60.0
MISSING = {NAME_PARTS: {"$exists": False}}
NAMES = ("profile.displayName", "members")
# At most a thousand a second, with the pause of the thread that calls `look`.
MOST_AT_ONCE = 500


class Look(ABC):
    """Done at most once in `every_seconds`, unless more is left to do. Belongs to one thread."""

    what = ""
    every_seconds = 3600.0
    limit_seconds = 10.0

    def __init__(self) -> None:
        self._look_at = -math.inf

    @abstractmethod
    def act(self) -> bool:
        """Do it; returns whether more is left. May raise errors of MongoDB."""

    def look(self) -> None:
        """Do it if it is time; raises nothing."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + self.every_seconds
        try:
            with pymongo.timeout(self.limit_seconds):
                if self.act():
                    self._look_at = -math.inf
        except (PyMongoError, QueueError) as error:
            self._look_at = now + max(self.every_seconds, AGAIN_SECONDS)
            found = translate(error) if isinstance(error, PyMongoError) else error
            reason = str(found) if isinstance(found, QueueError) else type(error).__name__
            log.warning('not checked, trying again later: %s reason="%s"', self.what, reason)


class NameParts(Look):
    """Fills in `nameParts` of conversations, by which operators find people.

    A write that changes a name removes `nameParts` in the same update, so no parts of an old name
    remain. Conversations without the field are then found by its index and get it: those with a new
    name, of an older release, and of a backup.
    """

    what = "names to be made searchable"
    every_seconds = 1.0

    def __init__(self, committer: Committer) -> None:
        super().__init__()
        self._committer = committer
        self._conversations = committer.database[CONVERSATIONS]

    def act(self) -> bool:
        # By the index or not at all: a check must not read every conversation.
        rows = list(self._conversations.find(MISSING, NAMES).hint(NAME_PARTS).limit(MOST_AT_ONCE))
        for first in range(0, len(rows), MOST_TOGETHER):
            changes = [_filling(row) for row in rows[first : first + MOST_TOGETHER]]
            try:
                self._committer.commit_each(*changes)
            except WriteRefused:
                for change in changes:
                    with suppress(WriteRefused):
                        self._committer.commit(change)
        return len(rows) == MOST_AT_ONCE


def _filling(row: Mapping[str, Any]) -> Change:
    """The update, unless its names have changed since it was read."""
    profile = row.get("profile")
    own = profile.get("displayName") if isinstance(profile, Mapping) else None
    same = {"_id": row["_id"]}
    # guard: names-as-they-were-read
    same |= {"profile.displayName": own, "members": row.get("members")}
    return Change(CONVERSATIONS, same, {"$set": {NAME_PARTS: name_parts(names_in(row))}})
