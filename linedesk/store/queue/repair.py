"""Repairs recvq and the other collections: capped, and with their indexes.

After a drop or a rename the next insert creates recvq uncapped and without its unique index. Only
the holder of the lease repairs it; all other writers wait.
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

# Each step checks again: other processes may insert, set up or drop at the same time.
MOST_STEPS = 20

MISSING = "missing"
UNCAPPED = "not capped"
NOT_MENDED = (
    "collections differ from those of linedesk: drop the conflicting index "
    "(db.<collection>.dropIndex), then run `linedesk init`"
)
# Defects that are not repaired in place: the collection is not the one that was read.
ANOTHER = frozenset({MISSING, UNCAPPED})


class CollectionRepair:
    """Repairs recvq of one database, and remembers its size.

    `size` is the size remembered from before, and `note` stores a new one, for a process after a
    kill. Every method raises StoreUnavailable if MongoDB cannot be reached. A repair may be
    interrupted at any point, also by a kill; the next call continues from the state that it finds.
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
        """The defect of recvq; None if it has none."""
        with translated():
            options = self._options()
            if options is None:
                return MISSING
            if not options.get("capped"):
                return UNCAPPED
            missing = self._missing_indexes()
        return f"without its index {missing[0].options['name']}" if missing else None

    def apply(self) -> list[str]:
        """Repair recvq; returns the changes, empty without any.

        Documents and their order are kept; of several with one eventId the oldest is kept.
        """
        done: list[str] = []
        with translated():
            for _ in range(MOST_STEPS):
                step = self._next_step()
                if step is None:
                    return done
                done.append(step)
        raise StoreUnavailable("other processes keep changing recvq")

    def apply_neighbours(self) -> list[str]:
        """Make missing other collections and views, for example after a drop of the database.

        It does not make the rows of lease and progress, which belong to their owners.
        """
        with translated():
            made = create_neighbours(self._database)
        return [*made, *create_views(self._database)]

    def _next_step(self) -> str | None:
        """Take one step of the repair; None if no step is needed."""
        options = self._options()
        if options is None:
            return self._create()
        if not options.get("capped"):
            return self._convert()
        missing = self._missing_indexes()
        return self._index(missing[0]) if missing else None

    def _options(self) -> Mapping[str, Any] | None:
        """recvq's options, None if it is missing; remembers the size of a capped one."""
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
            return "another process made it"
        return f"created with {self._bytes} bytes"

    def _convert(self) -> str:
        """convertToCapped keeps documents and order, and drops documents beyond the size."""
        try:
            holds = int(self._database.command("collStats", RECVQ)["size"])
            size = max(self._bytes, 2 * holds)
            self._database.command("convertToCapped", RECVQ, size=size)
        except OperationFailure as error:
            if error.code != NAMESPACE_NOT_FOUND:
                raise
            return "another process dropped it"
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
        """Keep the first document of each eventId in natural order: it was read first."""
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
    """Repairs the collections besides recvq; for one thread at a time."""

    def __init__(self, database: Database[Any]) -> None:
        self._database = database
        # Per collection the properties that a drop, a rename or a conversion changes, as of the
        # last check without defects.
        self._right: Mapping[str, Any] = {}
        self._wrong: list[str] = []
        self._tries = 0

    def look(self) -> None:
        """Repair collections dropped by hand; without a defect it takes one listCollections.

        Raises StoreUnavailable, AccessRefused.
        """
        with translated():
            # Read first: the next check detects changes made during this one.
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
        """Log the defects, and once more if they persist at the second check."""
        self._tries = self._tries + 1 if wrong == self._wrong else 1
        self._wrong = wrong
        if self._tries == 1:
            log.warning("collections repaired found=%s", ", ".join(wrong))
        elif self._tries == 2:
            log.error("%s found=%s", NOT_MENDED, ", ".join(wrong))

    def _identities(self) -> Mapping[str, Any]:
        rows = self._database.list_collections(filter={"name": {"$in": list(NEIGHBOURS)}})
        return {row["name"]: row.get("info", {}).get("uuid") for row in rows}
