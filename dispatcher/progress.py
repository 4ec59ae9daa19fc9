"""The `progress` document: how far everything is finished, guarded by the epoch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pymongo import ReturnDocument
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from dispatcher.ledger import RING_SLOTS, Ledger, Snapshot
from recvq.collections import DISPATCHER
from recvq.connect import DURABLE
from recvq.documents import Document
from recvq.errors import Replaced, translated


@dataclass(frozen=True)
class Start:
    """What a dispatcher finds when it takes over."""

    ledger: Ledger
    feed: str | None
    """The feed that the saved token belongs to; None before the very first start."""


class Progress:
    """Reads and saves `progress` for the holder of one epoch.

    Every write is on a journalled majority and raises Replaced when a higher epoch stands in
    the document, StoreUnavailable when its outcome is unknown.
    """

    def __init__(self, collection: Collection[Any], *, feed: str, epoch: int) -> None:
        self._collection = collection.with_options(write_concern=DURABLE)
        self._feed = feed
        self._epoch = epoch

    def take_over(self) -> Start:
        """Set the epoch and return what a predecessor left; from now on it is refused."""
        empty: Document = {"token": None, "after": None, "finished": [], "passed": 0, "feed": None}
        changes = {
            "$set": {"epoch": self._epoch, "at": datetime.now(UTC)},
            "$inc": {"starts": 1},
            "$setOnInsert": {**empty, "ring": [None] * RING_SLOTS, "trying": None},
        }
        with translated():
            try:
                found = self._collection.find_one_and_update(
                    # The own epoch matches, too: the outcome of a first try may be unknown.
                    {"_id": DISPATCHER, "epoch": {"$lte": self._epoch}},
                    changes,
                    upsert=True,
                    return_document=ReturnDocument.AFTER,
                )
            except DuplicateKeyError as error:
                raise Replaced(f"progress is held by an epoch above {self._epoch}") from error
        assert found is not None, "an upsert returns what it left"
        return self._start(found)

    def save(self, snapshot: Snapshot) -> None:
        """Write what changed: of the ring only the slots that did (architecture: documents)."""
        changes: Document = {
            "feed": self._feed,
            "token": snapshot.token,
            "after": snapshot.after,
            "finished": snapshot.finished,
            "passed": snapshot.passed,
            "starts": 0,
            "at": datetime.now(UTC),
        }
        changes.update({f"ring.{place}": id_ for place, id_ in snapshot.ring.items()})
        with translated():
            answer = self._collection.update_one(
                {"_id": DISPATCHER, "epoch": self._epoch}, {"$set": changes}
            )
        if answer.matched_count == 0:
            raise Replaced(f"progress no longer belongs to epoch {self._epoch}")

    def _start(self, found: Document) -> Start:
        ledger = Ledger.restore(
            token=found["token"],
            after=found["after"],
            finished=found["finished"],
            passed=found["passed"],
            ring=found["ring"],
        )
        return Start(ledger, found["feed"])
