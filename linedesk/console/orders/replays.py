"""Replays of dead letters: a new document in recvq, exactly one for each request.

A replay takes three writes: the letter counts the replay, recvq gets the document
`replay:<letter>:<n>`, and the letter is marked as replayed. A crash between them leaves `replaying:
n`. The next replay takes the same n, and the unique eventId admits one document. Nothing is lost in
between, and two operators at once make one document.

The document of a send or timer only names the letter: the worker takes the effect from there. The
right to insert into recvq is therefore not the right to send.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import bson
from bson import ObjectId
from pymongo.database import Database

from linedesk.store.client import DURABLE
from linedesk.store.documents import DEADLETTERS, RECVQ, Document
from linedesk.store.errors import translated
from linedesk.store.insert import insert_documents
from linedesk.store.queue.guard import Guard
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID
from linedesk.store.records.letters import EXPIRES_AT, REFUSED, REPLAY, REPLAYED_AT

INSERT_SECONDS = 10.0


def replay_name(letter: Mapping[str, Any]) -> str:
    """The eventId of the letter's next replay, or of an unconfirmed one."""
    return f"{REPLAY}:{letter['_id']}:{_number(letter)}"


def event_again(letter: Mapping[str, Any], *, name: str, now: datetime) -> Document:
    """The letter's event as a new document, as of now.

    It has no reply token, which has expired: the bot's replies become pushes.
    """
    document: Document = letter["document"]
    event = {part: value for part, value in document["event"].items() if part != "replyToken"}
    first = {"_id": ObjectId(), EVENT_ID: name}
    return {**document, **first, ACCEPT_TIME: now, "event": event}


def effect_again(letter: Mapping[str, Any], *, name: str, now: datetime) -> Document:
    """A document that repeats the letter's effect; it runs no handler."""
    return {
        "_id": ObjectId(),
        EVENT_ID: name,
        "channel": letter["channel"],
        "key": letter["key"],
        ACCEPT_TIME: now,
        "event": {"type": REPLAY},
    }


class Replays:
    """Writes replays into recvq; after StoreUnavailable the same replay may be repeated."""

    def __init__(self, database: Database[Any], guard: Guard) -> None:
        self._recvq = database[RECVQ]
        self._letters = database[DEADLETTERS].with_options(write_concern=DURABLE)
        self._guard = guard

    def replay(self, letter: Mapping[str, Any], document: Document) -> bool:
        """Store the document and mark the letter.

        Returns False if another process has done so, or if a document of that name arrived before
        the replay began and was refused. `letter` is as read, `document` is made for its
        `replay_name`. Raises RecvqClosed, with nothing written, if recvq is full or misconfigured.
        """
        self._guard.look_when_due()
        with self._guard.inserting(len(bson.encode(document))):
            if not self._begin(letter):
                return False
            known = insert_documents(self._recvq, [document], timeout_seconds=INSERT_SECONDS)
        # guard: refused-under-this-name
        if known and self._was_refused(document):
            self._mark(letter, {})
            return False
        self._end(letter)
        return True

    def _begin(self, letter: Mapping[str, Any]) -> bool:
        number = _number(letter)
        as_read = {name: letter.get(name) for name in ("replays", REPLAYED_AT)}
        gone = {REPLAYED_AT: "", EXPIRES_AT: ""}
        with translated():
            answer = self._letters.update_one(
                {
                    "_id": letter["_id"],
                    **as_read,  # guard: letter-as-it-was-read
                },
                {"$set": {"replays": number, "replaying": number}, "$unset": gone},
            )
        return bool(answer.matched_count)

    def _was_refused(self, document: Mapping[str, Any]) -> bool:
        refused = {"_id": document[EVENT_ID], "cause": {"$regex": f"^{REFUSED}"}}
        with translated():
            return self._letters.find_one(refused, {"_id": 1}) is not None

    def _end(self, letter: Mapping[str, Any]) -> None:
        self._mark(letter, {"$set": {REPLAYED_AT: datetime.now(UTC)}})

    def _mark(self, letter: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
        begun = {"_id": letter["_id"], "replaying": _number(letter)}
        with translated():
            self._letters.update_one(begun, {**changes, "$unset": {"replaying": ""}})


def _number(letter: Mapping[str, Any]) -> int:
    # guard: replay-keeps-its-number -> return int(letter.get("replays", 0) + 1)
    return int(letter.get("replaying") or letter.get("replays", 0) + 1)
