"""The `conversations` collection: one document a conversation, written in the leader's groups.

The record is the one write that decides an event. The outbox and the call under way are written
here. Two modules also write them: `jobworker.record.batches` for calls with sends of several
conversations, and `jobworker.record.waiting_answers` for answers that wait for a tap. Before the
record it is checked whether MongoDB can store the decision.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from types import MappingProxyType
from typing import Any

import bson
from bson.errors import BSONError

from dispatcher.commit.committer import WAIT_SECONDS, Change, Committer, Write
from dispatcher.conversations.conversations import OPTIONS, Conversation, Conversations, Stored
from jobworker.effects import Call, is_timer
from jobworker.errors import BotError
from jobworker.record.record import APPLIED, n_of, still, unrecorded, update_of
from linedesk.store.documents import CONVERSATIONS, Document, conversation_id, name_of
from linedesk.store.errors import StoreUnavailable, WriteRefused, translated
from linedesk.store.limits import MOST_LEVELS, nests_deeper
from linedesk.store.records.answers import ANSWERS
from linedesk.store.records.conversations import EDITS
from linedesk.store.records.effects import (
    CALL,
    OUTBOX_PAIRS,
    WITH_OUTBOX,
    effects_of,
    place_of,
)
from linedesk.store.records.letters import DEADLETTER

log = logging.getLogger(__name__)

# An effect and its place in the outbox.
Placed = tuple[str, Document]

FIRST_NUMBER = 0
# The places of an outbox without its effects, as a projection.
PLACES = {"$map": {"input": OUTBOX_PAIRS, "in": "$$this.k"}}
STARTED = "started"
"""By the name of the bot's `start_timers`, when that was ordered for the conversation."""
OLDEST = datetime.min.replace(tzinfo=UTC)
# Profiles of group members kept in one conversation's document; the oldest are removed first.
MOST_MEMBERS = 200


@dataclass
class StoredConversation:
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

    edits: Mapping[str, int] = field(default_factory=dict)
    """See `jobworker.record.edits`."""

    FIELDS = ("profile", "friend", "state", "until", "data", "members", "states")
    FOR_DECISIONS = (*FIELDS, ANSWERS, EDITS)
    """The fields on which a decision may depend, besides `n`."""

    @classmethod
    def from_document(cls, id_: str, document: Mapping[str, Any] | None) -> StoredConversation:
        """Return the conversation as stored; an empty one if there is none yet."""
        found = document or {}
        known = {name: found[name] for name in cls.FIELDS if found.get(name) is not None}
        return cls(
            id=id_,
            n=found.get("n", 0),
            applied=found.get("applied", ()),
            unsent=found.get("unsent", ()),
            answers=found.get(ANSWERS) or {},
            edits=found.get(EDITS) or {},
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
    def to_carry_out(self) -> list[Document]:
        """The effects for the outbox."""
        return [one for one in self.effects if one["type"] != DEADLETTER]

    @property
    def letters(self) -> list[Document]:
        """The dead letters among the effects: rows of `deadletters`, and never in an outbox."""
        return [one for one in self.effects if one["type"] == DEADLETTER]

    @property
    def given_up(self) -> Decision:
        """Return the rest of it if no effect may be carried out: only that it was given up, if it
        was.
        """
        return Decision({}, self.letters)


@dataclass(frozen=True)
class Recorded:
    """How a record ended. Nothing is recorded if it was found applied, unsent or outdated."""

    effects: Sequence[Placed] = ()
    """The effects that it wrote into the outbox."""
    call: Call | None = None
    """The call that is stored with it."""
    applied: Iterable[str] = ()
    """The names in `applied`, if one of its events is among them."""
    unsent: bool = False
    """The sender took a message of the events back."""
    outdated: bool = False
    """The conversation was read before its last record."""


@dataclass(frozen=True)
class Recording:
    """A record on its way to MongoDB."""

    id: str
    names: Sequence[str]
    message_ids: Sequence[str]
    decision: Decision
    effects: Sequence[Placed]
    call: Call | None
    stored: Stored | None
    """The conversation's state in memory before it."""
    write: Write


@dataclass(frozen=True)
class Outbound:
    """The effects of a conversation to carry out, in order."""

    effects: Sequence[Placed] = ()
    call: Call | None = None
    """The call that is stored with them."""
    is_tried: bool = True
    """Whether it was made, or may have been: by a predecessor."""
    batch: str | None = None
    """The key of a batch that has its first sends (`jobworker.record.batches`)."""

    @classmethod
    def of(cls, conversation: Mapping[str, Any]) -> Outbound:
        """Return all effects in a conversation that a predecessor left."""
        call = conversation.get("call")
        try:
            if call is not None and "batch" in call:
                return cls(effects_of(conversation), batch=str(call["batch"]))
            if call is not None:
                call = Call.from_document(call)
        except (KeyError, TypeError, ValueError):
            # Edited by hand, since linedesk writes it completely.
            log.exception("broken call left in the outbox conversation=%s", conversation["_id"])
            call = None
        return cls(effects_of(conversation), call)


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


class ConversationStore:
    """Reads and writes of the leader.

    Every method raises StoreUnavailable when MongoDB does not confirm in time, and Replaced when
    this process was replaced.
    """

    def __init__(self, committer: Committer, known: Conversations | None = None) -> None:
        self._committer = committer
        self._collection = committer.database[CONVERSATIONS]
        self.known = Conversations() if known is None else known
        self.epoch = 0
        self._numbers = itertools.count(FIRST_NUMBER)

    def load(self, document: Mapping[str, Any]) -> StoredConversation:
        """Return the conversation of a recvq document, for a decision; a copy in memory may have
        it. Names in `applied` and `unsent` are not loaded.
        """
        id_, known = conversation_id(document), self.known
        with known.lock:
            conversation = known.get(id_)
            stored, changes = conversation.fresh, conversation.changes
        if stored is not None:
            return StoredConversation.from_document(id_, stored.fields)
        wanted = StoredConversation.FOR_DECISIONS
        found = self._find(id_, (*wanted, "n"))
        read = Stored.of({name: found[name] for name in wanted if name in found}, n_of(found))
        with known.lock:
            if not found:
                # Not made yet: no names of events are removed for some time.
                conversation.names = 0
            # guard: read-before-a-change -> if True:
            if changes == conversation.changes:
                known.store(conversation, read)
        return StoredConversation.from_document(id_, found)

    def read(self, document: Mapping[str, Any]) -> StoredConversation:
        """Return the conversation of a recvq document as MongoDB has it now."""
        id_ = conversation_id(document)
        return StoredConversation.from_document(id_, self._find(id_, {"outbox": 0}))

    def _find(self, id_: str, wanted: Any) -> Document:
        with self._committer.reading() as session:
            return self._collection.find_one({"_id": id_}, wanted, session=session) or {}

    def forget(self, id_: str) -> None:
        """Read it again before its next decision: it was changed, or may have been."""
        with self.known.lock:
            self.known.changed(id_)

    def placed(self, effects: Iterable[Document]) -> list[Placed]:
        """Return effects with their places in the outbox. Places sort in the order of recording,
        because MongoDB stores several new fields of one update in the order of their names.
        """
        return [(place_of(self.epoch, next(self._numbers)), one) for one in effects]

    def enter_record(
        self,
        document: Mapping[str, Any],
        decision: Decision,
        effects: Sequence[Placed],
        *,
        message_id: str | None,
        gathered: Mapping[str, str | None] = MappingProxyType({}),
        call: Call | None = None,
        letters: Sequence[Change] = (),
    ) -> Recording:
        """Decide the event permanently; `recorded` waits for it.

        `effects` are those to carry out (`placed`); timers get the `n` that the conversation has by
        this record. A decision based on a state other than the last one is not recorded. `gathered`
        names the events decided together with this one, with the ids of their messages. If any of
        them is applied or unsent, nothing is recorded. `letters` are written with it, and so is the
        call that can follow it at once.
        """
        id_, names = conversation_id(document), [name_of(document), *gathered]
        message_ids = [one for one in (message_id, *gathered.values()) if one is not None]
        n = decision.read_n
        with self.known.lock:
            conversation = self.known.get(id_)
            stored, trims = conversation.fresh, _trims(conversation, len(names))
        if n is None and any(is_timer(one) for _, one in effects):
            n = n_of(self._find(id_, {"n": 1})) if stored is None else stored.n
        if n is not None:
            effects = numbered(effects, n + 1)
        update = update_of(
            document,
            decision.changes,
            effects,
            gone=decision.gone,
            applied=names,
            trims=trims,
        )
        if call is not None:
            update["$set"][CALL] = call.as_document()
        condition: Document = {
            "_id": id_,
            "applied": {"$nin": names},  # guard: decided-once
            **still(n),  # guard: number-of-the-record
        }
        # guard: unsent-in-the-record
        if message_ids:
            condition["unsent"] = {"$nin": message_ids}
        change = Change(CONVERSATIONS, condition, update, upsert=True)
        write = self._committer.enter(change, *letters)
        return Recording(id_, names, message_ids, decision, effects, call, stored, write)

    def recorded(self, recording: Recording, *, seconds: float = WAIT_SECONDS) -> Recorded:
        """Return how a record ended. Raises StoreUnavailable if that is not certain in time; then
        this is asked again, unless its write has ended. Raises WriteRefused.
        """
        id_, decision = recording.id, recording.decision
        try:
            is_recorded = self._committer.result(recording.write, seconds)
        except WriteRefused as error:
            raise self._waiting_for_room(id_, error) from error
        if is_recorded:
            before = recording.stored
            after = None if before is None else before.after(decision.changes, decision.gone)
            with self.known.lock:
                # Read meanwhile, it may have the record already.
                # guard: copy-before-the-record -> is_same = True
                is_same = self.known.get(id_).stored is before
                self.known.changed(id_, after if is_same else None)
            return Recorded(recording.effects, recording.call)
        self.forget(id_)
        found = self._find(id_, ("applied", "unsent", "n"))
        applied = found.get("applied") or ()
        if set(recording.names) & set(applied):
            return Recorded(applied=applied)
        if set(recording.message_ids) & set(found.get("unsent") or ()):
            return Recorded(unsent=True)
        if decision.read_n not in (None, n_of(found)):
            return Recorded(outdated=True)
        raise StoreUnavailable("the conversation was changed meanwhile")

    def _waiting_for_room(self, id_: str, error: WriteRefused) -> StoreUnavailable:
        """Return the error for a refused record: a wait, if the outbox takes the room and will
        shrink.
        """
        with translated():
            waits = self._collection.find_one({"_id": id_, **WITH_OUTBOX}, {"n": 1})
        if error.is_too_large and waits is not None:
            return StoreUnavailable("the outbox has to shrink before it holds more")
        return error

    def with_people(self, id_: str) -> StoredConversation | None:
        """Return its personal data; None if there is no such conversation."""
        found = self._find(id_, {"profile": 1, "members": 1, "friend": 1, "n": 1})
        return StoredConversation.from_document(id_, found) if found else None

    def keep_profile(
        self,
        read: StoredConversation,
        member: str | None,
        profile: Document,
        *,
        drop: str | None = None,
    ) -> bool:
        """Write the profile that LINE returned for a member, or for the user or group; `drop` is a
        member to remove.

        False if there is no room, and if an event was recorded since it was read: that may have
        been a `forget`.
        """
        place = "profile" if member is None else f"members.{member}"
        update: Document = {"$set": {place: profile}}
        if drop is not None:
            update["$unset"] = {f"members.{drop}": ""}
        condition = {
            "_id": read.id,
            **still(read.n),  # guard: nothing-recorded-since
        }
        return self.change(read.id, condition, update)

    def friends(self, after: str, most: int, **more: Any) -> list[str]:
        """Return the ids of conversations with a user who has not blocked the bot, as far as known:
        the first ones after an id.
        """
        wanted = {"_id": {"$gt": after}, "kind": "user", "friend": {"$ne": False}, **more}
        with self._committer.reading() as session:
            found = self._collection.find(wanted, {"_id": 1}, session=session)
            return [row["_id"] for row in found.sort("_id", 1).limit(most)]

    def keep_first_name(self, document: Mapping[str, Any], profile: Document) -> None:
        """Insert the conversation of a user, so that operators find the name while the first
        handler runs. Nothing waits for it; a record comes after it, and one that is there stays.
        """
        first = {**unrecorded(document), "profile": profile}
        if first["kind"] == "user" and "displayName" in profile:
            row = {"_id": conversation_id(document), **first}
            self._committer.commit_later(Change.insert(CONVERSATIONS, row))

    def change(
        self,
        id_: str,
        condition: Document,
        update: Any,
        *others: Change,
        seconds: float = WAIT_SECONDS,
    ) -> bool:
        """Change fields on which decisions depend, after these other changes; False if it did not
        match, or MongoDB refuses it.
        """
        try:
            change = Change(CONVERSATIONS, condition, update)
            return self._committer.commit(*others, change, seconds=seconds)
        except WriteRefused:
            return False
        finally:
            self.forget(id_)

    def with_outbox(self) -> list[str]:
        """Return the ids of all conversations with an outbox, the oldest record first."""
        with self._committer.reading() as session:
            found = self._collection.find(WITH_OUTBOX, {"at": 1}, session=session)
            rows = list(found.hint("outbox"))
        # One created by hand may have none.
        rows.sort(key=lambda row: row["at"] if isinstance(row.get("at"), datetime) else OLDEST)
        return [row["_id"] for row in rows]

    def outboxes(self, ids: Sequence[str]) -> list[Document]:
        """Return these conversations, each with its outbox and its call, in no order."""
        with self._committer.reading() as session:
            wanted = {"outbox": 1, CALL: 1}
            these = {"_id": {"$in": list(ids)}}
            return list(self._collection.find(these, wanted, session=session))

    # The outbox.

    def note_call(
        self, id_: str, call: Call, late: LateCall | None = None, *, seconds: float
    ) -> Noted:
        """Store the call that is made next, and count it if it is a late reply. Raises
        StoreUnavailable if that takes longer; it may be stored later then, before any other write
        of the conversation.
        """
        first = call.members[0]
        condition: Document = {"_id": id_, **there([first])}
        update: Any = {"$set": {CALL: call.as_document()}}
        if late is not None:
            condition |= late.condition
            update = [{"$set": {CALL: {"$literal": call.as_document()}, **late.count}}]
        change = Change(CONVERSATIONS, condition, update)
        if self._committer.commit(change, seconds=seconds):
            return Noted.NOTED
        found = self._find(id_, {"late": 1, "places": PLACES})
        if first not in (found.get("places") or ()):
            return Noted.GONE
        if late is not None and late.is_used_up(found):
            return Noted.TOO_MANY_LATE
        raise StoreUnavailable("the conversation was changed meanwhile")

    def end_later(self, id_: str, call: Call) -> bool:
        """Leave the end of a call that LINE has accepted to the next group. False if too many are
        left.

        A process that dies first leaves a call of unknown outcome, whose token or key proves it.
        """
        return self._committer.commit_later(self._removal(id_, call.members, ends_call=True))

    def _removal(self, id_: str, places: Iterable[str], *, ends_call: bool = False) -> Change:
        """These effects leave the outbox."""
        gone = dict.fromkeys((f"outbox.{place}" for place in places), "")
        if ends_call:
            gone[CALL] = ""
        return Change(CONVERSATIONS, {"_id": id_}, {"$unset": gone})

    def end_call(self, id_: str, *, done: Sequence[str] = (), used_up: Sequence[str] = ()) -> None:
        """End its call with LINE's verdict: finished sends leave, used tokens are marked, both by
        place. The rest is free for another call.
        """
        changes = [self._removal(id_, done, ends_call=True)]
        for place in used_up:
            token = {"$set": {f"outbox.{place}.token": None}}
            changes.append(Change(CONVERSATIONS, {"_id": id_, **there([place])}, token))
        self._committer.commit_each(*changes)

    def give_up(
        self, id_: str, places: Iterable[str], letters: Sequence[Change], *, ends_call: bool
    ) -> None:
        """Let dead letters take the place of effects."""
        self._committer.commit_each(self._removal(id_, places, ends_call=ends_call), *letters)

    def put_back(self, id_: str, place: str, name: str, entry: Mapping[str, Any]) -> bool:
        """Move a send from the outbox to the entry of that name in `answers`.

        False if there is no such entry, so no tap would bring it; then it stays.
        """
        answer = f"{ANSWERS}.{name}"
        condition = {"_id": id_, **there([place]), answer: {"$exists": True}}
        update = {"$set": {answer: entry}, "$unset": {f"outbox.{place}": "", CALL: ""}}
        if self.change(id_, condition, update):
            return True
        return place not in (self._find(id_, {"places": PLACES}).get("places") or ())

    def remove(self, id_: str, *places: str) -> None:
        """Remove carried-out timers from the outbox; harmless if they are gone."""
        self._committer.commit(self._removal(id_, places))


def numbered(effects: Iterable[Placed], n: int) -> list[Placed]:
    """Return the effects of the conversation's record of that number, which its timers get."""
    return [(place, {**one, "n": n} if is_timer(one) else one) for place, one in effects]


def _trims(conversation: Conversation, more: int) -> bool:
    """Under the lock: whether a record with so many more names removes the oldest ones, since
    there may be twice as many as are kept; also if their number is unknown.
    """
    count = (2 * APPLIED if conversation.names is None else conversation.names) + more
    is_full = count > 2 * APPLIED
    conversation.names = APPLIED if is_full else count
    return is_full


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
