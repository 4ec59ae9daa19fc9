"""The `conversations` collection: one document a conversation, every write guarded by the epoch.

Recording is the one atomic update that decides an event; an update that matches nothing is settled
by reading. The outbox, `pending`, is written only here. Whether MongoDB can hold what a handler
decided is checked before the record.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

import bson
from bson.errors import BSONError
from pymongo import ReturnDocument
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from jobworker.effects import is_timer, numbered
from jobworker.errors import BotError
from jobworker.record.record import epoch_of, n_of, still, unrecorded, update_of
from linedesk.store.client import DURABLE, MAJORITY
from linedesk.store.documents import Document, conversation_id, name_of
from linedesk.store.errors import Replaced, StoreUnavailable, WriteRefused, translated, writing_one
from linedesk.store.limits import MOST_LEVELS
from linedesk.store.records.effects import TRIED_AT
from linedesk.store.records.letters import DEADLETTER

SETTLE_TRIES = 5
# Profiles of group members kept in one conversation's document; the longest known go first.
MOST_MEMBERS = 200


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

    def profile_of(self, member: str | None) -> Document | None:
        """The profile of a member, or of the user or group that the conversation is with."""
        return self.profile if member is None else self.members.get(member)

    def fields(self) -> Document:
        """A copy of what a handler may change."""
        return {name: copy.deepcopy(getattr(self, name)) for name in self.FIELDS}


@dataclass(frozen=True)
class Decision:
    """What one event came to: everything that its record writes."""

    changes: Document
    effects: list[Document]
    read_n: int | None = None
    """The `n` of the conversation that it was decided by; None where that was not asked for."""
    gone: Sequence[str] = ()
    """Paths that its record takes away."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write: the event is finished without a record."""
        return not (self.changes or self.gone or self.effects)

    @property
    def sets_timers(self) -> bool:
        """Whether timers are set or cancelled, which the number of the record keeps in order."""
        return any(is_timer(one) for one in self.effects)

    def is_outdated_by(self, n: int) -> bool:
        """Whether it was decided by what the conversation was before its record of that number."""
        return self.read_n is not None and n > self.read_n

    def as_record(self, n: int) -> Decision:
        """The same as the conversation's record of that number, which its timers tell."""
        return replace(self, effects=numbered(self.effects, n))

    @property
    def given_up(self) -> Decision:
        """What is left of it where nothing may be carried out: that it was given up, if it was."""
        return Decision({}, [one for one in self.effects if one["type"] == DEADLETTER])


@dataclass(frozen=True)
class Recorded:
    """How a record ended: by this process's own write, or found done and adopted."""

    effects: Sequence[Document] = ()
    """What this very call wrote into the outbox."""
    adopted: Document | None = None
    """The conversation as stored, when its outbox holds what this process did not know of."""
    unsent: bool = False
    """A message of the events was taken back by its sender: nothing is recorded."""
    outdated: bool = False
    """Nothing is recorded: the conversation had been read before its last record."""
    along: bool = False
    """Found done, and so were the names given along with it."""

    @property
    def is_ours(self) -> bool:
        """Whether this very call wrote the record, the names given along with it included."""
        return self.adopted is None and not self.unsent

    @property
    def outbox(self) -> Sequence[Document]:
        """What is to be carried out from here on."""
        return self.effects if self.adopted is None else self.adopted.get("pending", ())


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
        gathered: Mapping[str, str | None] = MappingProxyType({}),
        adopted: bool = True,
    ) -> Recorded:
        """Decide the event, once and for all.

        Without `adopted` memory does not know what the conversation's outbox held before.

        `unsaved` names the key's events decided without a record since the last saved progress:
        they are applied along, so that none is decided again under the new state. Timers get
        the `n` that the conversation has by this record. What was decided by a state that is not
        the last one is not recorded: right after an election reads may lag behind. `gathered` names
        the events decided together with this one, with the ids of their messages: if any of them is
        applied or unsent, nothing is recorded.
        """
        id_, names = conversation_id(document), [name_of(document), *gathered]
        message_ids = [one for one in (message_id, *gathered.values()) if one is not None]
        condition = self._undecided(id_, names, message_ids)
        n = decision.read_n
        if n is None and decision.sets_timers:
            n = n_of(self._read(id_))
        for _ in range(SETTLE_TRIES):
            wanted = decision if n is None else decision.as_record(n + 1)
            try:
                # guard: applied-along ->
                #     before = self._write(document, wanted, {**condition, **still(n)}, names)
                # guard: number-of-the-record ->
                #     before = self._write(document, wanted, condition, [*unsaved, *names])
                before = self._write(
                    document, wanted, {**condition, **still(n)}, [*unsaved, *names]
                )
            except DuplicateKeyError:
                found = self._read(id_)
                settled = self._settled(id_, found, names, message_ids)
                if settled is not None:
                    along = found is not None and set(unsaved) <= set(found.get("applied") or ())
                    return replace(settled, along=along)
                if decision.read_n is None:
                    n = None if n is None else n_of(found)
                elif decision.is_outdated_by(n_of(found)):
                    return Recorded(outdated=True)
            except WriteRefused as error:
                raise self._waiting_for_room(id_, error) from error
            else:
                if before.get("pending") and not (
                    adopted  # guard: whole-outbox-first
                    and epoch_of(before) == self.epoch  # guard: older-epoch-is-seen
                ):
                    return Recorded(adopted=self.adopt(id_), along=True)
                return Recorded(wanted.effects)
        raise StoreUnavailable("the record is not settled: it may be waiting for a majority")

    def _undecided(self, id_: str, names: Sequence[str], message_ids: Sequence[str]) -> Document:
        """What the conversation is while these events may be recorded in it."""
        condition: Document = {
            "_id": id_,
            "applied": {"$nin": names},  # guard: decided-once
            **self._mine,  # guard: epoch-of-the-record
        }
        # guard: unsent-in-the-record
        if message_ids:
            condition["unsent"] = {"$nin": message_ids}
        return condition

    def _write(
        self,
        document: Mapping[str, Any],
        decision: Decision,
        condition: Document,
        applied: Sequence[str],
    ) -> Document:
        """Record it; the epoch and the outbox as they were before."""
        update = update_of(
            document,
            decision.changes,
            decision.effects,
            gone=decision.gone,
            applied=applied,
            epoch=self.epoch,
        )
        with writing_one():
            before: Document | None = self._collection.find_one_and_update(
                condition, update, {"epoch": 1, "pending.id": 1}, upsert=True
            )
        return before or {}

    def _waiting_for_room(self, id_: str, error: WriteRefused) -> StoreUnavailable:
        """What a refused record ends with: a wait, if the outbox takes the room and will leave."""
        with translated():
            waits = self._collection.find_one(
                {"_id": id_, "pending.0": {"$exists": True}}, {"n": 1}
            )
        if error.is_too_large and waits is not None:
            return StoreUnavailable("the outbox has to shrink before it holds more")
        return error

    def with_people(self, id_: str) -> Conversation | None:
        """What is known of its people; None where it is not held by this epoch."""
        wanted = {"profile": 1, "members": 1, "friend": 1, "n": 1}
        with translated():
            found = self._collection.find_one({"_id": id_, "epoch": self.epoch}, wanted)
        return None if found is None else Conversation.from_document(id_, found)

    def keep_profile(
        self, read: Conversation, member: str | None, profile: Document, *, drop: str | None = None
    ) -> bool:
        """Write what LINE told of a member, or of the user or group; `drop` is a member who goes.

        False where it finds no room, and where something was recorded since it was read: that may
        have been a `forget`.
        """
        place = "profile" if member is None else f"members.{member}"
        update: Document = {"$set": {place: profile}}
        if drop is not None:
            update["$unset"] = {f"members.{drop}": ""}
        condition = {
            "_id": read.id,
            "epoch": self.epoch,
            **still(read.n),  # guard: nothing-recorded-since
        }
        try:
            with writing_one():
                return bool(self._collection.update_one(condition, update).matched_count)
        except WriteRefused:
            return False

    def adopt(self, id_: str, document: Mapping[str, Any] | None = None) -> Document:
        """Set the epoch and return the conversation: no predecessor writes there from then on.

        With a recvq document of its own it is made where there is none yet, since a predecessor's
        record would make it.
        """
        update: Document = {"$set": {"epoch": self.epoch}}
        if document is not None:
            update["$setOnInsert"] = unrecorded(document)
        for _ in range(SETTLE_TRIES):
            try:
                with writing_one():
                    found: Document | None = self._collection.find_one_and_update(
                        {"_id": id_, **self._mine},
                        update,
                        upsert=document is not None,
                        return_document=ReturnDocument.AFTER,
                    )
            except DuplicateKeyError:
                # It is a successor's, or came between the look and the insert.
                self._refuse_successor(id_)
            else:
                if found is None:
                    raise Replaced(f"a conversation belongs to an epoch above {self.epoch}")
                return found
        raise StoreUnavailable("the conversation is not adopted: it may be waiting for a majority")

    def with_outbox(self) -> list[str]:
        """The ids of all conversations with an outbox, the oldest record first."""
        with translated():
            rows = self._collection.find({"pending.0": {"$exists": True}}, {"_id": 1})
            return [row["_id"] for row in rows.hint("pending").sort("at", 1)]

    def adopt_all(self, ids: Sequence[str]) -> Iterator[Document]:
        """Adopt conversations by one update; then each with its outbox, in no order."""
        these = {"_id": {"$in": list(ids)}}
        with writing_one():
            # guard: epoch-before-outbox ->
            #     early = list(self._collection.find(these, {"epoch": 1, "pending": 1}))
            #     mine = {**these, **self._mine}
            #     self._collection.update_many(mine, {"$set": {"epoch": self.epoch}})
            #     yield from early
            #     return
            self._collection.update_many({**these, **self._mine}, {"$set": {"epoch": self.epoch}})
            for row in self._collection.find(these, {"epoch": 1, "pending": 1}):
                self._refuse_above(row)
                if epoch_of(row) < self.epoch:
                    raise StoreUnavailable("right after an election a read may lag behind")
                yield row

    def note_try(self, id_: str, effect: Mapping[str, Any]) -> bool:
        """Write down `triedAt` and `as`, before a call or as its answer changed them.

        False if the effect is no longer pending.
        """
        changes = {f"pending.$.{name}": effect[name] for name in (TRIED_AT, "as")}
        condition = {"_id": id_, "epoch": self.epoch, "pending.id": effect["id"]}
        with writing_one():
            answer = self._collection.update_one(condition, {"$set": changes})
        return bool(answer.matched_count) or self._refuse_successor(id_)

    def give_up(self, id_: str, letter: Mapping[str, Any]) -> None:
        """Have the effect "dead letter" stand in the place of the send that it is about."""
        condition = {"_id": id_, "epoch": self.epoch, "pending.id": letter["id"]}
        try:
            with writing_one():
                answer = self._collection.update_one(condition, {"$set": {"pending.$": letter}})
        except WriteRefused:
            # The few bytes more find no room: then it stands there as a send to the end.
            return
        if answer.matched_count == 0:
            self._refuse_successor(id_)

    def remove(self, id_: str, *effect_ids: str) -> None:
        """Take carried-out effects from the outbox; harmless if they are gone."""
        gone = {"pending": {"id": {"$in": effect_ids}}}
        with writing_one():
            answer = self._collection.update_one({"_id": id_, "epoch": self.epoch}, {"$pull": gone})
        if answer.matched_count == 0:
            self._refuse_successor(id_)

    @property
    def _mine(self) -> Document:
        """Not held by a successor; one without an epoch was made by hand."""
        return {"epoch": {"$not": {"$gt": self.epoch}}}

    def _read(self, id_: str) -> Document | None:
        """What a record goes by."""
        wanted = {"applied": 1, "epoch": 1, "unsent": 1, "n": 1}
        with translated():
            return self._collection.find_one({"_id": id_}, wanted)

    def _settled(
        self, id_: str, found: Document | None, names: Sequence[str], message_ids: Sequence[str]
    ) -> Recorded | None:
        """What a record that did not match means; None: try it again.

        Two first events met, or a record of a predecessor's came between.
        """
        if found is None:
            return None
        self._refuse_above(found)
        if set(names) & set(found.get("applied") or ()):
            # guard: found-applied-adopts -> return Recorded()
            return Recorded(adopted=self.adopt(id_))
        if set(message_ids) & set(found.get("unsent") or ()):
            return Recorded(unsent=True)
        # guard: decided-by-none-again -> return Recorded(adopted=self.adopt(id_))
        return None

    def _refuse_successor(self, id_: str) -> bool:
        with translated():
            found = self._collection.find_one({"_id": id_}, {"epoch": 1})
        self._refuse_above(found or {})
        return False

    def _refuse_above(self, found: Mapping[str, Any]) -> None:
        if epoch_of(found) > self.epoch:
            raise Replaced(f"a conversation belongs to epoch {found['epoch']}")


# State, data and outbox together must stay well below MOST_DOCUMENT_BYTES.
MOST_RECORD_BYTES = 2 * 1024 * 1024
NOT_STORABLE = "cannot be stored"


def checked(decision: Decision) -> Decision:
    """The decision itself. Raises BotError for what MongoDB could not hold."""
    if decision.is_empty:
        return decision
    if _nests_deeper([decision.changes, decision.effects], MOST_LEVELS):
        raise BotError(
            f"state or messages nested deeper than {MOST_LEVELS} levels", reason=NOT_STORABLE
        )
    try:
        size = len(bson.encode({"changes": decision.changes, "effects": decision.effects}))
    except (BSONError, OverflowError, TypeError, ValueError) as error:
        raise BotError(
            f"state or messages that MongoDB cannot hold: {error}", reason=NOT_STORABLE
        ) from error
    if size > MOST_RECORD_BYTES:
        raise BotError(
            f"{size} bytes of state and messages, at most {MOST_RECORD_BYTES}", reason=NOT_STORABLE
        )
    return decision


def _nests_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, (Mapping, list, tuple)):
        return False
    parts = value.values() if isinstance(value, Mapping) else value
    return levels == 0 or any(_nests_deeper(part, levels - 1) for part in parts)
