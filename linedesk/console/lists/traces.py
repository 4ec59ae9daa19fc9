"""The rows of many events: runs, calls, dead letters and waits, read at once.

Every read uses an index or covers the newest rows only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pymongo.database import Database

from linedesk.console import processes
from linedesk.console.conversation import starting
from linedesk.console.dead_letters import LISTED
from linedesk.console.facts import present_leader
from linedesk.console.known import known
from linedesk.console.reading import found_rows, naming, reported
from linedesk.console.story import DECIDED
from linedesk.runtime.language import gettext as _
from linedesk.store.collections import DISPATCHER
from linedesk.store.documents import (
    CALLS,
    CONVERSATIONS,
    DEADLETTERS,
    HELD,
    JOBS,
    PROGRESS,
    RECVQ,
    Document,
    conversation_id,
    name_of,
)
from linedesk.store.limits import SAFE_ORDER_SLACK
from linedesk.store.records.answers import ANSWERS, STATE, AnswerState
from linedesk.store.records.calls import ALSO_EVENT
from linedesk.store.records.effects import EFFECT_ID, OUTBOX_PAIRS, SEND
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.runs import GATHERED_WITH

RUN = ("at", EVENT_ID, "outcome", "attempt", "error", GATHERED_WITH)
CALL = ("at", "ms", "status", "endpoint", EVENT_ID, ALSO_EVENT)


@dataclass(frozen=True)
class Traces:
    """Rows by the name of their event."""

    runs: Mapping[str, Document] = field(default_factory=dict)
    """The newest run of each."""
    calls: Mapping[str, list[Document]] = field(default_factory=dict)
    """In the order of time."""
    letters: Mapping[str, Document] = field(default_factory=dict)
    letters_of_effects: Mapping[str, list[Document]] = field(default_factory=dict)
    held: Mapping[Any, str] = field(default_factory=dict)
    """Why a document is held, by its `_id`."""
    waiting_sends: Mapping[str, int] = field(default_factory=dict)
    applied: frozenset[str] = frozenset()
    """Applied events among those that no run decided."""
    buttons: frozenset[str] = frozenset()
    """Events whose answer waits for a tap."""
    running: frozenset[str] = frozenset()
    is_led: bool = True
    """Whether a running dispatcher is the leader."""
    reasons: Mapping[str, Any] = field(default_factory=dict)
    """The dispatcher's reason for the wait of an event, in English."""
    finished: frozenset[Any] = frozenset()
    """The `_id` of finished documents in progress, among those that no run decided."""


def read_traces(database: Database[Any], documents: Sequence[Document]) -> Traces:
    """Return the rows of these documents. Raises the errors of the driver."""
    names = [name_of(one) for one in documents]
    runs = _runs(database, names)
    undecided = [one for one in documents if not _is_decided(runs.get(name_of(one), {}))]
    conversations = _conversations(database, documents, [name_of(one) for one in undecided])
    ids = [one["_id"] for one in documents]
    held = database[HELD].find({"_id": {"$in": ids}}, {"why": 1})
    row = present_leader(database) or {}
    waiting = [one for one in processes.listed(row, "waiting") if EFFECT_ID not in one]
    running = {str(one.get(EVENT_ID)) for one in processes.listed(row, "threads")}
    return Traces(
        runs=runs,
        calls=_calls(database, names),
        letters={one["_id"]: one for one in _letters(database, names)},
        letters_of_effects=_letters_of_effects(database, names),
        held={one["_id"]: _("held: {reason}").format(reason=known(one.get("why"))) for one in held},
        waiting_sends=_counts(name for one in conversations for name in one["sends"]),
        applied=frozenset(name for one in conversations for name in one["applied"]),
        buttons=frozenset(name for one in conversations for name in one["buttons"]),
        running=frozenset(running),
        reasons={str(one.get(EVENT_ID)): one["why"] for one in waiting if one.get("why")},
        is_led=bool(row),
        finished=_finished(database, [one["_id"] for one in undecided]),
    )


def _is_decided(run: Mapping[str, Any]) -> bool:
    return run.get("outcome") in DECIDED


def _runs(database: Database[Any], names: Sequence[str]) -> dict[str, Document]:
    stages = [*found_rows({EVENT_ID: {"$in": list(names)}}), {"$project": dict.fromkeys(RUN, 1)}]
    rows = reported(database, JOBS).aggregate(stages)
    return {row[EVENT_ID]: row for row in sorted(rows, key=_when)}


def _calls(database: Database[Any], names: Sequence[str]) -> dict[str, list[Document]]:
    named = found_rows(*naming({"$in": list(names)}))
    rows = reported(database, CALLS).aggregate([*named, {"$project": dict.fromkeys(CALL, 1)}])
    asked, found = set(names), defaultdict[str, list[Document]](list)
    for row in sorted(rows, key=_when):
        also = row["also"] if isinstance(row.get("also"), list) else []
        for name in {row.get(EVENT_ID), *(one.get(EVENT_ID) for one in also)} & asked:
            found[name].append(row)
    return dict(found)


def _when(row: Mapping[str, Any]) -> float:
    at = row.get("at")
    return at.timestamp() if isinstance(at, datetime) else 0.0


def _letters(database: Database[Any], names: Sequence[str]) -> Iterable[Document]:
    return database[DEADLETTERS].find({"_id": {"$in": list(names)}}, list(LISTED))


def _letters_of_effects(database: Database[Any], names: Sequence[str]) -> dict[str, list[Document]]:
    """Return the letters of effects: their ids begin with the event's name."""
    if not names:
        return {}
    wanted = {"$or": [starting(f"{name}/") for name in names]}
    found = defaultdict[str, list[Document]](list)
    for row in database[DEADLETTERS].find(wanted, [*LISTED, f"effect.{EVENT_ID}"]):
        found[str((row.get("effect") or {}).get(EVENT_ID))].append(row)
    return dict(found)


def _conversations(
    database: Database[Any], documents: Sequence[Document], undecided: Sequence[str]
) -> list[Document]:
    """Return each conversation's waiting sends and buttons, and its applied undecided events."""
    ids = {conversation_id(one) for one in documents if one.get("channel") and one.get("key")}

    are_sends = {"$eq": ["$$this.v.type", SEND]}
    sends = {"$filter": {"input": OUTBOX_PAIRS, "cond": are_sends}}
    waits = {"$eq": [f"$$this.v.{STATE}", AnswerState.WAITING.value]}
    is_object = {"$eq": [{"$type": f"${ANSWERS}"}, "object"]}
    answers = {"$objectToArray": {"$cond": [is_object, f"${ANSWERS}", {}]}}
    waiting = {"$filter": {"input": answers, "cond": waits}}
    fields: Document = {
        "applied": {"$setIntersection": [{"$ifNull": ["$applied", []]}, list(undecided)]},
        "sends": {"$map": {"input": sends, "in": {"$ifNull": [f"$$this.v.{EVENT_ID}", ""]}}},
        "buttons": {"$map": {"input": waiting, "in": "$$this.k"}},
    }
    stages: list[Mapping[str, Any]] = [
        {"$match": {"_id": {"$in": sorted(ids)}}},
        {"$project": fields},
    ]
    return list(database[CONVERSATIONS].aggregate(stages))


def _counts(names: Iterable[str]) -> dict[str, int]:
    found = defaultdict[str, int](int)
    for name in names:
        found[name] += 1
    return dict(found)


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
