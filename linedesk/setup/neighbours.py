"""The collections of line_bot beside recvq, and all indexes: makes, checks and repairs them.

`scripts/create_collection.py` writes them into the script for the mongo shell, which does the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pymongo import ASCENDING
from pymongo.database import Database
from pymongo.errors import OperationFailure

from linedesk.runtime.language import gettext as _
from linedesk.store.collections import MEGABYTE, NAMESPACE_NOT_FOUND
from linedesk.store.control import DONE_AT
from linedesk.store.documents import (
    AUDIT,
    BATCHES,
    CALLS,
    CONTROL,
    CONVERSATIONS,
    DEADLETTERS,
    HELD,
    HISTORY,
    JOBS,
    LEASES,
    PROGRESS,
    RECVQ,
    SCHEDULE,
    STATUS,
)
from linedesk.store.errors import translated
from linedesk.store.records.answers import ANSWERS, WITH_ANSWERS
from linedesk.store.records.calls import ALSO_EVENT
from linedesk.store.records.conversations import FORMER_NAMES, UNSENT_AT
from linedesk.store.records.effects import OUTBOX, WITH_OUTBOX
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.letters import EXPIRES_AT, LAST_AT, REPLAYED_AT
from linedesk.store.records.rows import ROWS
from linedesk.store.records.timers import ENDED_AT, RUN_AT

# The name in the log, whatever the folder.
log = logging.getLogger("linedesk.store")

# Collections for reports only: new rows overwrite the oldest ones.
CAPPED_BYTES: Mapping[str, int] = {
    CALLS: 64 * MEGABYTE,
    JOBS: 64 * MEGABYTE,
    # With a row every ten seconds, more than a week.
    HISTORY: 32 * MEGABYTE,
}
DAY_SECONDS = 24 * 3600
WEEK_SECONDS = 7 * 24 * 3600

NAMESPACE_EXISTS = 48
# IndexOptionsConflict and IndexKeySpecsConflict: the name or the keys belong to another index.
OTHER_INDEX = frozenset({85, 86})

MADE = "made"
CAPPED_AGAIN = "capped again"


@dataclass(frozen=True)
class Index:
    """One index as `create_index` takes it."""

    keys: list[tuple[str, int]]
    options: Mapping[str, Any]


def _where_it_is(field: str, name: str) -> Index:
    """An index of the documents that have the field."""
    has = {field: {"$exists": True}}
    return Index([(field, ASCENDING)], {"name": name, "partialFilterExpression": has})


OF_ROWS = Index([(f"{ROWS}.{EVENT_ID}", ASCENDING)], {"name": "rows_eventId"})
# For documents of one row, as releases before wrote them.
OF_ONE_ROW = Index([(EVENT_ID, ASCENDING)], {"name": EVENT_ID})

INDEXES: Mapping[str, list[Index]] = {
    RECVQ: [
        Index(
            [(EVENT_ID, ASCENDING)],
            {
                "name": EVENT_ID,
                "unique": True,  # guard: unique-event-id
                "partialFilterExpression": {EVENT_ID: {"$exists": True}},
            },
        ),
        # For an unsend: it finds its message without a scan of the collection.
        _where_it_is("event.message.id", "messageId"),
    ],
    CONVERSATIONS: [
        # Read with a hint: the filter makes each the list of conversations with an outbox.
        Index([("at", ASCENDING)], {"name": OUTBOX, "partialFilterExpression": WITH_OUTBOX}),
        # Lists the conversations with answers that wait for a tap.
        Index([("at", ASCENDING)], {"name": ANSWERS, "partialFilterExpression": WITH_ANSWERS}),
        _where_it_is(UNSENT_AT, UNSENT_AT),
    ],
    DEADLETTERS: [
        # With the cause in the index a list by cause reads only the letters that it shows.
        Index([(LAST_AT, ASCENDING), ("cause", ASCENDING)], {"name": "lastAt_cause"}),
        _where_it_is("document.event.message.id", "messageId"),
        Index(
            [(REPLAYED_AT, ASCENDING)],
            {"name": REPLAYED_AT, "expireAfterSeconds": WEEK_SECONDS},
        ),
        # Set a week ahead (`jobworker.record.dead_letters.Ageing`).
        Index([(EXPIRES_AT, ASCENDING)], {"name": EXPIRES_AT, "expireAfterSeconds": 0}),
    ],
    HELD: [
        Index(
            [("channel", ASCENDING), ("key", ASCENDING), ("n", ASCENDING)],
            {"name": "channel_key_n"},
        ),
    ],
    SCHEDULE: [
        Index([(RUN_AT, ASCENDING)], {"name": RUN_AT}),
        Index(
            [(ENDED_AT, ASCENDING)],
            {"name": ENDED_AT, "expireAfterSeconds": WEEK_SECONDS},
        ),
    ],
    CALLS: [
        OF_ROWS,
        # Finds the call of a send that was sent along in it.
        Index([(f"{ROWS}.{ALSO_EVENT}", ASCENDING)], {"name": "rows_also"}),
        OF_ONE_ROW,
        _where_it_is(ALSO_EVENT, "also"),
    ],
    JOBS: [OF_ROWS, OF_ONE_ROW],
    HISTORY: [Index([("at", ASCENDING)], {"name": "at"})],
    AUDIT: [Index([("at", ASCENDING)], {"name": "at"})],
    STATUS: [Index([("at", ASCENDING)], {"name": "at", "expireAfterSeconds": DAY_SECONDS})],
    CONTROL: [
        # For releases; a pause has no `doneAt`.
        Index([(DONE_AT, ASCENDING)], {"name": DONE_AT, "expireAfterSeconds": DAY_SECONDS}),
    ],
}
FORMER_INDEXES: Mapping[str, str] = {CONVERSATIONS: FORMER_NAMES}
"""Indexes of releases before, by collection: each would cost writes. `linedesk init` drops them."""
PLAIN = (
    *(PROGRESS, LEASES, CONVERSATIONS, BATCHES, HELD, SCHEDULE, DEADLETTERS),
    *(CONTROL, STATUS, AUDIT),
)
NEIGHBOURS = (*CAPPED_BYTES, *PLAIN)
"""Every collection except recvq."""


def create_neighbours(database: Database[Any]) -> dict[str, str]:
    """Make the missing collections besides recvq and their indexes, without rows.

    One of CAPPED_BYTES that is uncapped, after a drop and an insert, is capped again and keeps its
    newest rows. An index that conflicts with another one is left to the operator. Returns the
    changes by name. Raises the driver's errors.
    """
    existing, done = options_in(database), {}
    for name in NEIGHBOURS:
        if name not in existing:
            # Creating the indexes creates a plain collection, too, with one command less.
            if name not in INDEXES or name in CAPPED_BYTES:
                create(database, name, CAPPED_BYTES.get(name))
            done[name] = MADE
        elif name in CAPPED_BYTES and not existing[name].get("capped"):
            cap(database, name, CAPPED_BYTES[name])
            done[name] = CAPPED_AGAIN
        # After the cap: convertToCapped keeps no index.
        _create_indexes(database, name)
    return done


def wrong_neighbours(database: Database[Any]) -> Iterator[str]:
    """The defects that `create_neighbours` would fix. Raises the driver's errors."""
    existing = options_in(database)
    for name in NEIGHBOURS:
        if name not in existing:
            yield name
            continue
        if name in CAPPED_BYTES and not existing[name].get("capped"):
            yield _("{name} is not capped").format(name=name)
        yield from wrong_indexes(database, name)


def wrong_indexes(database: Database[Any], name: str) -> Iterator[str]:
    there = database[name].index_information() if name in INDEXES else {}
    for index in INDEXES.get(name, ()):
        if not is_as_made(index, there.get(index.options["name"], {})):
            yield _("{name}'s index {index}").format(name=name, index=index.options["name"])


def is_as_made(index: Index, found: Mapping[str, Any]) -> bool:
    """Whether an index of `index_information` is this one; {} means a missing index."""
    options = {name: value for name, value in index.options.items() if name != "name"}
    keys = [(name, int(order)) for name, order in found.get("key", ())]
    return keys == index.keys and all(found.get(name) == options[name] for name in options)


def options_in(database: Database[Any]) -> dict[str, Mapping[str, Any]]:
    """The options of each collection, by its name."""
    return {row["name"]: row.get("options", {}) for row in database.list_collections()}


def create(database: Database[Any], name: str, capped_bytes: int | None) -> None:
    """Create a collection; another process may create it at the same time."""
    options: dict[str, Any] = {} if capped_bytes is None else {"capped": True, "size": capped_bytes}
    try:
        database.create_collection(name, check_exists=False, **options)
    except OperationFailure as error:
        if error.code != NAMESPACE_EXISTS:
            raise


def cap(database: Database[Any], name: str, size: int) -> None:
    """Cap a collection; its newest rows within `size` bytes are kept, its indexes are not."""
    try:
        database.command("convertToCapped", name, size=size)
    except OperationFailure as error:
        # The collection was dropped at this moment: the next check creates it.
        if error.code != NAMESPACE_NOT_FOUND:
            raise


def _create_indexes(database: Database[Any], name: str) -> None:
    for index in INDEXES.get(name, ()):
        try:
            database[name].create_index(index.keys, **index.options)
        except OperationFailure as error:
            if error.code not in OTHER_INDEX:
                raise


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
            rows = self._database.list_collections(filter={"name": {"$in": list(NEIGHBOURS)}})
            there = {row["name"]: row.get("info", {}).get("uuid") for row in rows}
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
