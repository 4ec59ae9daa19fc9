"""Messages that their senders took back: remembered, and their stored copies emptied.

An unsend may come before its message, since webhooks arrive in any order, and a document that
was emptied in recvq still comes out of a resumed stream as it was; so a message is asked for
here before its handler runs. What a bot made of a message is the bot's: it gets the unsend too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo.collection import Collection
from pymongo.database import Database

from jobworker.conversations import Conversations
from jobworker.deadletters import DeadLetters
from jobworker.figures import Figures
from jobworker.unsent import Notes, Unsent
from recvq.connect import DURABLE, MAJORITY
from recvq.documents import (
    CONVERSATIONS,
    DEADLETTERS,
    HELD,
    RECVQ,
    Document,
    conversation_id,
    name_of,
)
from recvq.errors import WriteRefused, translated, writing_one
from recvq.redact import emptying, unsent_id_of

log = logging.getLogger(__name__)

# A message that comes later than this after its unsend is caught by the record's filter, too.
LOADED = timedelta(days=1)


class Unsends:
    """Carries unsends out. Every method raises StoreUnavailable, and Replaced for a successor."""

    def __init__(
        self,
        database: Database[Any],
        conversations: Conversations,
        *,
        figures: Figures | None = None,
    ) -> None:
        self._notes = Notes(database[CONVERSATIONS], epoch=lambda: conversations.epoch)
        self._unsent = Unsent()
        self.deadletters = DeadLetters(
            database[DEADLETTERS], is_unsent=self._unsent.covers, figures=figures
        )
        self._recvq = _durable(database[RECVQ])
        self._held = _durable(database[HELD])

    def take_over(self) -> None:
        """Load what predecessors have noted of late; before any outbox is loaded."""
        since = datetime.now(UTC) - LOADED
        for id_, message_ids in self._notes.since(since):
            self._unsent.add(id_, message_ids)

    def learn(self, document: Document, noted: Iterable[str]) -> None:
        """Take in the field `unsent` of a conversation that was loaded in any case."""
        self._unsent.add(conversation_id(document), noted)

    def met(self, document: Document) -> None:
        """A record found its message noted as unsent: empty the document's stored copy."""
        self._empty_copy(document)
        log.info("message was unsent, nothing is carried out event_id=%s", name_of(document))

    def ends(self, document: Document) -> bool:
        """Carry out the unsend that the document is, if it is one.

        Returns whether its own message was taken back, so that its job ends without the handler;
        then its stored copy is empty by now.
        """
        taken_back = unsent_id_of(document)
        if taken_back is not None:
            self._carry_out(document, taken_back)
        # guard: unsent-before-its-message -> if not document.get("unsent"):
        if not document.get("unsent") and not self._unsent.covers(document):
            return False
        self._empty_copy(document)
        log.info("message was unsent, no handler runs event_id=%s", name_of(document))
        return True

    def _carry_out(self, document: Document, message_id: str) -> None:
        """Note it first, so that no copy made from now on is missed; then empty those there are.

        A letter goes from `pending` to `deadletters`, so they are emptied in this order.
        """
        try:
            self._notes.add(document, message_id)
        except WriteRefused as error:
            # Its conversation takes no record either; what is stored of the message goes all the
            # same, and this process remembers it.
            log.error("unsend not noted event_id=%s error=%s", name_of(document), error)  # noqa: TRY400
        self._unsent.add(conversation_id(document), [message_id])
        same = {"channel": document["channel"], "key": document["key"]}
        with translated():
            for found in list(self._recvq.find({"event.message.id": message_id, **same})):
                self._empty_copy(found)
            for row in list(self._held.find({**same, "document.event.message.id": message_id})):
                self._empty_copy(row["document"])
        try:
            self._notes.empty_pending(conversation_id(document), message_id)
        finally:
            # Also where MongoDB refuses the conversation for good.
            self.deadletters.empty(document, message_id)
        log.info("message unsent, its copies are empty event_id=%s", name_of(document))

    def _empty_copy(self, document: Document) -> None:
        """The stored copy of a document, in recvq or held, or on its way from one to the other."""
        this = {"_id": document["_id"]}
        with writing_one():
            self._recvq.update_one({**this, "unsent": {"$ne": True}}, {"$set": emptying(document)})
            self._held.update_one(this, {"$set": emptying(document, at="document.")})


def _durable(collection: Collection[Any]) -> Collection[Any]:
    return collection.with_options(write_concern=DURABLE, read_concern=MAJORITY)
