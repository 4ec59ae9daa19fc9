"""Makes recvq and the first rows of the database, and sets the age of `audit`: `linedesk init`."""

from __future__ import annotations

from typing import Any

from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import OperationFailure

from linedesk.runtime.language import gettext as _
from linedesk.setup.neighbours import (
    CAPPED_AGAIN,
    DAY_SECONDS,
    FORMER_INDEXES,
    INDEXES,
    MADE,
    Index,
    cap,
    create,
    create_neighbours,
    is_as_made,
    options_in,
)
from linedesk.store.collections import DISPATCHER, EPOCHS, MEGABYTE
from linedesk.store.documents import AUDIT, LEASES, PROGRESS, RECVQ
from linedesk.store.errors import WrongCollection, translated
from linedesk.store.insert import DUPLICATE_KEY
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID
from linedesk.store.records.leases import NEVER_HELD

DEFAULT_CAPPED_BYTES = 1024 * MEGABYTE


def create_collections(
    database: Database[Any], *, capped_bytes: int = DEFAULT_CAPPED_BYTES
) -> dict[str, str]:
    """Make every missing collection, index and seed row; returns the changes by name.

    Idempotent: a run that was killed is completed by the next one, and all processes may run
    meanwhile. A recvq that is uncapped, after a drop and an insert, is capped again; its documents
    and their order are kept, of several with one eventId the oldest. Raises WrongCollection, with
    nothing changed, if linedesk did not make recvq. Raises StoreUnavailable if MongoDB cannot be
    reached.
    """
    with translated():
        made = _make_recvq(database, capped_bytes)
        for index in INDEXES[RECVQ]:
            _index_recvq(database[RECVQ], index)
        made |= create_neighbours(database)
        for collection, name in FORMER_INDEXES.items():
            if name in database[collection].index_information():
                database[collection].drop_index(name)
        _seed(database)
    return made


def _make_recvq(database: Database[Any], capped_bytes: int) -> dict[str, str]:
    made = {}
    # Again, since a front desk's insert or a drop may come in between.
    while not (options := options_in(database)).get(RECVQ, {}).get("capped"):
        if RECVQ not in options:
            create(database, RECVQ, capped_bytes)
            made[RECVQ] = MADE
        else:
            _require_ours(database)
            # With room for all documents: those beyond the size would be dropped.
            holds = int(database.command("collStats", RECVQ)["size"])
            cap(database, RECVQ, max(capped_bytes, 2 * holds))
            made[RECVQ] = CAPPED_AGAIN
    return made


def _index_recvq(recvq: Collection[Any], index: Index) -> None:
    name = str(index.options["name"])
    there = recvq.index_information().get(name, {})
    if there and not is_as_made(index, there):
        recvq.drop_index(name)
    while True:
        try:
            recvq.create_index(index.keys, **index.options)
        except OperationFailure as error:
            if error.code != DUPLICATE_KEY:
                raise
            _remove_duplicates(recvq)
        else:
            return


def _remove_duplicates(recvq: Collection[Any]) -> None:
    """Keep the first document of each eventId in natural order: it is read first."""
    rows = recvq.aggregate(
        [
            {"$match": {EVENT_ID: {"$exists": True}}},
            {"$group": {"_id": f"${EVENT_ID}", "ids": {"$push": "$_id"}}},
            {"$match": {"ids.1": {"$exists": True}}},
        ],
        hint={"$natural": 1},
        allowDiskUse=True,
    )
    for row in rows:
        recvq.delete_many({"_id": {"$in": row["ids"][1:]}})


def _require_ours(database: Database[Any]) -> None:
    """Raise WrongCollection if recvq has a document that no front desk stored."""
    stranger = {"$or": [{ACCEPT_TIME: {"$exists": False}}, {"event": {"$exists": False}}]}
    if database[RECVQ].find_one({**stranger, "heartbeat": {"$ne": True}}, {"_id": 1}) is not None:
        told = _(
            "{name} exists but is not capped and was not made by linedesk: rename it ({command}), "
            "then run `linedesk init` again"
        )
        command = f"db.{RECVQ}.renameCollection('{RECVQ}_old')"
        raise WrongCollection(told.format(name=f"{database.name}.{RECVQ}", command=command))


def set_audit_age(database: Database[Any], *, days: int) -> None:
    """Make MongoDB remove rows of `audit` after `days`; no user has the right to remove any.

    Raises StoreUnavailable.
    """
    index = {"name": "at", "expireAfterSeconds": days * DAY_SECONDS}
    with translated():
        # `wrong_neighbours` names a conflicting index.
        if "at" in database[AUDIT].index_information() and audit_age_days(database) != days:
            database.command("collMod", AUDIT, index=index)


def audit_age_days(database: Database[Any]) -> int | None:
    """The days until rows of `audit` are removed; None for never. Raises the driver's errors."""
    seconds = database[AUDIT].index_information().get("at", {}).get("expireAfterSeconds")
    return None if seconds is None else int(seconds) // DAY_SECONDS


def _seed(database: Database[Any]) -> None:
    leases = database[LEASES]
    # Rows that outlived the counter must not have an epoch above all new ones.
    own, epoch = {"_id": DISPATCHER}, {"epoch": 1}
    left = [rows.find_one(own, epoch) or {"epoch": 0} for rows in (database[PROGRESS], leases)]
    highest = max(row["epoch"] for row in left)
    leases.update_one({"_id": EPOCHS}, {"$max": {"epoch": highest}}, upsert=True)
    leases.update_one({"_id": DISPATCHER}, {"$setOnInsert": NEVER_HELD}, upsert=True)
