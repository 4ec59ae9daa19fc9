"""The `conversations` collection: one document a conversation, every write guarded by the epoch.

The record is the one atomic update that decides an event; an update without a match is settled by
reading. The outbox and the call under way are written here. Two modules also write them:
`jobworker.record.batches` for calls with sends of several conversations, and
`jobworker.record.waiting_answers` for answers that waited too long for a tap. Before the record it
is checked whether MongoDB can store the decision.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from types import MappingProxyType
from typing import Any

import bson
import pymongo
from bson.errors import BSONError
from pymongo import ReturnDocument
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from jobworker.effects import Call, is_timer
from jobworker.errors import BotError
from jobworker.latest import Latest
from jobworker.record.cache import ConversationCache
from jobworker.record.group_commit import GroupCommit, GroupUpdate
from jobworker.record.record import APPLIED, epoch_of, n_of, still, unrecorded, update_of
from linedesk.store.client import aware_options, durable
from linedesk.store.documents import Document, conversation_id, name_of
from linedesk.store.errors import Replaced, StoreUnavailable, WriteRefused, translated, writing_one
from linedesk.store.limits import MOST_LEVELS, nests_deeper
from linedesk.store.records.answers import ANSWERS
from linedesk.store.records.conversations import NAME_PARTS
from linedesk.store.records.effects import (
    CALL,
    OUTBOX,
    OUTBOX_PAIRS,
    WITH_OUTBOX,
    effects_of,
    place_of,
)
from linedesk.store.records.letters import DEADLETTER

log = logging.getLogger(__name__)

# An effect and its place in the outbox.
Placed = tuple[str, Document]

OPTIONS = aware_options()
SETTLE_TRIES = 5
# Conversations whose number of names is known.
MOST_COUNTED = 20_000
FIRST_NUMBER = 0
# The places of an outbox without its effects, as a projection.
PLACES = {"$map": {"input": OUTBOX_PAIRS, "in": "$$this.k"}}
OLDEST = datetime.min.replace(tzinfo=UTC)
# Profiles of group members kept in one conversation's document; the oldest are removed first.
MOST_MEMBERS = 200


@dataclass
class Conversation:
    """The part of a conversation that a handler may see and change, loaded for one event."""

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
    answers: Mapping[str, Any] = field(default_factory=dict)
    """Answers that wait for a tap, or did (`linedesk.store.records.answers`)."""

    FIELDS = ("profile", "friend", "state", "until", "data", "members", "states")
    FOR_DECISIONS = (*FIELDS, ANSWERS)
    """The fields on which a decision may depend, besides `n`."""

    @classmethod
    def from_document(cls, id_: str, document: Mapping[str, Any] | None) -> Conversation:
        """Return the conversation as stored; an empty one if there is none yet."""
        found = document or {}
        known = {name: found[name] for name in cls.FIELDS if found.get(name) is not None}
        return cls(
            id=id_,
            n=found.get("n", 0),
            applied=found.get("applied", ()),
            unsent=found.get("unsent", ()),
            answers=found.get(ANSWERS) or {},
            **known,
        )

    def profile_of(self, member: str | None) -> Document | None:
        """Return the profile of a member, or of the user or group of the conversation."""
        return self.profile if member is None else self.members.get(member)

    def fields(self) -> dict[str, bytes]:
        """Return the fields that a handler may change, each as BSON. Raises BotError for a value
        that MongoDB cannot hold.
        """
        return {name: as_bson(getattr(self, name)) for name in self.FIELDS}


@dataclass(frozen=True)
class Decision:
    """The result of one event: all that its record writes."""

    changes: Document
    effects: list[Document]
    read_n: int | None = None
    """The `n` of the conversation on which it is based; None if that does not matter."""
    gone: Sequence[str] = ()
    """Paths that its record removes."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write: the event is finished without a record."""
        return not (self.changes or self.gone or self.effects)

    @property
    def sets_timers(self) -> bool:
        """Whether timers are set or cancelled; the number of the record keeps them in order."""
        return any(is_timer(one) for one in self.effects)

    def is_outdated_by(self, n: int) -> bool:
        """Whether it is based on the conversation before its record of that number."""
        return self.read_n is not None and n > self.read_n

    def as_record(self, n: int) -> Decision:
        """Return it as the conversation's record of that number, which its timers get."""
        effects = [{**one, "n": n} if is_timer(one) else one for one in self.effects]
        return replace(self, effects=effects)

    @property
    def given_up(self) -> Decision:
        """Return the rest of it if no effect may be carried out: only that it was given up, if it
        was.
        """
        return Decision({}, [one for one in self.effects if one["type"] == DEADLETTER])


@dataclass(frozen=True)
class Recorded:
    """How a record ended: by this process's own write, or found done and adopted."""

    effects: Sequence[Placed] = ()
    """The effects that this call wrote into the outbox."""
    adopted: Document | None = None
    """The conversation as stored, if its outbox holds effects unknown to this process."""
    unsent: bool = False
    """The sender took a message of the events back: nothing is recorded."""
    outdated: bool = False
    """Nothing is recorded: the conversation was read before its last record."""
    along: bool = False
    """It was found done, including the names passed along."""
    is_noted: bool = False
    """Its call is stored with it."""

    @property
    def is_ours(self) -> bool:
        """Whether this call wrote the record, including the names passed along."""
        return self.adopted is None and not self.unsent

    @property
    def outbox(self) -> Outbound:
        """Return the effects to carry out from now on."""
        return Outbound(self.effects) if self.adopted is None else Outbound.of(self.adopted)


@dataclass(frozen=True)
class Claim:
    """A conversation's first sends are part of a batch (`jobworker.record.batches`)."""

    key: str
    places: Sequence[str]


@dataclass(frozen=True)
class Outbound:
    """The effects of a conversation to carry out, in order."""

    effects: Sequence[Placed] = ()
    call: Call | Claim | None = None
    """A predecessor's call, made or possibly made."""

    @classmethod
    def of(cls, conversation: Mapping[str, Any]) -> Outbound:
        """Return all effects in a conversation that was adopted."""
        call = conversation.get("call")
        try:
            if call is not None and "batch" in call:
                call = Claim(call["batch"], tuple(call["members"]))
            elif call is not None:
                call = Call.from_document(call)
        except (KeyError, TypeError, ValueError):
            # Edited by hand, since linedesk writes it completely.
            log.exception("broken call left in the outbox conversation=%s", conversation["_id"])
            call = None
        return cls(effects_of(conversation), call)


@dataclass(frozen=True)
class NotedCall:
    """A call that can follow its record at once, and is stored with it: no write between them."""

    effects: Sequence[Placed]
    """All effects of the record, with their places."""
    call: Call
    seconds: float
    """How long the write may take; afterwards the record is made without the call."""


class EndTakenAlong:
    """The end of a conversation's last call, as part of another update; None if it is durable
    already.
    """

    def __init__(self, left: GroupUpdate | None) -> None:
        self._at = None if left is None else left.condition["call.at"]
        self.gone: Document = {} if left is None else {**left.update["$unset"]}
        """The paths of the sends that leave the outbox by it."""
        self.gone.pop(CALL, None)

    def no_other_call(self, stray: datetime | None = None) -> Document:
        """The condition that no call is stored but the ended one, and one that was written late."""
        # guard: no-call-stands -> return {}
        return {"call.at": {"$in": [None, self._at, stray]}}

    def joined(self, update: Document) -> Document:
        """Return an update that sets `call`, with the end."""
        gone = {**update.get("$unset", {}), **self.gone}
        return {**update, "$unset": gone} if self.gone else update


class Noted(Enum):
    """The result of noting a call."""

    NOTED = "noted"
    GONE = "gone"
    """Its first send has left the outbox."""
    TOO_MANY_LATE = "too many late"
    """The conversation has used up its late replies of the day."""


@dataclass(frozen=True)
class LateCall:
    """A late reply; a conversation has a limited number a day.

    The field `late` has the last day with one, and their number.
    """

    day: str
    most: int

    @property
    def condition(self) -> Document:
        """The condition that the conversation has one left."""
        return {"$or": [{"late.day": {"$ne": self.day}}, {"late.calls": {"$lt": self.most}}]}

    @property
    def count(self) -> Document:
        """The update of a pipeline: one more, or the first one of another day."""
        today = {"$cond": [{"$eq": ["$late.day", self.day]}, "$late.calls", 0]}
        return {"late": {"day": self.day, "calls": {"$add": [today, 1]}}}

    def is_used_up(self, conversation: Mapping[str, Any]) -> bool:
        """Whether the conversation has none left."""
        late = conversation.get("late") or {}
        return late.get("day") == self.day and late.get("calls", 0) >= self.most


class NameCounts:
    """The highest possible number of names in `applied` for recently written conversations.

    A record removes the oldest names where there may be twice as many as are kept.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = Latest[str, int](MOST_COUNTED)

    def learn(self, id_: str, count: int) -> None:
        """Note how many were read."""
        with self._lock:
            self._counts[id_] = count

    def trims(self, id_: str, more: int) -> bool:
        """Whether a record with this many more removes the oldest; also if their number is
        unknown.
        """
        with self._lock:
            count = self._counts.get(id_, 2 * APPLIED) + more
            is_full = count > 2 * APPLIED
            self._counts[id_] = APPLIED if is_full else count
            return is_full


class Conversations:
    """Reads and writes for the holder of one epoch.

    Every method raises StoreUnavailable when MongoDB does not confirm in time, and Replaced when
    the conversation has a higher epoch.
    """

    def __init__(self, collection: Collection[Any]) -> None:
        self._collection = durable(collection)
        self._together = GroupCommit(self._collection)
        self._cache = ConversationCache()
        self._names = NameCounts()
        self.epoch = 0
        self._numbers = itertools.count(FIRST_NUMBER)

    def load(self, document: Mapping[str, Any]) -> Conversation:
        """Return the conversation of a recvq document, for a decision; a copy in memory may have
        it. Names in `applied` and `unsent` are not loaded.
        """
        id_ = conversation_id(document)
        changes = self._cache.changes
        found = self._cache.get(id_)
        if found is None:
            wanted = Conversation.FOR_DECISIONS
            with translated():
                found = self._collection.find_one({"_id": id_}, (*wanted, "n"))
            if found is None:
                # Not made yet: no names of events are removed for some time.
                self._names.learn(id_, 0)
                found = {}
            fields = {name: found[name] for name in wanted if name in found}
            self._cache.put(id_, fields, n_of(found), changes=changes)
        return Conversation.from_document(id_, found)

    def read(self, document: Mapping[str, Any]) -> Conversation:
        """Return the conversation of a recvq document as MongoDB has it now."""
        id_ = conversation_id(document)
        with translated():
            hidden = {"outbox": 0, NAME_PARTS: 0}
            found = self._collection.find_one({"_id": id_}, hidden)
        return Conversation.from_document(id_, found)

    def forget(self, id_: str) -> None:
        """Read it again before its next decision: it was changed, or may have been."""
        self._cache.forget(id_)

    def placed(self, effects: Iterable[Document]) -> list[Placed]:
        """Return effects with their places in the outbox."""
        return [(self.next_place(), one) for one in effects]

    def record(
        self,
        document: Mapping[str, Any],
        decision: Decision,
        *,
        unsaved: Sequence[str],
        message_id: str | None,
        gathered: Mapping[str, str | None] = MappingProxyType({}),
        adopted: bool = True,
        noted: NotedCall | None = None,
        alone: bool = False,
    ) -> Recorded:
        """Decide the event permanently.

        Without `adopted` this process does not know the earlier contents of the conversation's
        outbox.

        `unsaved` names the key's events decided without a record since the last saved progress.
        They are applied as well, so that none is decided again under the new state. Timers get the
        `n` that the conversation has by this record. A decision based on a state other than the
        last one is not recorded: right after an election reads may lag behind. `gathered` names the
        events decided together with this one, with the ids of their messages. If any of them is
        applied or unsent, nothing is recorded.

        With `noted` it is recorded together with that call if possible, so that LINE can be called
        at once. `alone` shares no command with other conversations, which would wait if MongoDB
        does not confirm this one.
        """
        id_ = conversation_id(document)
        copy, recorded = self._cache.copy_of(id_), None
        try:
            with nullcontext() if noted is None else pymongo.timeout(noted.seconds):
                recorded = self._recorded(
                    document, decision, unsaved, message_id, gathered, adopted, noted, alone
                )
        finally:
            if recorded is not None and recorded.is_ours and not recorded.outdated:
                self._cache.recorded(id_, copy, decision.changes, decision.gone)
            else:
                self._cache.forget(id_)
        return recorded

    def _recorded(
        self,
        document: Mapping[str, Any],
        decision: Decision,
        unsaved: Sequence[str],
        message_id: str | None,
        gathered: Mapping[str, str | None],
        adopted: bool,
        noted: NotedCall | None,
        alone: bool,
    ) -> Recorded:
        id_, names = conversation_id(document), [name_of(document), *gathered]
        message_ids = [one for one in (message_id, *gathered.values()) if one is not None]
        condition = self._undecided(id_, names, message_ids)
        n = decision.read_n
        if n is None and decision.sets_timers:
            n = self._cache.n_of(id_)
            n = n_of(self.refuse_successor(id_)) if n is None else n
        # guard: applied-along -> applied = names
        applied = [*unsaved, *names]
        found: Document = {}
        for tries in range(SETTLE_TRIES):
            wanted = decision if n is None else decision.as_record(n + 1)
            # guard: number-of-the-record -> as_read = condition
            as_read = {**condition, **still(n)}
            # Behind the places of a record that came in between.
            placed = noted.effects if noted is not None and not tries else None
            effects = self.placed(wanted.effects) if placed is None else placed
            update = update_of(
                document,
                wanted.changes,
                effects,
                gone=wanted.gone,
                applied=applied,
                trims=self._names.trims(id_, len(applied)),
                epoch=self.epoch,
            )
            try:
                if not (tries or alone) and self._written_together(
                    as_read, update, adopted=adopted, noted=noted
                ):
                    return Recorded(effects, is_noted=noted is not None)
                before = self._write(as_read, update)
            except DuplicateKeyError:
                found = self.refuse_successor(id_)
                settled = self._settled(id_, found, names, message_ids)
                if settled is not None:
                    along = set(unsaved) <= set(found.get("applied") or ())
                    return replace(settled, along=along)
                if decision.read_n is None:
                    n = None if n is None else n_of(found)
                elif decision.is_outdated_by(n_of(found)):
                    return Recorded(outdated=True)
            except WriteRefused as error:
                raise self._waiting_for_room(id_, error) from error
            else:
                if before.get("waits") and not (
                    adopted  # guard: whole-outbox-first
                    and epoch_of(before) == self.epoch  # guard: older-epoch-is-seen
                ):
                    return Recorded(adopted=self.adopt(id_), along=True)
                return Recorded(effects)
        if decision.read_n not in (None, n_of(found)):
            # Decreased by hand.
            return Recorded(outdated=True)
        raise StoreUnavailable("the record is not settled: it may be waiting for a majority")

    def _undecided(self, id_: str, names: Sequence[str], message_ids: Sequence[str]) -> Document:
        """Return the condition under which these events may be recorded in the conversation."""
        condition: Document = {
            "_id": id_,
            "applied": {"$nin": names},  # guard: decided-once
            **self.mine,  # guard: epoch-of-the-record
        }
        # guard: unsent-in-the-record
        if message_ids:
            condition["unsent"] = {"$nin": message_ids}
        return condition

    def _write(self, condition: Document, update: Document) -> Document:
        """Record it; returns the earlier epoch, and whether the outbox was not empty before."""
        with writing_one():
            before: Document | None = self._collection.find_one_and_update(
                condition, update, {"epoch": 1, "waits": {"$gt": ["$outbox", {}]}}, upsert=True
            )
        return before or {}

    def _written_together(
        self,
        condition: Document,
        update: Document,
        *,
        adopted: bool,
        noted: NotedCall | None,
    ) -> bool:
        """Record it with others in one command; returns whether that is certain.

        Then the whole outbox of the conversation is known in memory.
        """
        if adopted:
            condition = {**condition, "epoch": self.epoch}
            update = {name: part for name, part in update.items() if name != "$setOnInsert"}
        else:
            # guard: outbox-is-empty
            condition = {**condition, OUTBOX: {"$in": [None, {}]}}
        if noted is None:
            return self._together.update(condition, update, upsert=not adopted)
        with self._together.taken(condition["_id"]) as left:
            end = EndTakenAlong(left)
            condition |= end.no_other_call()
            call = noted.call.as_document()
            update = {**update, "$set": {**update["$set"], CALL: call}}
            # guard: ends-join-the-record
            update = end.joined(update)
            is_certain = self._together.update(
                condition, update, upsert=not adopted, seconds=noted.seconds
            )
            if left is not None and is_certain:
                left.is_durable = True
            return is_certain

    def next_place(self) -> str:
        """Return the place in an outbox of the next effect that is recorded. Places sort in the
        order of recording, because MongoDB stores several new fields of one update in the order of
        their names.
        """
        return place_of(self.epoch, next(self._numbers))

    def _waiting_for_room(self, id_: str, error: WriteRefused) -> StoreUnavailable:
        """Return the error for a refused record: a wait, if the outbox takes the room and will
        shrink.
        """
        with translated():
            waits = self._collection.find_one({"_id": id_, **WITH_OUTBOX}, {"n": 1})
        if error.is_too_large and waits is not None:
            return StoreUnavailable("the outbox has to shrink before it holds more")
        return error

    def with_people(self, id_: str) -> Conversation | None:
        """Return its personal data; None if this epoch does not hold it."""
        wanted = {"profile": 1, "members": 1, "friend": 1, "n": 1}
        with translated():
            found = self._collection.find_one({"_id": id_, "epoch": self.epoch}, wanted)
        return None if found is None else Conversation.from_document(id_, found)

    def keep_profile(
        self, read: Conversation, member: str | None, profile: Document, *, drop: str | None = None
    ) -> bool:
        """Write the profile that LINE returned for a member, or for the user or group; `drop` is a
        member to remove.

        False if there is no room, and if an event was recorded since it was read: that may have
        been a `forget`.
        """
        place = "profile" if member is None else f"members.{member}"
        gone = [] if drop is None else [f"members.{drop}"]
        known = read.profile_of(member) or {}
        if gone or known.get("displayName") != profile.get("displayName"):
            gone.append(NAME_PARTS)
        update: Document = {"$set": {place: profile}}
        if gone:
            update["$unset"] = dict.fromkeys(gone, "")
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
        finally:
            self.forget(read.id)

    def adopt(self, id_: str, document: Mapping[str, Any] | None = None) -> Document:
        """Set the epoch and return the conversation: no predecessor can write it from then on.

        With a recvq document a missing conversation is created, since a predecessor's record would
        create it.
        """
        update: Document = {"$set": {"epoch": self.epoch}}
        if document is not None:
            update["$setOnInsert"] = unrecorded(document)
        for _ in range(SETTLE_TRIES):
            try:
                with writing_one():
                    found: Document | None = self._collection.find_one_and_update(
                        {"_id": id_, **self.mine},
                        update,
                        upsert=document is not None,
                        return_document=ReturnDocument.AFTER,
                    )
            except DuplicateKeyError:
                # It is a successor's, or was inserted after the look-up.
                self.refuse_successor(id_)
            else:
                if found is None:
                    raise Replaced(f"a conversation belongs to an epoch above {self.epoch}")
                self._names.learn(id_, len(found.get("applied") or ()))
                # A predecessor may have recorded after it was read.
                self.forget(id_)
                return found
        raise StoreUnavailable("the conversation is not adopted: it may be waiting for a majority")

    def with_outbox(self) -> list[str]:
        """Return the ids of all conversations with an outbox, the oldest record first."""
        with translated():
            rows = list(self._collection.find(WITH_OUTBOX, {"at": 1}).hint("outbox"))
        # One created by hand may have none.
        rows.sort(key=lambda row: row["at"] if isinstance(row.get("at"), datetime) else OLDEST)
        return [row["_id"] for row in rows]

    def adopt_all(self, ids: Sequence[str]) -> None:
        """Adopt conversations by one update."""
        with writing_one():
            self._collection.update_many(
                {"_id": {"$in": list(ids)}, **self.mine}, {"$set": {"epoch": self.epoch}}
            )
        for id_ in ids:
            self.forget(id_)

    def adopted(self, ids: Sequence[str]) -> Iterator[Document]:
        """Return adopted conversations, each with its outbox, in no order."""
        wanted = {"epoch": 1, "outbox": 1, "call": 1}
        with translated():
            for row in self._collection.find({"_id": {"$in": list(ids)}}, wanted):
                self._refuse_above(row)
                if epoch_of(row) < self.epoch:
                    raise StoreUnavailable("right after an election a read may lag behind")
                yield row

    # The outbox.

    def note_call(
        self,
        id_: str,
        call: Call,
        late: LateCall | None = None,
        *,
        seconds: float | None = None,
        instead: Call | None = None,
    ) -> Noted:
        """Store the call that is made next, and count it if it is a late reply. `instead` is one
        that is stored and was not made.

        A stored call remains: another one of this process may be under way, and this write may be
        late. A call unknown in memory was itself written late, and is replaced. A `pymongo.timeout`
        around it should have these `seconds`.
        """
        with self._together.taken(id_) as left:
            stray = None if instead is None else instead.at
            noted = self._noted(id_, call, late, EndTakenAlong(left), seconds, stray)
            if left is not None and noted is Noted.NOTED:
                left.is_durable = True
            return noted

    def _noted(
        self,
        id_: str,
        call: Call,
        late: LateCall | None,
        end: EndTakenAlong,
        seconds: float | None,
        stray: datetime | None,
    ) -> Noted:
        first = call.members[0]
        condition: Document = {"_id": id_, "epoch": self.epoch, **there([first])}
        update: Any = {"$set": {CALL: call.as_document()}}
        # guard: ends-join-the-note
        update = end.joined(update)
        # The update that counts a late reply cannot be repeated.
        if late is None and self._together.update(
            {**condition, **end.no_other_call(stray)}, update, seconds=seconds
        ):
            return Noted.NOTED
        if late is not None:
            condition |= late.condition
            update = [{"$set": {CALL: {"$literal": call.as_document()}, **late.count}}]
            update += [{"$unset": list(end.gone)}] if end.gone else []
        for _ in range(SETTLE_TRIES):
            with writing_one():
                free = end.no_other_call(stray)
                if self._collection.update_one({**condition, **free}, update).matched_count:
                    return Noted.NOTED
            found = self.refuse_successor(id_)
            if first not in (found.get("places") or ()):
                return Noted.GONE
            if late is not None and late.is_used_up(found):
                return Noted.TOO_MANY_LATE
            stray = (found.get(CALL) or {}).get("at")
        raise StoreUnavailable("the call is not written down: it may be waiting for a majority")

    def end_later(self, id_: str, call: Call) -> bool:
        """Leave the end of a call that LINE has accepted to the next command. False if too many
        are left.

        A process that dies first leaves a call of unknown outcome, whose token or key proves it.
        """
        gone = dict.fromkeys((f"outbox.{place}" for place in call.members), "")
        condition = {"_id": id_, "epoch": self.epoch, **_is_stored(call)}
        return self._together.leave(condition, {"$unset": {CALL: "", **gone}})

    def has_end(self, id_: str) -> bool:
        """Whether the end of a call is not durable yet."""
        return self._together.has_left(id_)

    def write_ends(self) -> bool:
        """Write the ends that are left; returns whether some still are."""
        return self._together.write_left(self._write_end)

    def _write_end(self, end: GroupUpdate) -> None:
        id_, gone = end.condition["_id"], EndTakenAlong(end).gone
        mine = {"_id": id_, "epoch": self.epoch}
        with writing_one():
            if self._collection.update_one(end.condition, end.update).matched_count:
                return
            # It was written already, or another call has replaced its own.
            if self._collection.update_one(mine, {"$unset": gone}).matched_count:
                return
        self.refuse_successor(id_)

    def end_call(
        self, id_: str, call: Call, *, done: Sequence[str] = (), used_up: Sequence[str] = ()
    ) -> None:
        """End a call with LINE's verdict: finished sends leave, used tokens are marked, both by
        place. The rest is free for another call.
        """
        gone = dict.fromkeys((f"outbox.{place}" for place in done), "")
        update: Document = {"$unset": {"call": "", **gone}}
        if used_up:
            update["$set"] = dict.fromkeys((f"outbox.{place}.token" for place in used_up), None)
        self._end(id_, call, used_up, update)

    def give_up(
        self, id_: str, letters: Mapping[str, Mapping[str, Any]], call: Call | None = None
    ) -> None:
        """Replace effects in their places by effects "dead letter".

        That ends their call, if there was one.
        """
        update: Document = {"$set": {f"outbox.{place}": one for place, one in letters.items()}}
        if call is not None:
            update["$unset"] = {"call": ""}
        # If the few additional bytes do not fit, they remain unchanged until the end.
        with suppress(WriteRefused):
            self._end(id_, call, letters, update)

    def put_back(self, id_: str, place: str, name: str, entry: Mapping[str, Any]) -> bool:
        """Move a send from the outbox to the entry of that name in `answers`.

        False if there is no such entry, so no tap would bring it; then it stays.
        """
        answer = f"{ANSWERS}.{name}"
        condition = {"_id": id_, "epoch": self.epoch, **there([place]), answer: {"$exists": True}}
        update = {"$set": {answer: entry}, "$unset": {f"outbox.{place}": ""}}
        try:
            with writing_one():
                if self._collection.update_one(condition, update).matched_count:
                    return True
        finally:
            self.forget(id_)
        return place not in (self.refuse_successor(id_).get("places") or ())

    def _end(self, id_: str, call: Call | None, places: Iterable[str], update: Document) -> None:
        condition = {"_id": id_, "epoch": self.epoch, **there(places)}
        if call is not None:
            # A late write must not end a later call.
            condition |= _is_stored(call)
        if not self._together.update(condition, update):
            with writing_one():
                answer = self._collection.update_one(condition, update)
            if answer.matched_count == 0:
                self.refuse_successor(id_)

    def remove(self, id_: str, *places: str) -> None:
        """Remove carried-out effects from the outbox; harmless if they are gone."""
        gone = dict.fromkeys((f"outbox.{place}" for place in places), "")
        self._end(id_, None, (), {"$unset": gone})

    @property
    def mine(self) -> Document:
        """The condition that no successor holds it; one without an epoch was created by hand."""
        return {"epoch": {"$not": {"$gt": self.epoch}}}

    def _settled(
        self, id_: str, found: Document, names: Sequence[str], message_ids: Sequence[str]
    ) -> Recorded | None:
        """Return the result of a record that did not match; None: try it again.

        Two first events may have met, or a predecessor's record came in between.
        """
        if set(names) & set(found.get("applied") or ()):
            # guard: found-applied-adopts -> return Recorded()
            return Recorded(adopted=self.adopt(id_))
        if set(message_ids) & set(found.get("unsent") or ()):
            return Recorded(unsent=True)
        # guard: decided-by-none-again -> return Recorded(adopted=self.adopt(id_))
        return None

    def refuse_successor(self, id_: str) -> Document:
        """Return the fields that a record or a call depends on; none without a conversation.
        Raises Replaced for a successor's.
        """
        names = ("applied", "epoch", "unsent", "n", "call.at", "late")
        wanted = {**dict.fromkeys(names, 1), "places": PLACES}
        with translated():
            found: Document = self._collection.find_one({"_id": id_}, wanted) or {}
        self._refuse_above(found)
        return found

    def _refuse_above(self, found: Mapping[str, Any]) -> None:
        if epoch_of(found) > self.epoch:
            raise Replaced(f"a conversation belongs to epoch {found['epoch']}")


def _is_stored(call: Call) -> Document:
    """The condition that this call is the stored one; its members may have become fewer. A claim
    for a batch has no key of its own.
    """
    key = {"$in": [call.key, None]}
    return {"call.at": call.at, "call.key": key, "call.token": call.token}


def there(places: Iterable[str]) -> Document:
    """The condition that effects are in the outbox: a late write must not recreate them."""
    return {f"outbox.{place}": {"$exists": True} for place in places}


# State, data and outbox together must stay well below MOST_DOCUMENT_BYTES.
MOST_RECORD_BYTES = 2 * 1024 * 1024
NOT_STORABLE = "cannot be stored"


def checked(decision: Decision) -> Decision:
    """Return the decision itself. Raises BotError if MongoDB could not store it."""
    if decision.is_empty:
        return decision
    if nests_deeper([decision.changes, decision.effects], MOST_LEVELS):
        raise BotError(
            f"state or messages nested deeper than {MOST_LEVELS} levels", reason=NOT_STORABLE
        )
    size = len(as_bson({"changes": decision.changes, "effects": decision.effects}))
    if size > MOST_RECORD_BYTES:
        raise BotError(
            f"{size} bytes of state and messages, at most {MOST_RECORD_BYTES}", reason=NOT_STORABLE
        )
    return decision


def as_bson(value: Any) -> bytes:
    """Return a value as BSON. Raises BotError if MongoDB cannot hold it."""
    try:
        return bson.encode({"": value})
    except (BSONError, OverflowError, TypeError, ValueError, RecursionError) as error:
        raise BotError(
            f"state or messages that MongoDB cannot hold: {error}", reason=NOT_STORABLE
        ) from error


def from_bson(raw: bytes) -> Any:
    """Return a new copy of the value of `as_bson`."""
    return bson.decode(raw, OPTIONS)[""]
