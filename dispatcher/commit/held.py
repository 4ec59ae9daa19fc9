"""The `held` collection: documents that wait long, in the order of their key.

Rows are added and removed only in the group that names their documents finished or decided
(`dispatcher.commit.progress`). A document is therefore in one place or the other after any crash.
recvq is capped, and MongoDB takes no write to it in a transaction (error 263): it is only read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dispatcher.commit.committer import Committer
from linedesk.store.client import MAJORITY
from linedesk.store.documents import HELD, Document


@dataclass(frozen=True)
class HeldKey:
    """A key with held documents: their number, and the highest `n` among them."""

    channel: Any
    key: Any
    count: int
    top: int


class HeldStore:
    """Reads of `held`; every method raises StoreUnavailable."""

    def __init__(self, committer: Committer) -> None:
        self._collection = committer.database[HELD].with_options(read_concern=MAJORITY)
        self._reading = committer.reading

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
        with self._reading() as session:
            found = self._collection.aggregate(groups, allowDiskUse=True, session=session)
            return [
                HeldKey(row["_id"].get("channel"), row["_id"].get("key"), row["count"], row["top"])
                for row in found
            ]

    def slice(self, key: tuple[Any, Any], *, above: int, upto: int, most: int) -> list[Document]:
        channel, name = key
        condition = {"channel": channel, "key": name, "n": {"$gt": above, "$lte": upto}}
        with self._reading() as session:
            found = self._collection.find(condition, session=session).sort("n", 1).limit(most)
            return list(found)

    def has(self, id_: Any) -> bool:
        with self._reading() as session:
            return self._collection.find_one({"_id": id_}, {"_id": 1}, session=session) is not None
