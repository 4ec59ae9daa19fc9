"""The facts of one event: all its rows in the database. `story` uses them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bson import ObjectId
from pymongo.database import Database

from linedesk.console import processes
from linedesk.console.dead_letters import LISTED
from linedesk.console.reading import found_rows, naming, outbox_of, reported
from linedesk.console.tracing import held_by_event_id
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
    STATUS,
    Document,
)
from linedesk.store.limits import SAFE_ORDER_SLACK
from linedesk.store.records.answers import ANSWERS
from linedesk.store.records.effects import CALL, OUTBOX, OUTBOX_PAIRS
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.timers import SET_BY
from linedesk.store.redaction import message_id_of

MOST_RUNS = 100
MOST_CALLS = 200
MOST_LETTERS = 100
MOST_BEFORE = 1_000


@dataclass(frozen=True)
class Facts:
    """The rows of one event, as stored."""

    name: str
    document: Document | None
    """From recvq, else from `held`, else from its dead letter."""
    in_recvq: bool
    held: Document | None
    before: int
    """How many events of its conversation are before it in `held`."""
    runs: list[Document]
    calls: list[Document]
    was_applied: bool
    was_unsent: bool
    effects: list[Document]
    """Its decided effects that are not carried out yet, in order; each send with its try."""
    timers: list[Document]
    """Rows of `schedule` that it set last."""
    answer: Mapping[str, Any] | None
    """Its entry in `answers` of its conversation."""
    letter: Document | None
    """Its own dead letter."""
    letters: list[Document]
    """The dead letters of its effects."""
    replayed: Document | None
    """The letter whose replay it is."""
    row: Mapping[str, Any] | None
    """The leader's row in `status`, if there is one."""
    pauses: Pauses
    is_finished: bool
    """Whether progress lists it as finished."""

    @property
    def conversation(self) -> tuple[str, str] | None:
        """Channel and key, where a row has them."""
        for one in (self.document, self.letter, *self.runs):
            if one is not None and all(isinstance(one.get(n), str) for n in ("channel", "key")):
                return one["channel"], one["key"]
        return None


def read_facts(database: Database[Any], name: str, *, row: Mapping[str, Any] | None) -> Facts:
    """Return all rows of an event. Raises the errors of the driver."""
    document = stored = _stored(database, name)
    letter = database[DEADLETTERS].find_one({"_id": name})
    runs = _newest(database, JOBS, MOST_RUNS, {EVENT_ID: name})
    held = _held(database, name, document)
    if document is None:
        document = (held or {}).get("document") or (letter or {}).get("document")
    whose = _whose(document, letter, *runs)
    inside = _inside(database, name, whose, document)
    return Facts(
        name=name,
        document=document,
        in_recvq=stored is not None,
        held=held,
        before=_before(database, held),
        runs=runs,
        calls=_newest(database, CALLS, MOST_CALLS, *naming(name)),
        was_applied=bool(inside.get("applied")),
        was_unsent=bool(inside.get("unsent")) or bool((document or {}).get("unsent")),
        effects=outbox_of(database, inside),
        timers=_timers(database, name, whose),
        answer=inside.get("answer"),
        letter=letter,
        letters=_letters_of_effects(database, name),
        replayed=_replayed(database, name),
        row=row,
        pauses=Control(database).read(),
        is_finished=stored is not None and _is_finished(database, stored["_id"]),
    )


def leader(database: Database[Any]) -> Mapping[str, Any] | None:
    """Return the leader's row, of any age."""
    return processes.leading(reported(database, STATUS).find({"role": processes.DISPATCHER}))


def present_leader(database: Database[Any]) -> Mapping[str, Any] | None:
    """Return the leader's row; None where the last leader has ended or is silent."""
    now = datetime.now(UTC)
    rows = reported(database, STATUS).find({"role": processes.DISPATCHER})
    return processes.leading(row for row in rows if processes.is_fresh(row, now=now))


def _stored(database: Database[Any], name: str) -> Document | None:
    by_id = [{"_id": ObjectId(name)}] if ObjectId.is_valid(name) else []
    for wanted in ({EVENT_ID: name}, *by_id):
        found: Document | None = database[RECVQ].find_one(wanted)
        if found is not None:
            return found
    return None


def _held(database: Database[Any], name: str, document: Document | None) -> Document | None:
    if document is None and not ObjectId.is_valid(name):
        return held_by_event_id(database, name)
    return database[HELD].find_one({"_id": document["_id"] if document else ObjectId(name)})


def _before(database: Database[Any], held: Document | None) -> int:
    if held is None:
        return 0
    before = {"channel": held["channel"], "key": held["key"], "n": {"$lt": held["n"]}}
    return database[HELD].count_documents(before, limit=MOST_BEFORE)


def _newest(
    database: Database[Any], collection: str, limit: int, *wanted: Mapping[str, Any]
) -> list[Document]:
    stages = [*found_rows(*wanted), {"$sort": {"at": -1}}, {"$limit": limit}]
    return list(reported(database, collection).aggregate(stages))[::-1]


def _whose(*found: Document | None) -> str | None:
    for one in found:
        if one is not None and all(isinstance(one.get(n), str) for n in ("channel", "key")):
            return f"{one['channel']}/{one['key']}"
    return None


def _inside(
    database: Database[Any], name: str, whose: str | None, document: Document | None
) -> Document:
    """Return its own effects, answer and letter in its conversation."""
    names = [{"$eq": [f"$$this.v.{field}", name]} for field in (EVENT_ID, "id")]
    own = {"$filter": {"input": OUTBOX_PAIRS, "cond": {"$or": names}}}
    fields: Document = {
        "applied": {"$in": [name, {"$ifNull": ["$applied", []]}]},
        "unsent": {"$in": [message_id_of(document or {}) or "", {"$ifNull": ["$unsent", []]}]},
        OUTBOX: {"$arrayToObject": own},
        "answer": {
            "$getField": {"field": {"$literal": name}, "input": {"$ifNull": [f"${ANSWERS}", {}]}}
        },
        CALL: 1,
    }
    stages: list[Mapping[str, Any]] = [{"$match": {"_id": whose}}, {"$project": fields}]
    return next(iter(database[CONVERSATIONS].aggregate(stages)), {})


def _timers(database: Database[Any], name: str, whose: str | None) -> list[Document]:
    if whose is None:
        return []
    of_conversation = {"_id": {"$gte": f"{whose}/", "$lt": f"{whose}/{chr(sys.maxunicode)}"}}
    return list(database[SCHEDULE].find({**of_conversation, SET_BY: name}))


def _letters_of_effects(database: Database[Any], name: str) -> list[Document]:
    effects = {"_id": {"$gte": f"{name}/", "$lt": f"{name}/{chr(sys.maxunicode)}"}}
    return list(database[DEADLETTERS].find(effects, list(LISTED)).limit(MOST_LETTERS))


def _replayed(database: Database[Any], name: str) -> Document | None:
    if not name.startswith("replay:"):
        return None
    id_ = name.removeprefix("replay:").rpartition(":")[0]
    return database[DEADLETTERS].find_one({"_id": id_}, [*LISTED, f"effect.{EVENT_ID}"])


def _is_finished(database: Database[Any], id_: Any) -> bool:
    own = {"_id": DISPATCHER}
    named = {**own, "$or": [{"finished": id_}, {"ring": id_}, {"after": id_}]}
    if database[PROGRESS].find_one(named, {"_id": 1}) is not None:
        return True
    after = (database[PROGRESS].find_one(own, {"after": 1}) or {}).get("after")
    at, upto = (_record_id(database, one) for one in (id_, after))
    return at is not None and upto is not None and at < upto - SAFE_ORDER_SLACK


def _record_id(database: Database[Any], id_: Any) -> int | None:
    found = database[RECVQ].find({"_id": id_}, {"_id": 1}, show_record_id=True).limit(-1)
    return next((int(row["$recordId"]) for row in found), None)
