"""The rows of events: of many at once for a list, or of one with all that belongs to it.

Every read uses an index or covers the newest rows only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bson import ObjectId
from pymongo.database import Database

from linedesk.operate.dead_letters import what
from linedesk.operate.find import at_of, held_by_event_id
from linedesk.operate.processes import present_leader
from linedesk.operate.reading import found_rows, naming, outbox_of, reported, starting
from linedesk.store.collections import DISPATCHER
from linedesk.store.control import Control, Pauses
from linedesk.store.documents import (
    CALLS,
    CONVERSATIONS,
    DEADLETTERS,
    HELD,
    JOBS,
    PROGRESS,
    RECVQ,
    SCHEDULE,
    Document,
)
from linedesk.store.limits import SAFE_ORDER_SLACK
from linedesk.store.records.answers import ANSWERS
from linedesk.store.records.effects import CALL, OUTBOX, OUTBOX_PAIRS
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.runs import GATHERED_WITH
from linedesk.store.records.timers import SET_BY
from linedesk.store.redaction import message_id_of

DECIDED = ("recorded", "finished", "applied", "unheard", "no_handler", "gathered")
MOST_RUNS = 100
MOST_CALLS = 200
MOST_BEFORE = 1_000
# Of a letter all but what may be large and is not shown.
LETTER = {"traceback": 0, "effect.messages": 0}


@dataclass(frozen=True)
class Rows:
    """The rows of one event, as stored."""

    name: str
    document: Document | None = None
    """From recvq, else from `held`, else from its dead letter."""
    in_recvq: bool = True
    held: Document | None = None
    before: int = 0
    """How many events of its conversation are before it in `held`."""
    runs: Sequence[Document] = ()
    """In the order of time, as the calls."""
    calls: Sequence[Document] = ()
    was_applied: bool = False
    was_unsent: bool = False
    effects: Sequence[Document] = ()
    """Its decided effects that are not carried out yet, in order; each send with its try."""
    timers: Sequence[Document] = ()
    """Rows of `schedule` that it set last."""
    answer: Mapping[str, Any] | None = None
    """Its entry in `answers` of its conversation."""
    letter: Document | None = None
    """Its own dead letter."""
    letters: Sequence[Document] = ()
    """The dead letters of its effects."""
    replayed: Document | None = None
    """The letter whose replay it is."""
    is_finished: bool = False
    """Whether progress lists it as finished."""

    @property
    def conversation(self) -> tuple[str, str] | None:
        """Channel and key, where a row has them."""
        for one in (self.document, self.letter, *self.runs):
            if one is not None and all(isinstance(one.get(n), str) for n in ("channel", "key")):
                return one["channel"], one["key"]
        return None

    @property
    def what(self) -> str:
        """The type of the event, and the type of its message."""
        if self.document is None:
            return next((str(row["type"]) for row in self.runs if row.get("type")), "-")
        return what({"document": {**self.document, "unsent": self.was_unsent}})

    @property
    def last_run(self) -> Document:
        """Its newest run; empty without any."""
        return self.runs[-1] if self.runs else {}

    @property
    def all_letters(self) -> list[Document]:
        """Its own dead letter, and those of its effects."""
        return [row for row in (self.letter, *self.letters) if row is not None]

    @property
    def is_decided(self) -> bool:
        """Whether a decision about it is recorded, or it needs none."""
        if self.last_run.get("outcome") in DECIDED or self.was_applied:
            return True
        return self.is_finished and self.held is None

    @property
    def gathered_with(self) -> str | None:
        """The message that it was handled together with."""
        last = self.last_run
        return str(last.get(GATHERED_WITH)) if last.get("outcome") == "gathered" else None


@dataclass(frozen=True)
class Present:
    """The present of all events: the leader's report, empty without one, and the pauses."""

    leader: Mapping[str, Any] = field(default_factory=dict)
    pauses: Pauses = field(default_factory=Pauses)


def read_present(database: Database[Any]) -> Present:
    """Return what holds now. Raises the errors of the driver, and StoreUnavailable."""
    return Present(present_leader(database) or {}, Control(database).read())


def read_rows(database: Database[Any], documents: Mapping[str, Document | None]) -> dict[str, Rows]:
    """Return the rows of each event by its name. Raises the errors of the driver."""
    names = list(documents)
    runs, calls = _runs(database, names), _calls(database, names)
    own = database[DEADLETTERS].find({"_id": {"$in": names}}, LETTER)
    letters = {row["_id"]: row for row in own}
    of_effects = _letters_of_effects(database, names)
    found = {
        name: Rows(
            name,
            document or (letters.get(name) or {}).get("document"),
            runs=runs.get(name, [])[-MOST_RUNS:],
            calls=calls.get(name, [])[-MOST_CALLS:],
            letter=letters.get(name),
            letters=of_effects.get(name, []),
        )
        for name, document in documents.items()
    }
    ids = {one.name: one.document["_id"] for one in found.values() if one.document is not None}
    held = database[HELD].find({"_id": {"$in": list(ids.values())}}, {"document": 0})
    held_by_id = {row["_id"]: row for row in held}
    finished = _finished(database, [ids[n] for n in ids if not found[n].is_decided])
    inside = _inside(database, found.values())
    return {
        name: _with(one, held_by_id, finished, inside.get("/".join(one.conversation or ()), {}))
        for name, one in found.items()
    }


def read_one(database: Database[Any], name: str) -> Rows:
    """Return all rows of one event. Raises the errors of the driver."""
    stored = _stored(database, name)
    held = None
    if stored is None:
        by_id = {"_id": ObjectId(name)} if ObjectId.is_valid(name) else None
        held = database[HELD].find_one(by_id) if by_id else held_by_event_id(database, name)
    document = stored or (held and {**(held.get("document") or {}), "_id": held["_id"]})
    rows = read_rows(database, {name: document or None})[name]
    held = rows.held or held
    before = {} if held is None else {name: held[name] for name in ("channel", "key")}
    return replace(
        rows,
        in_recvq=stored is not None,
        held=held,
        before=database[HELD].count_documents(
            {**before, "n": {"$lt": held["n"]}}, limit=MOST_BEFORE
        )
        if held
        else 0,
        timers=_timers(database, name, rows.conversation),
        replayed=_replayed(database, name),
        is_finished=rows.is_finished and stored is not None,
    )


def _with(
    rows: Rows, held: Mapping[Any, Document], finished: frozenset[Any], inside: Document
) -> Rows:
    id_ = (rows.document or {}).get("_id")
    message = message_id_of(rows.document or {})
    is_unsent = message is not None and message in inside.get("unsent", ())
    return replace(
        rows,
        held=held.get(id_),
        was_applied=rows.name in inside.get("applied", ()),
        was_unsent=is_unsent or bool((rows.document or {}).get("unsent")),
        effects=[
            dict(one)
            for one in inside.get("effects", ())
            if isinstance(one, Mapping) and rows.name in (one.get(EVENT_ID), one.get("id"))
        ],
        answer=inside.get(ANSWERS, {}).get(rows.name),
        is_finished=id_ in finished,
    )


def _stored(database: Database[Any], name: str) -> Document | None:
    by_id = [{"_id": ObjectId(name)}] if ObjectId.is_valid(name) else []
    for wanted in ({EVENT_ID: name}, *by_id):
        found: Document | None = database[RECVQ].find_one(wanted)
        if found is not None:
            return found
    return None


def _runs(database: Database[Any], names: Sequence[str]) -> dict[str, list[Document]]:
    stages = found_rows({EVENT_ID: {"$in": list(names)}})
    found = defaultdict[str, list[Document]](list)
    for row in sorted(reported(database, JOBS).aggregate(stages), key=at_of):
        found[row[EVENT_ID]].append(row)
    return found


def _calls(database: Database[Any], names: Sequence[str]) -> dict[str, list[Document]]:
    stages = found_rows(*naming({"$in": list(names)}))
    asked, found = set(names), defaultdict[str, list[Document]](list)
    for row in sorted(reported(database, CALLS).aggregate(stages), key=at_of):
        also = row["also"] if isinstance(row.get("also"), list) else []
        for name in {row.get(EVENT_ID), *(one.get(EVENT_ID) for one in also)} & asked:
            found[name].append(row)
    return found


def _letters_of_effects(database: Database[Any], names: Sequence[str]) -> dict[str, list[Document]]:
    """Return the letters of effects: their ids begin with the event's name."""
    found = defaultdict[str, list[Document]](list)
    if not names:
        return found
    wanted = {"$or": [starting(f"{name}/") for name in names]}
    asked = set(names)
    for row in database[DEADLETTERS].find(wanted, LETTER):
        of_effect = (row.get("effect") or {}).get(EVENT_ID)
        name = of_effect if of_effect in asked else str(row["_id"]).rpartition("/")[0]
        found[name].append(row)
    return found


def _inside(database: Database[Any], found: Iterable[Rows]) -> dict[str, Document]:
    """Return by conversation what it has of these events: applied, unsent, effects and answers."""
    rows = [one for one in found if one.conversation is not None]
    names = [one.name for one in rows]
    messages = [id_ for one in rows if (id_ := message_id_of(one.document or {})) is not None]
    ids = sorted({"/".join(one.conversation or ()) for one in rows})
    own_names = [{"$ifNull": [f"$$this.v.{field}", ""]} for field in (EVENT_ID, "id")]
    is_own = [{"$in": [own_name, names]} for own_name in own_names]
    own: Document = {"$filter": {"input": OUTBOX_PAIRS, "cond": {"$or": is_own}}}
    is_object = {"$eq": [{"$type": f"${ANSWERS}"}, "object"]}
    answers = {"$objectToArray": {"$cond": [is_object, f"${ANSWERS}", {}]}}
    own_answers = {"$filter": {"input": answers, "cond": {"$in": ["$$this.k", names]}}}
    fields: Document = {
        "applied": {"$setIntersection": [{"$ifNull": ["$applied", []]}, names]},
        "unsent": {"$setIntersection": [{"$ifNull": ["$unsent", []]}, messages]},
        OUTBOX: {"$arrayToObject": own},
        ANSWERS: {"$arrayToObject": own_answers},
        CALL: 1,
    }
    stages: list[Mapping[str, Any]] = [{"$match": {"_id": {"$in": ids}}}, {"$project": fields}]
    return {
        row["_id"]: {**row, "effects": outbox_of(database, row)}
        for row in database[CONVERSATIONS].aggregate(stages)
    }


def _timers(
    database: Database[Any], name: str, conversation: tuple[str, str] | None
) -> list[Document]:
    if conversation is None:
        return []
    whose = starting(f"{'/'.join(conversation)}/")
    return list(database[SCHEDULE].find({**whose, SET_BY: name}))


def _replayed(database: Database[Any], name: str) -> Document | None:
    if not name.startswith("replay:"):
        return None
    id_ = name.removeprefix("replay:").rpartition(":")[0]
    return database[DEADLETTERS].find_one({"_id": id_}, LETTER)


def _finished(database: Database[Any], ids: Sequence[Any]) -> frozenset[Any]:
    """Return the documents in the lists of progress, or well before its place in recvq."""
    if not ids:
        return frozenset()
    progress = database[PROGRESS].find_one({"_id": DISPATCHER}, ["finished", "ring", "after"]) or {}
    named = {one for name in ("finished", "ring") for one in progress.get(name) or ()}
    after = progress.get("after")
    found = database[RECVQ].find({"_id": {"$in": [*ids, after]}}, {"_id": 1}, show_record_id=True)
    records = {row["_id"]: int(row["$recordId"]) for row in found}
    upto = records.get(after, 0) - SAFE_ORDER_SLACK
    return frozenset(
        one for one in ids if one in named or one == after or records.get(one, upto) < upto
    )
