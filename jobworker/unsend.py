"""Messages that their senders took back: remembered, and their stored copies emptied.

An unsend may arrive before its message, since webhooks arrive in any order. A resumed stream still
has a document as it was before it was emptied. Each message is therefore checked before its handler
runs. The bot gets the unsend too.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo import DESCENDING
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from jobworker.latest import Latest
from jobworker.metrics import WorkerMetrics
from jobworker.record.conversations import SETTLE_TRIES, Conversations
from jobworker.record.dead_letters import DeadLetters, emptied
from jobworker.record.record import epoch_of, unrecorded
from linedesk.store.client import durable
from linedesk.store.documents import (
    CONVERSATIONS,
    DEADLETTERS,
    HELD,
    RECVQ,
    Document,
    conversation_id,
    name_of,
)
from linedesk.store.errors import Replaced, StoreUnavailable, WriteRefused, translated, writing_one
from linedesk.store.records.conversations import UNSENT_AT
from linedesk.store.records.effects import OUTBOX_PAIRS
from linedesk.store.redaction import emptying, message_id_of, unsent_id_of

log = logging.getLogger(__name__)

# Message ids that a conversation keeps.
KEPT = 100
# Some megabytes of memory. Older ones are still caught by the record's own filter.
MOST_KNOWN = 20_000
# The record's filter also catches messages that arrive later than this after their unsend.
LOADED = timedelta(days=1)


class Unsends:
    """Carries unsends out, for the holder of the conversations' epoch.

    The field `unsent` of a conversation keeps its latest ones, and this process knows those of all.
    Every method raises StoreUnavailable, and Replaced for a successor; any thread may ask `covers`.
    """

    def __init__(
        self,
        database: Database[Any],
        conversations: Conversations,
        *,
        figures: WorkerMetrics | None = None,
    ) -> None:
        self._conversations = conversations
        self._rows = durable(database[CONVERSATIONS])
        self._recvq = durable(database[RECVQ])
        self._held = durable(database[HELD])
        self.deadletters = DeadLetters(
            database[DEADLETTERS], is_unsent=self.covers, figures=figures
        )
        self._lock = threading.Lock()
        # Under _lock.
        self._known = Latest[tuple[str, str], None](MOST_KNOWN)

    def take_over(self) -> None:
        """Load the recent notes of predecessors, before any outbox is loaded."""
        recent = {UNSENT_AT: {"$gte": datetime.now(UTC) - LOADED}}
        with translated():
            found = self._rows.find(recent, {"unsent": 1})
            rows = list(found.sort(UNSENT_AT, DESCENDING).limit(MOST_KNOWN))
        for row in reversed(rows):
            self.learn(row["_id"], row.get("unsent") or [])

    def learn(self, conversation: str, noted: Iterable[str]) -> None:
        """Use the field `unsent` of a conversation that was loaded anyway."""
        with self._lock:
            for message_id in noted:
                self._known[conversation, message_id] = None

    def covers(self, document: Mapping[str, Any]) -> bool:
        """Whether the document brings or edits a message that is known to be taken back."""
        message_id = message_id_of(document)
        if message_id is None:
            return False
        with self._lock:
            return (conversation_id(document), message_id) in self._known

    def met(self, document: Document) -> None:
        """A record found its message noted as unsent: empty the document's stored copy."""
        self._empty_copy(document)
        log.info("message was unsent, nothing is carried out event_id=%s", name_of(document))

    def ends(self, document: Document) -> bool:
        """Carry out the unsend if the document is one.

        Returns whether its own message was taken back. Its job then ends without the handler, and
        its stored copy is already empty.
        """
        taken_back = unsent_id_of(document)
        if taken_back is not None:
            self._carry_out(document, taken_back)
        # guard: unsent-before-its-message -> if not document.get("unsent"):
        if not document.get("unsent") and not self.covers(document):
            return False
        self._empty_copy(document)
        log.info("message was unsent, no handler runs event_id=%s", name_of(document))
        return True

    def _carry_out(self, document: Document, message_id: str) -> None:
        """Note it first, so that no later copy is missed; then empty the existing ones.

        A letter moves from the outbox to `deadletters`, so they are emptied in this order.
        """
        try:
            self._note(document, message_id)
        except WriteRefused as error:
            # Its conversation accepts no record either. The stored copies are emptied all the same,
            # and this process remembers the message.
            log.error("unsend not recorded event_id=%s error=%s", name_of(document), error)  # noqa: TRY400
        self.learn(conversation_id(document), [message_id])
        same = {"channel": document["channel"], "key": document["key"]}
        with translated():
            for found in list(self._recvq.find({"event.message.id": message_id, **same})):
                self._empty_copy(found)
            for row in list(self._held.find({**same, "document.event.message.id": message_id})):
                self._empty_copy(row["document"])
        try:
            self._empty_letters(conversation_id(document), message_id)
        finally:
            # Also if MongoDB refuses the conversation permanently.
            self.deadletters.empty(document, message_id)
        log.info("message unsent, its copies are empty event_id=%s", name_of(document))

    def _empty_copy(self, document: Document) -> None:
        """The stored copy of a document, in recvq or held, or on its way from one to the other."""
        this = {"_id": document["_id"]}
        with writing_one():
            self._recvq.update_one({**this, "unsent": {"$ne": True}}, {"$set": emptying(document)})
            self._held.update_one(this, {"$set": emptying(document, at="document.")})

    def _note(self, document: Mapping[str, Any], message_id: str) -> None:
        """Note once that a message of the document's conversation was taken back.

        From then on no record of its event is accepted.
        """
        id_, epoch = conversation_id(document), self._conversations.epoch
        condition = {
            "_id": id_,
            "unsent": {"$ne": message_id},
            "epoch": {"$not": {"$gt": epoch}},
        }
        first = unrecorded(document)
        del first["unsent"]
        update = {
            "$push": {"unsent": {"$each": [message_id], "$slice": -KEPT}},
            "$set": {UNSENT_AT: first["at"]},
            "$setOnInsert": {**first, "epoch": epoch},
        }
        for _ in range(SETTLE_TRIES):
            try:
                with writing_one():
                    self._rows.update_one(condition, update, upsert=True)
                return
            except DuplicateKeyError:
                # It is noted already, or of a successor, or two first events met.
                with translated():
                    found = self._rows.find_one({"_id": id_}, {"epoch": 1, "unsent": 1}) or {}
                if epoch_of(found) > epoch:
                    raise Replaced(f"a conversation belongs to epoch {found['epoch']}") from None
                if message_id in (found.get("unsent") or ()):
                    return
        raise StoreUnavailable("the unsend is not noted: it may be waiting for a majority")

    def _empty_letters(self, id_: str, message_id: str) -> None:
        """Empty the message in dead letters that have not left the conversation's outbox yet."""
        letters = {
            "$filter": {
                "input": OUTBOX_PAIRS,
                "cond": {"$eq": ["$$this.v.document.event.message.id", {"$literal": message_id}]},
            }
        }
        this = {"_id": id_}
        with writing_one():
            found = self._rows.find_one(this, {"letters": letters}) or {}
            for one in found.get("letters") or ():
                at = f"outbox.{one['k']}"
                changes = emptied(one["v"]["document"], at=f"{at}.")
                self._rows.update_one({**this, at: {"$exists": True}}, {"$set": changes})
