"""Dead letters: given-up events and effects with their cause, and their replay.

Writing a letter again leaves the first one. A replay is decided by the effect in the letter.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import PyMongoError

from dispatcher.commit.committer import Change, Committer
from dispatcher.conversations.mailbox import Condemned
from jobworker.effects import Send, SendMethod, is_timer, is_whole, of_event
from jobworker.metrics import GIVEN_UP, WorkerMetrics
from jobworker.record.conversations import Decision
from jobworker.record.looks import Look
from linedesk.store.client import DURABLE, LOCAL
from linedesk.store.documents import AUDIT, DEADLETTERS, Document, name_of
from linedesk.store.errors import translated
from linedesk.store.records.audit import DONE, begun_row, ended
from linedesk.store.records.effects import unproved_try
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID
from linedesk.store.records.letters import (
    CARRIED_OUT,
    EXPIRES_AT,
    LAST_AT,
    MOST_COUNTED,
    REPLAYED_AT,
    Cause,
    number_of,
    row_of,
    under_replay,
)
from linedesk.store.redaction import emptying, message_id_of

log = logging.getLogger(__name__)

# Letters that are too old are announced this long before they are removed.
NOTICE = timedelta(days=7)
# The most ids in one row of `audit`.
MOST_AT_ONCE = 1_000


def emptied(document: Mapping[str, Any]) -> Document:
    """The fields to set in an event's letter after an unsend.

    The traceback is removed, too: it may quote the message.
    """
    return {**emptying(document, at="document."), "traceback": None}


def _kind_of(letter: Mapping[str, Any]) -> str:
    if "document" in letter:
        return "event"
    return "timer" if letter["effect"].get("type") == "timer" else "send"


class DeadLetters:
    """Writes to `deadletters`; `is_unsent` returns whether a document's message was taken back.

    Raises StoreUnavailable.
    """

    def __init__(
        self,
        committer: Committer,
        *,
        is_unsent: Callable[[Document], bool],
        figures: WorkerMetrics | None = None,
    ) -> None:
        self._committer = committer
        self._collection = committer.database[DEADLETTERS]
        self._is_unsent = is_unsent
        self._figures = figures or WorkerMetrics()

    def write(self, letter: Mapping[str, Any]) -> None:
        """Write a letter under its id, unless it exists: a late writer changes nothing."""
        self._committer.commit(change_of(letter))
        self.written(letter)

    def written(self, *letters: Mapping[str, Any]) -> None:
        """Count these letters, which were written with others of their group."""
        for letter in letters:
            self._figures.add("dead_letters", _kind_of(letter))
            if (cause := letter.get("cause")) in GIVEN_UP:
                self._figures.add("given_up_sends", cause)
            document = letter.get("document")
            # After the write: whichever of the write and the unsend is first, the other one sees
            # it.
            # guard: unsent-asked-after-the-write
            if document is not None and self._is_unsent(document):
                self.empty(document, message_id_of(document))

    def replayed_by(self, document: Mapping[str, Any], **also: Any) -> Document | None:
        """Return the letter that the document is a replay of, if that has begun and is not done
        yet.

        A new primary has all majority writes, but may show them with read concern majority only
        later. The read concern is therefore local.
        """
        letter = under_replay(document)
        if letter is None:
            return None
        done = {CARRIED_OUT: {"$not": {"$gte": number_of(document)}}}
        with translated():
            local = self._collection.with_options(read_concern=LOCAL)
            return local.find_one({**letter, **done, **also})

    def note_carried_out(self, document: Mapping[str, Any]) -> None:
        """Prevent any further document of that name from carrying the letter out."""
        letter = under_replay(document)
        if letter is not None:
            number = {"$max": {CARRIED_OUT: number_of(document)}}
            self._committer.commit(Change(DEADLETTERS, letter, number))

    def empty(self, document: Mapping[str, Any], message_id: Any) -> None:
        """Empty every letter of the document's conversation that holds this message."""
        condition = {
            "document.event.message.id": message_id,
            "channel": document["channel"],
            "key": document["key"],
            "document.unsent": {"$ne": True},
        }
        with self._committer.reading() as session:
            letters = list(self._collection.find(condition, {"document": 1}, session=session))
        for letter in letters:
            changes = {"$set": emptied(letter["document"])}
            self._committer.commit(Change(DEADLETTERS, {"_id": letter["_id"]}, changes))


def change_of(letter: Mapping[str, Any]) -> Change:
    """The insert of a letter; one that is there already stays. Raises WriteRefused."""
    return Change.insert(DEADLETTERS, row_of(letter))


class KeptLetters(Look):
    """The number of letters, for the figures; unknown while MongoDB is away."""

    every_seconds = 5.0
    limit_seconds = 2.0

    def __init__(self, collection: Collection[Any], figures: WorkerMetrics) -> None:
        super().__init__()
        self._collection = collection
        self._figures = figures

    def act(self) -> bool:
        kept = left = None
        # The workers themselves report an outage.
        with suppress(PyMongoError):
            kept = self._collection.estimated_document_count()
            left = self._collection.count_documents({REPLAYED_AT: None}, limit=MOST_COUNTED)
        self._figures.put({"dead_letters_kept": kept, "dead_letters_open": left})
        return False


class Ageing(Look):
    """Removes dead letters that were not replayed or dropped within so many days.

    Each is announced a week ahead, in `audit` and in the log. MongoDB then
    removes it by its `expiresAt`; a replay or a longer age clears that. The dispatcher itself
    removes nothing.
    """

    what = "ages of dead letters"
    limit_seconds = 2.0

    def __init__(self, database: Database[Any], *, days: int) -> None:
        super().__init__()
        self._letters = database[DEADLETTERS].with_options(write_concern=DURABLE)
        self._audit = database[AUDIT].with_options(write_concern=DURABLE)
        self._days = days

    def act(self) -> bool:
        """Announce the letters to be removed in a week, at most MOST_AT_ONCE."""
        now = datetime.now(UTC)
        old = now - timedelta(days=self._days) + NOTICE
        self._letters.update_many(
            {EXPIRES_AT: {"$exists": True}, LAST_AT: {"$gte": old}}, {"$unset": {EXPIRES_AT: ""}}
        )
        left = {EXPIRES_AT: None, "replaying": None, REPLAYED_AT: None}
        rows = self._letters.find({LAST_AT: {"$lt": old}, **left}, {"_id": 1})
        ids = [row["_id"] for row in rows.sort(LAST_AT, 1).limit(MOST_AT_ONCE)]
        if ids:
            row = begun_row(
                at=now,
                by="linedesk",
                via="dispatcher",
                act="expire",
                on=ids,
                why=f"older than {self._days} days; gone after {now + NOTICE:%Y-%m-%d %H:%M} UTC",
            )
            self._audit.insert_one({**row, **ended(DONE, now)})
            end = {"$set": {EXPIRES_AT: now + NOTICE}}
            self._letters.update_many({"_id": {"$in": ids}, **left}, end)
            log.warning("dead letters expire in a week letters=%d days=%d", len(ids), self._days)
        return len(ids) == MOST_AT_ONCE


def anew(effect: Mapping[str, Any], *, name: str, now: datetime) -> Document:
    """Return the effect of a dead letter for the record of the event `name`; never a reply any
    more.

    A timer is set or cancelled regardless of later changes.

    A new retry key is used only if every try was definitely refused. With a try of unknown outcome
    the key stays the same, as long as LINE keeps it and accepts it once (architecture: G5). After
    that the send may arrive twice: the operator who replays it has accepted that.
    """
    if is_timer(effect):
        return {**effect, "id": f"{name}/timer/{effect['name']}", EVENT_ID: name}
    given_up = Send.from_document(effect)
    send = replace(
        given_up,
        id=f"{name}/0",
        event_id=name,
        way=SendMethod.PUSH if given_up.way is SendMethod.REPLY else given_up.way,
        at=now,
        token=None,
        token_from=None,
        answer_to=None,
    )
    if given_up.tried_at is not None and unproved_try(effect, now) is None:
        return send.as_document()
    fresh = replace(send, retry_key=str(uuid.uuid4()), tried_at=None, tried_as=None)
    return fresh.as_document()


def carried_out(document: Mapping[str, Any], letter: Mapping[str, Any] | None) -> Decision | None:
    """Return the decision of a replayed effect, without a handler; None if it has to be refused.

    `letter` is the letter that is replayed. It holds all that is sent or set. Of the document only
    the moment counts: the operator's process used it to judge whether the send may arrive twice.
    """
    if letter is None or "effect" not in letter or not is_sound(letter):
        return None
    moment = min(document[ACCEPT_TIME], datetime.now(UTC))
    effect = anew(letter["effect"], name=name_of(document), now=moment)
    return Decision({}, [effect])


def refused(document: Document, cause: Cause) -> Decision:
    """Return the decision to give up a document that asks for an effect without a source."""
    log.error("%s event_id=%s", cause, name_of(document))
    return Decision({}, [of_event(document, Condemned(cause, 0, datetime.now(UTC)))])


def is_sound(document: Mapping[str, Any]) -> bool:
    """Whether its effect can be recorded; one created by hand may not."""
    try:
        if is_timer(document["effect"]):
            return is_whole(document["effect"])
        Send.from_document(document["effect"])
    except (KeyError, TypeError, ValueError):
        return False
    return True
