"""Which messages were taken back: noted in `conversations`, and the latest kept in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from pymongo import DESCENDING
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from jobworker.conversations import SETTLE_TRIES
from jobworker.deadletters import emptied
from jobworker.record import epoch_of, unrecorded
from recvq.connect import DURABLE, MAJORITY
from recvq.documents import Document, conversation_id
from recvq.errors import Replaced, StoreUnavailable, translated, writing_one
from recvq.redact import message_id_of

# Message ids that a conversation keeps.
KEPT = 100
# Some megabytes of memory. What is beyond them is still caught by the record's own filter.
MOST_KNOWN = 20_000


class Unsent:
    """The unsent messages that this process knows of, the latest ones. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Under _lock.
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()

    def add(self, conversation: str, message_ids: Iterable[str]) -> None:
        """Remember them; beyond the bound the oldest are forgotten."""
        with self._lock:
            for message_id in message_ids:
                self._known[conversation, message_id] = None
                self._known.move_to_end((conversation, message_id))
            while len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)

    def covers(self, document: Mapping[str, Any]) -> bool:
        """Whether the document brings or edits a message that is known to be taken back."""
        message_id = message_id_of(document)
        if message_id is None:
            return False
        with self._lock:
            return (conversation_id(document), message_id) in self._known


class Notes:
    """The field `unsent` of the conversations, for the holder of `epoch`.

    Every method raises StoreUnavailable when MongoDB does not confirm in time.
    """

    def __init__(self, collection: Collection[Any], *, epoch: Callable[[], int]) -> None:
        self._collection = collection.with_options(write_concern=DURABLE, read_concern=MAJORITY)
        self._epoch = epoch

    def since(self, moment: datetime) -> list[tuple[str, list[str]]]:
        """Conversations with an unsend since then and their message ids, the latest last."""
        condition = {"unsentAt": {"$gte": moment}}
        with translated():
            rows = list(
                self._collection.find(condition, {"unsent": 1})
                .sort("unsentAt", DESCENDING)
                .limit(MOST_KNOWN)
            )
        return [(row["_id"], row.get("unsent") or []) for row in reversed(rows)]

    def add(self, document: Mapping[str, Any], message_id: str) -> None:
        """Note that a message of the document's conversation was taken back; once, if repeated.

        From then on no record of its event is accepted. Raises Replaced for a successor's epoch.
        """
        id_ = conversation_id(document)
        condition = {
            "_id": id_,
            "unsent": {"$ne": message_id},
            "epoch": {"$not": {"$gt": self._epoch()}},
        }
        for _ in range(SETTLE_TRIES):
            try:
                with writing_one():
                    self._collection.update_one(
                        condition, self._note(document, message_id), upsert=True
                    )
                return
            except DuplicateKeyError:
                if self._is_noted(id_, message_id):
                    return
        raise StoreUnavailable("the unsend is not noted: it may be waiting for a majority")

    def empty_pending(self, id_: str, message_id: str) -> None:
        """Empty the message in dead letters that have not left the conversation's outbox yet."""
        condition = {"_id": id_, "pending.document.event.message.id": message_id}
        with writing_one():
            found = self._collection.find_one(condition, {"pending": 1}) or {"pending": []}
            for effect in found["pending"]:
                document = effect.get("document", {})
                if message_id_of(document) == message_id:
                    changes = emptied(document, at="pending.$.")
                    this = {"_id": id_, "pending.id": effect["id"]}
                    self._collection.update_one(this, {"$set": changes})

    def _note(self, document: Mapping[str, Any], message_id: str) -> Document:
        first = unrecorded(document)
        del first["unsent"]
        return {
            "$push": {"unsent": {"$each": [message_id], "$slice": -KEPT}},
            "$set": {"unsentAt": first["at"]},
            "$setOnInsert": {**first, "epoch": self._epoch()},
        }

    def _is_noted(self, id_: str, message_id: str) -> bool:
        """What a note that did not match means; False: try it again (two first events met)."""
        with translated():
            found = self._collection.find_one({"_id": id_}, {"epoch": 1, "unsent": 1})
        if found is not None and epoch_of(found) > self._epoch():
            raise Replaced(f"a conversation belongs to epoch {found['epoch']}")
        return found is not None and message_id in (found.get("unsent") or ())
