"""The `held` collection: documents that wait long, in the order of their key.

Rows are added and removed only in the transaction that saves `progress`
(`dispatcher.progress.document`). A document is therefore in one place or the other after any crash.
recvq is capped, and MongoDB takes no write to it in a transaction (error 263): it is only read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bson.timestamp import Timestamp
from pymongo import UpdateOne
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.errors import PyMongoError

from linedesk.store.client import DURABLE, MAJORITY, WTIMEOUT_SECONDS
from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable, translate, translated

# A transaction with one of these labels was aborted, or its outcome is unknown; it may be repeated.
UNSETTLED = ("TransientTransactionError", "UnknownTransactionCommitResult")


@dataclass(frozen=True)
class HeldKey:
    """A key with held documents: their number, and the highest `n` among them."""

    channel: Any
    key: Any
    count: int
    top: int


class HeldStore:
    """Reads and writes of `held`; every method raises StoreUnavailable.

    `time` is the server's time of the last write that must be visible. After a failover a majority
    read may briefly return an earlier state, and an invisible document would be lost.
    """

    def __init__(self, collection: Collection[Any]) -> None:
        self._collection = collection.with_options(read_concern=MAJORITY)
        self._client = collection.database.client
        self.time: Timestamp | None = None

    def all_keys(self) -> list[HeldKey]:
        """Return every key with held documents, read from the index only."""
        groups: list[Document] = [
            # In the order of the index, so that the server reads only the index.
            {"$sort": {"channel": 1, "key": 1, "n": 1}},
            {"$project": {"_id": 0, "channel": 1, "key": 1, "n": 1}},
            {
                "$group": {
                    "_id": {"channel": "$channel", "key": "$key"},
                    "count": {"$sum": 1},
                    "top": {"$max": "$n"},
                }
            },
        ]
        with translated(), self._session() as session:
            found = self._collection.aggregate(groups, allowDiskUse=True, session=session)
            return [
                HeldKey(row["_id"].get("channel"), row["_id"].get("key"), row["count"], row["top"])
                for row in found
            ]

    def slice(self, key: tuple[Any, Any], *, above: int, upto: int, most: int) -> list[Document]:
        channel, name = key
        condition = {"channel": channel, "key": name, "n": {"$gt": above, "$lte": upto}}
        with translated(), self._session() as session:
            found = self._collection.find(condition, session=session).sort("n", 1).limit(most)
            return list(found)

    def has(self, id_: Any) -> bool:
        with translated(), self._session() as session:
            return self._collection.find_one({"_id": id_}, {"_id": 1}, session=session) is not None

    def write(self, session: ClientSession, rows: Sequence[Document], gone: Sequence[Any]) -> None:
        """Add rows and remove decided ones, in the session's transaction.

        An existing row stays unchanged: the transaction may repeat one of unknown outcome. A row
        that was decided in the meantime is in both lists, and is removed.
        """
        if rows:
            self._collection.bulk_write(
                [
                    UpdateOne({"_id": row["_id"]}, {"$setOnInsert": row}, upsert=True)
                    for row in rows
                ],
                ordered=False,
                session=session,
            )
        if gone:
            self._collection.delete_many({"_id": {"$in": list(gone)}}, session=session)

    @contextmanager
    def _session(self) -> Iterator[ClientSession]:
        with self._client.start_session(causal_consistency=True) as session:
            if self.time is not None:
                session.advance_operation_time(self.time)
            yield session


@contextmanager
def transaction(session: ClientSession) -> Iterator[None]:
    """Make one try of a transaction on a journalled majority.

    Raises StoreUnavailable if it was aborted or its outcome is unknown. The server ends the rest of
    it when the session's next transaction begins.
    """
    commit_ms = int(WTIMEOUT_SECONDS * 1000)
    try:
        with session.start_transaction(write_concern=DURABLE, max_commit_time_ms=commit_ms):
            yield
    except PyMongoError as error:
        if any(error.has_error_label(label) for label in UNSETTLED):
            raise StoreUnavailable(type(error).__name__) from error
        raise translate(error) from error
