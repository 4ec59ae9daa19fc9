"""Repairs the collections besides recvq: capped, and with their indexes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pymongo.database import Database

from linedesk.store.collections import NEIGHBOURS, create_neighbours, wrong_neighbours
from linedesk.store.errors import translated

log = logging.getLogger(__name__)

NOT_MENDED = (
    "collections differ from those of linedesk: drop the conflicting index "
    "(db.<collection>.dropIndex), then run `linedesk init`"
)


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
        """Repair collections, cheaply where all is well. Raises StoreUnavailable, AccessRefused."""
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
