"""Inserts into recvq: durable on a majority, and idempotent for redelivered webhooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pymongo
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError

from linedesk.store.client import DURABLE
from linedesk.store.errors import StoreUnavailable, translated

DUPLICATE_KEY = 11000


@dataclass(frozen=True)
class Stored:
    """The result of one insert: all of its documents are in recvq now."""

    inserted: int
    duplicates: int
    duplicate_indexes: frozenset[int] = frozenset()
    """The indexes, from 0, of the documents that were stored before."""


def insert_documents(
    collection: Collection[Any],
    documents: Sequence[Mapping[str, Any]],
    *,
    timeout_seconds: float,
) -> Stored:
    """Store the documents on a journalled majority; an existing eventId counts as stored.

    Raises StoreUnavailable if MongoDB did not confirm all of them within `timeout_seconds`. Some
    may be stored nevertheless; storing them again is safe.
    """
    if not documents:
        return Stored(0, 0)
    durable = collection.with_options(write_concern=DURABLE)
    with translated(), pymongo.timeout(timeout_seconds):
        try:
            durable.insert_many(documents, ordered=False)
        except BulkWriteError as error:
            return _settle(error)
    return Stored(len(documents), 0)


def _settle(error: BulkWriteError) -> Stored:
    """Separate duplicates from failures.

    A duplicate counts as stored only if the same reply carries no writeConcernError: the first
    copy may not be majority-committed yet, and `insert_one` would hide that (architecture: step 2).
    """
    details = error.details
    failures = [e for e in details["writeErrors"] if e["code"] != DUPLICATE_KEY]
    # guard: duplicate-needs-majority -> if failures:
    if failures or details["writeConcernErrors"]:
        codes = {e["code"] for e in failures + details["writeConcernErrors"]}
        raise StoreUnavailable(f"insert not confirmed, codes {sorted(codes)}") from error
    indexes = frozenset(e["index"] for e in details["writeErrors"])
    return Stored(details["nInserted"], len(indexes), indexes)
