"""The `conversations` collection: one document a conversation, every write guarded by the epoch.

Recording is the one atomic update that decides an event (architecture: step 7); what it does not
match is settled by reading. The outbox, `pending`, is written only here.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pymongo import ReturnDocument
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError, OperationFailure

from recvq.connect import DURABLE, MAJORITY
from recvq.documents import Document, conversation_id, name_of
from recvq.errors import Replaced, StoreUnavailable, translated

APPLIED = 100
SETTLE_TRIES = 5
# A document holds 16 MB, however the outbox grows to them: BSONObjectTooLarge, and what an update
# says that ends just above it (17419; 17420 for an upsert).
TOO_LARGE = frozenset({10334, 17419, 17420})
# What a conversation holds of its people before anything was recorded.
NEW: Mapping[str, Any] = {
    "profile": None,
    "friend": None,
    "state": None,
    "data": {},
    "unsent": [],
}


@dataclass
class Conversation:
    """What a handler may see and change, as it was loaded for one event."""

    id: str
    profile: Document | None = None
    friend: bool | None = None
    state: str | None = None
    until: datetime | None = None
    data: Document = field(default_factory=dict)
    members: dict[str, Document] = field(default_factory=dict)
    states: dict[str, Document] = field(default_factory=dict)
    n: int = 0
    applied: Sequence[str] = ()
    unsent: Sequence[str] = ()

    FIELDS = ("profile", "friend", "state", "until", "data", "members", "states")

    @classmethod
    def from_document(cls, id_: str, document: Mapping[str, Any] | None) -> Conversation:
        """The conversation as stored; an empty one where there is none yet."""
        found = document or {}
        known = {name: found[name] for name in cls.FIELDS if found.get(name) is not None}
        return cls(
            id=id_,
            n=found.get("n", 0),
            applied=found.get("applied", ()),
            unsent=found.get("unsent", ()),
            **known,
        )

    def fields(self) -> Document:
        """A copy of what a handler may change."""
        return {name: copy.deepcopy(getattr(self, name)) for name in self.FIELDS}


@dataclass(frozen=True)
class Decision:
    """What one event came to: everything that its record writes."""

    changes: Document
    effects: list[Document]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write: the event is finished without a record."""
        return not self.changes and not self.effects

    @property
    def given_up(self) -> Decision:
        """What is left of it where nothing may be carried out: that it was given up, if it was."""
        return Decision({}, [one for one in self.effects if one["type"] == "deadletter"])


@dataclass(frozen=True)
class Recorded:
    """How a record ended: by this process's own write, or found done and adopted."""

    adopted: Document | None = None
    """The conversation as stored, when its outbox holds what this process did not know of."""
    unsent: bool = False
    """The event's message was taken back by its sender: it is finished without effects."""

    @property
    def is_ours(self) -> bool:
        """Whether this very call wrote the record, the names given along with it included."""
        return self.adopted is None and not self.unsent


class Conversations:
    """Reads and writes for the holder of one epoch.

    Every method raises StoreUnavailable when MongoDB does not confirm in time, and Replaced when
    a higher epoch stands in the conversation.
    """

    def __init__(self, collection: Collection[Any]) -> None:
        self._collection = collection.with_options(write_concern=DURABLE, read_concern=MAJORITY)
        self.epoch = 0

    def load(self, document: Mapping[str, Any]) -> Conversation:
        """The conversation that a recvq document belongs to."""
        id_ = conversation_id(document)
        with translated():
            found = self._collection.find_one({"_id": id_}, {"pending": 0})
        return Conversation.from_document(id_, found)

    def record(
        self,
        document: Mapping[str, Any],
        decision: Decision,
        *,
        unsaved: Sequence[str],
        message_id: str | None,
    ) -> Recorded:
        """Decide the event, once and for all.

        `unsaved` names the key's events decided without a record since the last saved progress:
        they are applied along, so that none is decided again under the new state.
        """
        id_, name = conversation_id(document), name_of(document)
        condition: Document = {"_id": id_, "applied": {"$ne": name}, **self._mine}
        if message_id is not None:
            condition["unsent"] = {"$ne": message_id}
        update = self._update(document, decision, [*unsaved, name])
        for _ in range(SETTLE_TRIES):
            try:
                with translated():
                    before = self._collection.find_one_and_update(
                        condition, update, {"epoch": 1, "pending.id": 1}, upsert=True
                    )
                return self._recorded(id_, before)
            except DuplicateKeyError:
                settled = self._settle(id_, name, message_id)
                if settled is not None:
                    return settled
            except OperationFailure as error:
                if error.code not in TOO_LARGE:
                    raise
                raise StoreUnavailable("the outbox has to shrink before it holds more") from error
        raise StoreUnavailable("the record is not settled: it may be waiting for a majority")

    def _recorded(self, id_: str, before: Document | None) -> Recorded:
        """A record of ours; with what a frozen predecessor left there after we took over."""
        if before and before["epoch"] < self.epoch and before.get("pending"):
            return Recorded(adopted=self.adopt(id_))
        return Recorded()

    def adopt(self, id_: str) -> Document:
        """Set the epoch and return the conversation, which replaces what memory had."""
        with translated():
            found: Document | None = self._collection.find_one_and_update(
                {"_id": id_, **self._mine},
                {"$set": {"epoch": self.epoch}},
                return_document=ReturnDocument.AFTER,
            )
        if found is None:
            raise Replaced(f"a conversation belongs to an epoch above {self.epoch}")
        return found

    def with_pending(self) -> Iterator[Document]:
        """Every conversation with an outbox, each adopted; the oldest record first."""
        with translated():
            ids = [
                row["_id"]
                for row in self._collection.find({"pending.0": {"$exists": True}}, {"_id": 1})
                .hint("pending")
                .sort("at", 1)
            ]
        for id_ in ids:
            yield self.adopt(id_)

    def note_try(self, id_: str, effect: Mapping[str, Any]) -> bool:
        """Write down `triedAt` and `as`, before a call or as its answer changed them.

        False if the effect is no longer pending.
        """
        changes = {f"pending.$.{name}": effect[name] for name in ("triedAt", "as")}
        condition = {"_id": id_, "epoch": self.epoch, "pending.id": effect["id"]}
        with translated():
            answer = self._collection.update_one(condition, {"$set": changes})
        return bool(answer.matched_count) or self._refuse_successor(id_)

    def give_up(self, id_: str, letter: Mapping[str, Any]) -> None:
        """Have the effect "dead letter" stand in the place of the send that it is about."""
        condition = {"_id": id_, "epoch": self.epoch, "pending.id": letter["id"]}
        with translated():
            try:
                answer = self._collection.update_one(condition, {"$set": {"pending.$": letter}})
            except OperationFailure as error:
                if error.code not in TOO_LARGE:
                    raise
                # The few bytes more find no room: then it stands there as a send to the end.
                return
        if answer.matched_count == 0:
            self._refuse_successor(id_)

    def remove(self, id_: str, effect_id: str) -> None:
        """Take a carried-out effect from the outbox; harmless if it is gone."""
        with translated():
            answer = self._collection.update_one(
                {"_id": id_, "epoch": self.epoch}, {"$pull": {"pending": {"id": effect_id}}}
            )
        if answer.matched_count == 0:
            self._refuse_successor(id_)

    @property
    def _mine(self) -> Document:
        """Not held by a successor; a conversation without an epoch is new."""
        return {"epoch": {"$lte": self.epoch}}

    def _update(
        self, document: Mapping[str, Any], decision: Decision, applied: list[str]
    ) -> Document:
        changes = {**named(document), **decision.changes}
        empty = {**NEW, "kind": None}
        update: Document = {
            "$set": {**changes, "epoch": self.epoch, "at": datetime.now(UTC)},
            "$setOnInsert": {k: v for k, v in empty.items() if k not in changes},
            "$inc": {"n": 1},
            "$push": {
                "applied": {"$each": applied, "$slice": -APPLIED},
                "pending": {"$each": decision.effects},
            },
        }
        return update

    def _settle(self, id_: str, name: str, message_id: str | None) -> Recorded | None:
        """What a record that did not match means; None: try it again (two first events met)."""
        with translated():
            found = self._collection.find_one({"_id": id_}, {"applied": 1, "epoch": 1, "unsent": 1})
        if found is None:
            return None
        if found["epoch"] > self.epoch:
            raise Replaced(f"a conversation belongs to epoch {found['epoch']}")
        if name in found["applied"]:
            return Recorded(adopted=self.adopt(id_))
        if message_id is not None and message_id in found.get("unsent", ()):
            return Recorded(unsent=True)
        return None

    def _refuse_successor(self, id_: str) -> bool:
        with translated():
            found = self._collection.find_one({"_id": id_}, {"epoch": 1})
        if found is not None and found["epoch"] > self.epoch:
            raise Replaced(f"a conversation belongs to epoch {found['epoch']}")
        return False


def named(document: Mapping[str, Any]) -> Document:
    """What a document says of its conversation: channel, key and, as far as it tells, kind.

    The kind is user, group or room, as LINE's source says.
    """
    names = {"channel": document["channel"], "key": document["key"]}
    source = document["event"].get("source")
    kind = source.get("type") if isinstance(source, Mapping) else None
    return {**names, "kind": kind} if isinstance(kind, str) else names
