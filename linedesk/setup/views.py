"""Views for find() in the mongo shell: waiting events and sends, with place and reason.

They omit users' messages, tokens and retry keys. linedesk itself does not read them.
`scripts/create_collection.py` writes them into the script for the mongo shell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pymongo.database import Database
from pymongo.errors import OperationFailure

from linedesk.operate.reading import COUNTED, TAKE_APART
from linedesk.setup.neighbours import NAMESPACE_EXISTS
from linedesk.store.documents import (
    BATCHES,
    CALLS,
    CONVERSATIONS,
    DEADLETTERS,
    HELD,
    JOBS,
    RECVQ,
    SCHEDULE,
)
from linedesk.store.errors import translated
from linedesk.store.records.answers import ANSWERS, BY, WITH_ANSWERS
from linedesk.store.records.answers import STATE as ANSWER_STATE
from linedesk.store.records.batches import READY, STATE
from linedesk.store.records.calls import PAID, REASON, REQUEST_ID
from linedesk.store.records.effects import (
    BATCH,
    CALL,
    MEMBERS,
    OUTBOX_PAIRS,
    TRIED_AT,
    WITH_OUTBOX,
)
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID
from linedesk.store.records.letters import FIRST_AT, LAST_AT, REPLAYED_AT
from linedesk.store.records.runs import WAITED_MS
from linedesk.store.records.timers import RUN_AT, SET_BY


@dataclass(frozen=True)
class MongoView:
    """A view: its collection and pipeline; a comment states the limit of its cost."""

    on: str
    pipeline: Sequence[Mapping[str, Any]]


_HAS_CALL = {"$isArray": f"${CALL}.{MEMBERS}"}
# A claim counts only while its multicast is ready.
_COUNTS = {"$or": [{"$eq": [{"$type": f"${CALL}.{BATCH}"}, "missing"]}, {"$ne": ["$ready", []]}]}
_IS_TRIED = {"$in": ["$effect.k", "$tried"]}

VIEWS: Mapping[str, MongoView] = {
    # Uses its partial index by the condition on `at`, since views accept no hint.
    "v_answers": MongoView(
        CONVERSATIONS,
        [
            {"$match": {"at": {"$exists": True}, **WITH_ANSWERS}},
            {
                "$project": {
                    **dict.fromkeys(("channel", "key"), 1),
                    "answer": {"$objectToArray": f"${ANSWERS}"},
                }
            },
            {"$unwind": "$answer"},
            {
                "$project": {
                    "_id": "$answer.k",
                    **dict.fromkeys(("channel", "key"), 1),
                    **{name: f"$answer.v.{name}" for name in (ANSWER_STATE, "at", BY)},
                }
            },
        ],
    ),
    # Lists use an index; a list without a condition reads all rows that it shows, and no others.
    "v_deadletters": MongoView(
        DEADLETTERS,
        [
            {
                "$project": {
                    **dict.fromkeys(("channel", "key", "cause", "about", "attempts"), 1),
                    "type": {"$ifNull": ["$document.event.type", "$effect.type"]},
                    "way": "$effect.way",
                    EVENT_ID: {"$ifNull": [f"$effect.{EVENT_ID}", f"$document.{EVENT_ID}"]},
                    **dict.fromkeys((FIRST_AT, LAST_AT, "replays", REPLAYED_AT), 1),
                }
            }
        ],
    ),
    # With the field paths of recvq, so that its indexes apply; the newest first by sort({$natural:
    # -1}).
    "v_events": MongoView(
        RECVQ,
        [
            {"$match": {"heartbeat": {"$exists": False}}},
            {
                "$project": {
                    **dict.fromkeys((ACCEPT_TIME, EVENT_ID, "channel", "key", "unsent"), 1),
                    **dict.fromkeys(("event.type", "event.mode", "event.source"), 1),
                    **dict.fromkeys(("event.message.type", "event.message.id"), 1),
                    **dict.fromkeys(("event.deliveryContext", "event.timer.name"), 1),
                }
            },
        ],
    ),
    # The newest first by sort({$natural: -1}); a condition reads all of the collection.
    "v_calls": MongoView(
        CALLS,
        [
            *TAKE_APART,
            {
                "$project": {
                    **dict.fromkeys(("at", "endpoint", "status", "ms", "class", WAITED_MS), 1),
                    **dict.fromkeys((PAID, EVENT_ID, "key", "attempt", REQUEST_ID, REASON), 1),
                    **COUNTED,
                }
            },
        ],
    ),
    # The same.
    "v_jobs": MongoView(JOBS, TAKE_APART),
    "v_held": MongoView(
        HELD,
        [
            {
                "$project": {
                    **dict.fromkeys(("channel", "key", "n", "why", "since"), 1),
                    EVENT_ID: {"$ifNull": [f"$document.{EVENT_ID}", "$_id"]},
                    "type": "$document.event.type",
                    ACCEPT_TIME: f"$document.{ACCEPT_TIME}",
                }
            }
        ],
    ),
    # Uses its partial index by the condition on `at`, since views accept no hint.
    "v_outbox": MongoView(
        CONVERSATIONS,
        [
            {"$match": {"at": {"$exists": True}, **WITH_OUTBOX}},
            {
                "$lookup": {
                    "from": BATCHES,
                    "localField": f"{CALL}.{BATCH}",
                    "foreignField": "_id",
                    "pipeline": [{"$match": {STATE: READY}}, {"$project": {"_id": 1}}],
                    "as": "ready",
                }
            },
            {
                "$project": {
                    **dict.fromkeys(("channel", "key", f"{CALL}.at", f"{CALL}.as"), 1),
                    "tried": {"$cond": [{"$and": [_HAS_CALL, _COUNTS]}, f"${CALL}.{MEMBERS}", []]},
                    "effect": OUTBOX_PAIRS,
                }
            },
            {"$unwind": "$effect"},
            {
                "$project": {
                    "_id": "$effect.v.id",
                    **dict.fromkeys(("channel", "key"), 1),
                    "place": "$effect.k",
                    **{name: f"$effect.v.{name}" for name in ("type", "way", EVENT_ID, "at")},
                    "messages": {
                        "$cond": [
                            {"$isArray": "$effect.v.messages"},
                            {"$size": "$effect.v.messages"},
                            "$$REMOVE",
                        ]
                    },
                    TRIED_AT: {"$cond": [_IS_TRIED, f"${CALL}.at", f"$effect.v.{TRIED_AT}"]},
                    "as": {
                        "$cond": [
                            _IS_TRIED,
                            {"$ifNull": [f"${CALL}.as", "multicast"]},
                            "$effect.v.as",
                        ]
                    },
                    **{name: f"$effect.v.{name}" for name in ("timer", RUN_AT, "cause", "about")},
                }
            },
        ],
    ),
    "v_timers": MongoView(
        SCHEDULE,
        [
            {"$match": {RUN_AT: {"$type": "date"}}},
            {"$sort": {RUN_AT: 1}},
            {"$project": dict.fromkeys(("channel", "key", "name", RUN_AT, "every", SET_BY), 1)},
        ],
    ),
    # Reads all of `held`, in the order of its index.
    "v_waiting": MongoView(
        HELD,
        [
            {"$sort": {"channel": 1, "key": 1, "n": 1}},
            {
                "$group": {
                    "_id": {"channel": "$channel", "key": "$key"},
                    "documents": {"$sum": 1},
                    "since": {"$min": "$since"},
                    "why": {"$first": "$why"},
                    EVENT_ID: {"$first": f"$document.{EVENT_ID}"},
                }
            },
            {"$sort": {"since": 1}},
            {
                "$project": {
                    "_id": 0,
                    "channel": "$_id.channel",
                    "key": "$_id.key",
                    **dict.fromkeys(("documents", "since", "why", EVENT_ID), 1),
                }
            },
        ],
    ),
}


def ensure_views(database: Database[Any]) -> list[str]:
    """Create or update all views, also those of another version; returns the changes.

    A collection of the same name is not changed. Raises StoreUnavailable.
    """
    changed = []
    with translated():
        rows = database.list_collections(filter={"name": {"$in": list(VIEWS)}})
        found = {row["name"]: row for row in rows}
        for name, view in VIEWS.items():
            wanted: dict[str, Any] = {"viewOn": view.on, "pipeline": list(view.pipeline)}
            row = found.get(name)
            if row is None:
                _create(database, name, wanted)
            elif row["type"] == "view" and row["options"] != wanted:
                database.command("collMod", name, **wanted)
            else:
                continue
            changed.append(name)
    return changed


def _create(database: Database[Any], name: str, options: Mapping[str, Any]) -> None:
    try:
        database.command("create", name, **options)
    except OperationFailure as error:
        # Another process created it at the same time, which is fine.
        if error.code != NAMESPACE_EXISTS:
            raise
