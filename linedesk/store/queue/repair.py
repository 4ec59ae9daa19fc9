"""Making recvq and its neighbours again what they have to be: capped, and with their indexes.

A recvq that was dropped or renamed comes back by anybody's insert, uncapped and without its
unique index. Only the holder of the lease mends it; every other writer waits until it is right.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from pymongo.database import Database
from pymongo.errors import OperationFailure

from linedesk.store.collections import (
    DEFAULT_CAPPED_BYTES,
    INDEXES,
    NAMESPACE_EXISTS,
    NAMESPACE_NOT_FOUND,
    NEIGHBOURS,
    Index,
    create_neighbours,
    is_as_made,
    wrong_neighbours,
)
from linedesk.store.documents import RECVQ
from linedesk.store.errors import StoreUnavailable, translated
from linedesk.store.insert import DUPLICATE_KEY
from linedesk.store.records.events import EVENT_ID
from linedesk.store.views import create_views

log = logging.getLogger(__name__)

# Each step is looked at anew: others may insert, set up or drop at the same time.
MOST_STEPS = 20

MISSING = "missing"
UNCAPPED = "not capped"
NOT_MENDED = (
    "collections are otherwise than linedesk makes them: drop the index that stands in the way "
    "(db.<collection>.dropIndex), then run `linedesk init`"
)
# What is wrong then is not mended in place: the collection is not the one that was read.
ANOTHER = frozenset({MISSING, UNCAPPED})


class CollectionRepair:
    """Looks after recvq of one database, and remembers how large it was.

    `size` is what is remembered of it from before, and `note` writes down another one, for who
    comes after a kill. Every method raises StoreUnavailable when MongoDB cannot be reached;
    mending may end anywhere, also by a kill, and the next call goes on from what it finds.
    """

    def __init__(
        self,
        database: Database[Any],
        *,
        size: int | None = None,
        note: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._database = database
        self._bytes = size or DEFAULT_CAPPED_BYTES
        self._noted = size
        self._note = note

    def look(self) -> str | None:
        """What is wrong with recvq in a few words; None if nothing is."""
        with translated():
            options = self._options()
            if options is None:
                return MISSING
            if not options.get("capped"):
                return UNCAPPED
            missing = self._missing_indexes()
        return f"without its index {missing[0].options['name']}" if missing else None

    def apply(self) -> list[str]:
        """Make what is missing of recvq; returns what was done, nothing if all was right.

        Documents stay, in their order; of several with one eventId the oldest stays.
        """
        done: list[str] = []
        with translated():
            for _ in range(MOST_STEPS):
                step = self._next_step()
                if step is None:
                    return done
                done.append(step)
        raise StoreUnavailable("recvq is changed by others all the time")

    def apply_neighbours(self) -> list[str]:
        """Make the other collections and views that are missing, as after a drop of the database.

        The rows of lease and progress are not made here: they are their owners'.
        """
        with translated():
            made = create_neighbours(self._database)
        return [*made, *create_views(self._database)]

    def _next_step(self) -> str | None:
        """Take one step towards a right recvq; None if there is none to take."""
        options = self._options()
        if options is None:
            return self._create()
        if not options.get("capped"):
            return self._convert()
        missing = self._missing_indexes()
        return self._index(missing[0]) if missing else None

    def _options(self) -> Mapping[str, Any] | None:
        """recvq's options, None if it is missing; a capped one's size is remembered."""
        for row in self._database.list_collections(filter={"name": RECVQ}):
            options: Mapping[str, Any] = row.get("options", {})
            if options.get("capped"):
                self._remember(int(options["size"]))
            return options
        return None

    def _remember(self, size: int) -> None:
        self._bytes = size
        if size != self._noted:
            self._note(size)
            self._noted = size

    def _missing_indexes(self) -> list[Index]:
        there = self._database[RECVQ].index_information()
        found = [there.get(str(index.options["name"]), {}) for index in INDEXES[RECVQ]]
        pairs = zip(INDEXES[RECVQ], found, strict=True)
        return [index for index, as_found in pairs if not is_as_made(index, as_found)]

    def _create(self) -> str:
        try:
            self._database.create_collection(
                RECVQ, check_exists=False, capped=True, size=self._bytes
            )
        except OperationFailure as error:
            if error.code != NAMESPACE_EXISTS:
                raise
            return "somebody else made it"
        return f"created with {self._bytes} bytes"

    def _convert(self) -> str:
        """convertToCapped keeps documents and order, and drops what is beyond the size."""
        try:
            holds = int(self._database.command("collStats", RECVQ)["size"])
            size = max(self._bytes, 2 * holds)
            self._database.command("convertToCapped", RECVQ, size=size)
        except OperationFailure as error:
            if error.code != NAMESPACE_NOT_FOUND:
                raise
            return "somebody else dropped it"
        return f"converted to capped with {size} bytes"

    def _index(self, index: Index) -> str:
        recvq, name = self._database[RECVQ], str(index.options["name"])
        if name in recvq.index_information():
            recvq.drop_index(name)
        try:
            recvq.create_index(index.keys, **index.options)
        except OperationFailure as error:
            if error.code != DUPLICATE_KEY:
                raise
            return f"{self._remove_duplicates()} duplicates removed"
        return f"index {name} made"

    def _remove_duplicates(self) -> int:
        """Of each eventId the first in natural order stays: that is what was read first."""
        rows = self._database[RECVQ].aggregate(
            [
                {"$match": {EVENT_ID: {"$exists": True}}},
                {"$group": {"_id": f"${EVENT_ID}", "ids": {"$push": "$_id"}}},
                {"$match": {"ids.1": {"$exists": True}}},
            ],
            hint={"$natural": 1},
            allowDiskUse=True,
        )
        removed = 0
        for row in rows:
            answer = self._database[RECVQ].delete_many({"_id": {"$in": row["ids"][1:]}})
            removed += answer.deleted_count
        return removed


class Neighbours:
    """Looks after the collections beside recvq. One thread at a time may look."""

    def __init__(self, database: Database[Any]) -> None:
        self._database = database
        # Of each collection what a drop, a rename or a conversion changes; as it was when all was
        # right.
        self._right: Mapping[str, Any] = {}
        self._wrong: list[str] = []
        self._tries = 0

    def look(self) -> None:
        """Make right what was dropped by hand; it costs one listCollections where nothing was.

        Raises StoreUnavailable, AccessRefused.
        """
        with translated():
            # First, so that what changes amid the look is met by the next one.
            there = self._identities()
            if there == self._right:
                return
            wrong = list(wrong_neighbours(self._database))
            if wrong:
                create_neighbours(self._database)
                self._tell(wrong)
            else:
                self._right, self._wrong = there, []

    def _tell(self, wrong: list[str]) -> None:
        """Say what was wrong, and once more the second time in a row that it is so."""
        self._tries = self._tries + 1 if wrong == self._wrong else 1
        self._wrong = wrong
        if self._tries == 1:
            log.warning("collections made right again found=%s", ", ".join(wrong))
        elif self._tries == 2:
            log.error("%s found=%s", NOT_MENDED, ", ".join(wrong))

    def _identities(self) -> Mapping[str, Any]:
        rows = self._database.list_collections(filter={"name": {"$in": list(NEIGHBOURS)}})
        return {row["name"]: row.get("info", {}).get("uuid") for row in rows}
