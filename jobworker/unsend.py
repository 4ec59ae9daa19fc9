"""Messages that their senders took back: remembered, and their stored copies emptied.

An unsend may arrive before its message, since webhooks arrive in any order. A resumed stream still
has a document as it was before it was emptied. Each message is therefore checked before its handler
runs. The bot gets the unsend too.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo import DESCENDING
from pymongo.errors import WriteError

from dispatcher.commit.committer import Change, Committer
from dispatcher.conversations.conversations import MOST_UNSENT, Conversations
from jobworker.metrics import WorkerMetrics
from jobworker.record.dead_letters import DeadLetters
from jobworker.record.edits import edited_at, newest
from jobworker.record.record import unrecorded
from linedesk.store.client import durable
from linedesk.store.documents import (
    CONVERSATIONS,
    HELD,
    RECVQ,
    Document,
    conversation_id,
    name_of,
)
from linedesk.store.errors import WriteRefused, translated
from linedesk.store.records.conversations import UNSENT_AT
from linedesk.store.redaction import emptying, message_id_of, unsent_id_of

log = logging.getLogger(__name__)

# Conversations whose latest notes are loaded. Others are caught by the record's own filter.
MOST_LOADED = 20_000
# The record's filter also catches messages that arrive later than this after their unsend.
LOADED = timedelta(days=1)


class Unsends:
    """Carries unsends out.

    The field `unsent` of a conversation keeps its latest ones, and this process knows those of all.
    Every method raises StoreUnavailable; any thread may ask `covers`.
    """

    def __init__(
        self,
        committer: Committer,
        known: Conversations | None = None,
        *,
        figures: WorkerMetrics | None = None,
    ) -> None:
        self._committer = committer
        database = committer.database
        self._rows = database[CONVERSATIONS]
        self._recvq = durable(database[RECVQ])
        self._held = database[HELD]
        self.deadletters = DeadLetters(committer, is_unsent=self.covers, figures=figures)
        self._known = Conversations() if known is None else known

    def take_over(self) -> None:
        """Load the recent notes of predecessors, before any outbox is loaded."""
        recent = {UNSENT_AT: {"$gte": datetime.now(UTC) - LOADED}}
        with self._committer.reading() as session:
            found = self._rows.find(recent, {"unsent": 1}, session=session)
            rows = list(found.sort(UNSENT_AT, DESCENDING).limit(MOST_LOADED))
        for row in reversed(rows):
            self.learn(row["_id"], row.get("unsent") or [])

    def learn(self, conversation: str, noted: Sequence[str]) -> None:
        """Use the field `unsent` of a conversation that was loaded anyway."""
        with self._known.lock:
            if noted:
                self._known.get(conversation).take_back(noted)

    def covers(self, document: Mapping[str, Any]) -> bool:
        """Whether the document brings or edits a message that is known to be taken back."""
        message_id = message_id_of(document)
        if message_id is None:
            return False
        with self._known.lock:
            found = self._known.find(conversation_id(document))
            return found is not None and message_id in found.unsent

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

    def edit_of(self, document: Document) -> Document | None:
        """Return the newest edit in recvq of the document's message, which came before it."""
        message_id = message_id_of(document)
        place = {name: document[name] for name in ("channel", "key")}
        with translated():
            found = self._recvq.find({"event.message.id": message_id, **place})
            return newest(found, str(message_id), after=edited_at(document))

    def _carry_out(self, document: Document, message_id: str) -> None:
        """Note it first, so that no later copy is missed; then empty the existing ones."""
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
        self.deadletters.empty(document, message_id)
        log.info("message unsent, its copies are empty event_id=%s", name_of(document))

    def _empty_copy(self, document: Document) -> None:
        """The stored copy of a document, in recvq or held, or on its way from one to the other."""
        this = {"_id": document["_id"]}
        try:
            with translated():
                full = {**this, "unsent": {"$ne": True}}
                self._recvq.update_one(full, {"$set": emptying(document)})
        except WriteError as error:
            raise WriteRefused(error.code) from error
        with self._committer.reading() as session:
            is_held = self._held.find_one(this, {"_id": 1}, session=session) is not None
        if is_held:
            self._committer.commit(Change(HELD, this, {"$set": emptying(document, at="document.")}))

    def _note(self, document: Mapping[str, Any], message_id: str) -> None:
        """Note once that a message of the document's conversation was taken back.

        From then on no record of its event is accepted.
        """
        condition = {"_id": conversation_id(document), "unsent": {"$ne": message_id}}
        first = unrecorded(document)
        del first["unsent"]
        update = {
            "$push": {"unsent": {"$each": [message_id], "$slice": -MOST_UNSENT}},
            "$set": {UNSENT_AT: first.pop("at")},
            "$setOnInsert": first,
        }
        # Without a match it is noted already.
        self._committer.commit(Change(CONVERSATIONS, condition, update, upsert=True))
