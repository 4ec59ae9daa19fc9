"""The `progress` document: how far all documents are finished, guarded by the epoch; and `held`,
whose rows are written with it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import pymongo
from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from dispatcher.commit.committer import Change, Committer
from dispatcher.commit.tracker import RING_SLOTS, ProgressSnapshot, ProgressTracker
from linedesk.store.client import DURABLE, MAJORITY
from linedesk.store.collections import DISPATCHER, require_schema
from linedesk.store.documents import HELD, PROGRESS, SCHEMA, Document
from linedesk.store.errors import Replaced, translated

log = logging.getLogger(__name__)

# A group of a predecessor that is under way delays the take-over; then it is ended once more.
CLAIM_SECONDS = 5.0


@dataclass(frozen=True)
class HeldKey:
    """A key with held documents: their number, and the highest `n` among them."""

    channel: Any
    key: Any
    count: int
    top: int


class HeldStore:
    """Reads of `held`, the documents that wait long, in the order of their key. Every method raises
    StoreUnavailable.

    Rows are added and removed only in the group that names their documents finished or decided. A
    document is therefore in one place or the other after any crash. recvq is capped, and MongoDB
    takes no write to it in a transaction (error 263): it is only read.
    """

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


@dataclass(frozen=True)
class Trying:
    """A suspect that was named before it ran (`dispatcher.pool.suspects`)."""

    name: str
    starts: int
    """How many starts have found it named."""
    since: datetime


@dataclass(frozen=True)
class Start:
    """The state that a dispatcher finds when it takes over."""

    tracker: ProgressTracker
    feed: str | None
    """The feed of the saved token; None before the very first start."""
    starts: int = 0
    """The number of consecutive starts that met unfinished documents and ended badly."""
    explained: int = 0
    """How many of them were counted although their lease was taken."""
    trying: Sequence[Trying] = ()


class Progress:
    """Reads and saves `progress` for the holder of one epoch.

    Every write is on a journalled majority. It raises Replaced when the document has a higher
    epoch, StoreUnavailable when its outcome is unknown.
    """

    def __init__(self, committer: Committer, *, feed: str, epoch: int) -> None:
        self._committer = committer
        self._session = committer.session
        self._collection = committer.database[PROGRESS].with_options(write_concern=DURABLE)
        self._feed = feed
        self._epoch = epoch
        self.held = HeldStore(committer)

    def take_over(self) -> Start:
        """Set the epoch, so a predecessor is refused from now on; returns its state."""
        # guard: left-transaction-ended
        self._end_left_transaction()
        with pymongo.timeout(CLAIM_SECONDS):
            found = self._claim()
        return self._start(found)

    def _claim(self) -> Document:
        empty: Document = {"token": None, "after": None, "finished": [], "passed": 0, "feed": None}
        changes = {
            "$set": {
                "epoch": self._epoch,
                "schema": SCHEMA,
                "session": self._session.session_id["id"],
                "at": datetime.now(UTC),
            },
            "$setOnInsert": {**empty, "ring": [None] * RING_SLOTS, "starts": 0, "trying": None},
        }
        with translated():
            try:
                found: Document | None = self._collection.find_one_and_update(
                    # Our own epoch matches, too: the outcome of a first try may be unknown.
                    {
                        "_id": DISPATCHER,
                        "epoch": {"$lte": self._epoch},
                        "schema": SCHEMA,
                    },
                    changes,
                    upsert=True,
                    return_document=ReturnDocument.AFTER,
                    session=self._session,
                )
            except DuplicateKeyError as error:
                require_schema(self._collection.database)
                raise Replaced(f"progress is held by an epoch above {self._epoch}") from error
        assert found is not None, "an upsert returns what it left"
        return found

    def _end_left_transaction(self) -> None:
        """Abort the group that a predecessor had begun when it was killed or frozen.

        MongoDB would keep it for a minute, and no other process could write `progress` meanwhile.
        """
        mine = {"_id": DISPATCHER, "epoch": {"$lte": self._epoch}}
        with translated():
            found = self._collection.find_one(mine, {"session": 1})
            if found is not None and found.get("session") is not None:
                client = self._collection.database.client
                client.admin.command("killSessions", [{"id": found["session"]}])

    def changes(self, snapshot: ProgressSnapshot | None) -> list[Change]:
        """Return the part of a group that is the leader's own: documents that enter and leave
        `held`, and last the fence, which is the row itself. Of `ring` and `finished` it has only
        the places that changed (docs/reference/collections.md).
        """
        fields: Document = {"at": datetime.now(UTC)}
        changes: list[Change] = []
        if snapshot is not None:
            fields |= {
                "feed": self._feed,
                "token": snapshot.token,
                "after": snapshot.after,
                "passed": snapshot.passed,
                "held": snapshot.held,
            }
            fields |= {f"ring.{place}": id_ for place, id_ in snapshot.ring.items()}
            if isinstance(snapshot.finished, list):
                fields["finished"] = snapshot.finished
            else:
                fields |= {f"finished.{n}": id_ for n, id_ in snapshot.finished.items()}
            changes += [Change.insert(HELD, row) for row in snapshot.rows]
            # A row that was decided in the meantime is in both lists, and is removed.
            changes += [Change(HELD, {"_id": id_}, None) for id_ in snapshot.gone]
        # Never without an effect, or MongoDB would only read the document.
        # guard: fence-is-written -> return [*changes, self._change({"$max": {"epoch": 0}})]
        return [*changes, self._change({"$set": fields, "$inc": {"saves": 1}})]

    def _change(self, update: Document) -> Change:
        condition = {
            "_id": DISPATCHER,
            "epoch": self._epoch,  # guard: term-in-the-fence
        }
        return Change(PROGRESS, condition, update)

    def refused(self) -> None:
        """A group did not match the document. Raises Replaced for a successor's; after a drop of
        the whole database it is made again.
        """
        self._claim()
        log.error("progress was dropped, recreating it epoch=%d", self._epoch)

    def note_starts(self, starts: int, *trying: Trying) -> None:
        """Store the count of starts, and the suspects that are about to run or do so.

        Releases before this one know a single name, in `trying`.
        """
        rows = [asdict(one) for one in trying]
        changes: Document = {"starts": starts, "trying": rows[0] if rows else None}
        changes["tryingToo"] = rows[1:]
        self._committer.commit(
            self._change({"$set": changes if starts else {**changes, "explained": 0}})
        )

    def note_explained(self) -> None:
        """Subtract this start from the count, which a higher epoch continues meanwhile."""
        taken = {"_id": DISPATCHER, "epoch": {"$gt": self._epoch}, "starts": {"$gt": 0}}
        with translated():
            self._collection.update_one(taken, {"$inc": {"explained": 1}})

    def _start(self, found: Document) -> Start:
        tracker = ProgressTracker(
            token=found["token"],
            after=found["after"],
            finished=found["finished"],
            passed=found["passed"],
            ring=found["ring"],
            held=found.get("held", 0),
        )
        trying = [found.get("trying"), *found.get("tryingToo", ())]
        return Start(
            tracker,
            found["feed"],
            starts=found.get("starts", 0),
            explained=found.get("explained", 0),
            trying=[Trying(**row) for row in trying if row],
        )
