"""Inserts into recvq: durable on a majority, and idempotent for redelivered webhooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pymongo
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError

from linedesk.store.client import DURABLE
from linedesk.store.errors import StoreUnavailable, translated

DUPLICATE_KEY = 11000
# The codes by which MongoDB 6.0 permanently rejects a document: too large (2 and 10334), nested too
# deep (15), and bytes that are not BSON. Other errors may pass, so the document waits.
BAD_VALUE, OVERFLOW, INVALID_BSON, OBJECT_TOO_LARGE = 2, 15, 22, 10334
NEVER_TAKEN = frozenset({BAD_VALUE, OVERFLOW, INVALID_BSON, OBJECT_TOO_LARGE})


def insert_documents(
    collection: Collection[Any],
    documents: Sequence[Mapping[str, Any]],
    *,
    timeout_seconds: float,
) -> frozenset[int]:
    """Store the documents on a journalled majority; an existing eventId counts as stored.

    Returns the indexes, from 0, of the documents that were stored before. Raises StoreUnavailable
    if MongoDB did not confirm all of them within `timeout_seconds`. Some may be stored
    nevertheless; storing them again is safe.
    """
    if not documents:
        return frozenset()
    durable = collection.with_options(write_concern=DURABLE)
    with translated(), pymongo.timeout(timeout_seconds):
        try:
            durable.insert_many(documents, ordered=False)
        except BulkWriteError as error:
            return _settle(error)
    return frozenset()


def _settle(error: BulkWriteError) -> frozenset[int]:
    """Separate duplicates, whose indexes are returned, from failures.

    A duplicate counts as stored only if the same reply carries no writeConcernError: the first
    copy may not be majority-committed yet, and `insert_one` would hide that (architecture: step 2).
    """
    details = error.details
    failures = [e for e in details["writeErrors"] if e["code"] != DUPLICATE_KEY]
    # guard: duplicate-needs-majority -> if failures:
    if failures or details["writeConcernErrors"]:
        codes = {e["code"] for e in failures + details["writeConcernErrors"]}
        raise StoreUnavailable(f"insert not confirmed, codes {sorted(codes)}") from error
    return frozenset(e["index"] for e in details["writeErrors"])


def never_taken(error: Exception) -> list[int]:
    """The indexes of documents that MongoDB rejects for their content, by the codes of the answer
    that is the cause of the error.
    """
    cause = error.__cause__
    if not isinstance(cause, BulkWriteError) or cause.details["writeConcernErrors"]:
        return []
    return [one["index"] for one in cause.details["writeErrors"] if one["code"] in NEVER_TAKEN]
