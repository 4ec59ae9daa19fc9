"""What a word means to linedesk, and what a conversation did lately.

A word is an id of a user, group, room, event, message, dead letter or timer, LINE's request id, or
a display name. recvq has no index by conversation, so only its newest documents are searched, and
the page says how many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import pymongo
from pymongo.database import Database

from linedesk.console import dead_letters
from linedesk.console.calls import LISTED
from linedesk.console.conversation import ELLIPSIS, find_conversation, starting
from linedesk.console.errors import NotOneConversation
from linedesk.console.reading import reported
from linedesk.console.tracing import by_index, by_looking
from linedesk.store.control import Scope
from linedesk.store.documents import (
    CALLS,
    CONTROL,
    CONVERSATIONS,
    HELD,
    JOBS,
    RECVQ,
    Document,
    name_of,
)
from linedesk.store.errors import translated
from linedesk.store.records.calls import of_key
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID

# Some 5 MB of documents, and 2 MB of rows: a few hundredths of a second each.
NEWEST_DOCUMENTS = 5_000
NEWEST_ROWS = 10_000
READ_SECONDS = 10.0
MOST_FOUND = 50
SHOWN = {EVENT_ID: 1, ACCEPT_TIME: 1, "unsent": 1, "event.type": 1, "event.message.type": 1}


@dataclass(frozen=True)
class Meaning:
    """What a word means."""

    kind: Literal["conversation", "event"]
    id: str
    """`<channel>/<key>`, or the event's name."""


@dataclass(frozen=True)
class Recent:
    """What one conversation did lately, the newest first; rows as they stand, without texts."""

    events: list[Document]
    """Of recvq and `held`: eventId, acceptTime, what, held."""
    runs: list[Document]
    calls: list[Document]
    looked: Mapping[str, int] = field(default_factory=dict)
    """At how many of the newest documents of each collection."""


def meaning_of(database: Database[Any], word: str, *, channel: str) -> Meaning:
    """Raises NotOneConversation, also where the word means nothing, and StoreUnavailable."""
    word = word.strip()
    with translated(), pymongo.timeout(READ_SECONDS):
        event = by_index(database, word)
    if event is not None:
        return Meaning("event", event)
    try:
        return Meaning("conversation", find_conversation(database, word, channel=channel))
    except NotOneConversation as error:
        # Last, since it looks at so many rows.
        with translated(), pymongo.timeout(READ_SECONDS):
            event = None if error.found else by_looking(database, word)
        if event is None:
            raise
        return Meaning("event", event)


def scope_of(database: Database[Any], word: str | None, *, channel: str) -> Scope:
    """What an operator wants to pause: `all` or nothing, a channel, or a conversation.

    A conversation is as `find_conversation` finds it, or `<channel>/<key>` that is new. Any other
    word is not taken for a channel. Raises NotAScope, NotOneConversation.
    """
    if word is not None and not word.strip():
        # A script's variable that is not set is not to pause everything.
        raise NotOneConversation(word, [])
    if word is not None and word.endswith(ELLIPSIS):
        return Scope.parse(find_conversation(database, word, channel=channel))
    scope = Scope.parse(word)
    if scope.key is not None:
        return _whole(database, scope, channel=channel)
    if scope.channel in (None, channel) or _is_paused(database, scope):
        return scope
    with translated(), pymongo.timeout(READ_SECONDS):
        if database[CONVERSATIONS].find_one(starting(f"{scope.channel}/"), {"_id": 1}) is not None:
            return scope
    return Scope.parse(find_conversation(database, str(scope.channel), channel=channel))


def _whole(database: Database[Any], scope: Scope, *, channel: str) -> Scope:
    """The conversation that a start of its id means; as it was typed where it is paused by that."""
    if _is_paused(database, scope):
        return scope
    try:
        return Scope.parse(find_conversation(database, str(scope), channel=channel))
    except NotOneConversation as error:
        if error.found:
            raise
        return scope


def _is_paused(database: Database[Any], scope: Scope) -> bool:
    """Whether this very pause is there: whatever made it, another tool can end it."""
    with translated(), pymongo.timeout(READ_SECONDS):
        return database[CONTROL].find_one({"_id": scope.id}, {"_id": 1}) is not None


def key_of(database: Database[Any], word: str, *, channel: str) -> str:
    """The key that a word means, which may be one that nobody knows yet.

    Raises NotOneConversation where it means several.
    """
    try:
        return find_conversation(database, word, channel=channel).partition("/")[2]
    except NotOneConversation as error:
        if error.found:
            raise
        return word.rpartition("/")[2]


def recent(database: Database[Any], id_: str) -> Recent:
    """What the conversation `<channel>/<key>` did lately. Raises StoreUnavailable."""
    channel, _, key = id_.partition("/")
    whose = {"channel": channel, "key": key}
    with translated(), pymongo.timeout(READ_SECONDS):
        stored = _newest(database, RECVQ, whose, NEWEST_DOCUMENTS, SHOWN)
        held = list(database[HELD].find(whose).sort("n", 1).limit(MOST_FOUND))
        return Recent(
            events=_events(stored, held),
            runs=_newest(database, JOBS, whose, NEWEST_ROWS, {"_id": 0}),
            # A row of `calls` has no channel.
            calls=_newest(database, CALLS, of_key(key), NEWEST_ROWS, LISTED),
            looked={RECVQ: NEWEST_DOCUMENTS, JOBS: NEWEST_ROWS, CALLS: NEWEST_ROWS},
        )


def _newest(
    database: Database[Any],
    collection: str,
    wanted: Mapping[str, Any],
    looked: int,
    shown: Mapping[str, Any],
) -> list[Document]:
    stages: list[Mapping[str, Any]] = [
        {"$limit": looked},
        {"$match": wanted},
        {"$limit": MOST_FOUND},
        {"$project": shown},
    ]
    rows = reported(database, collection).aggregate(stages, hint={"$natural": -1})
    return list(rows)


def _events(stored: list[Document], held: list[Document]) -> list[Document]:
    """Each once; what waits in `held` says so, also where recvq has it no longer."""
    documents = {row["_id"]: row for row in stored}
    for row in held:
        document = row.get("document")
        if row["_id"] not in documents and isinstance(document, Mapping):
            documents[row["_id"]] = {**document, "_id": row["_id"]}
    why = {row["_id"]: row.get("why") for row in held}
    told = [
        {
            EVENT_ID: name_of(document),
            "at": document.get(ACCEPT_TIME),
            "what": dead_letters.what({"document": document}),
            "held": why.get(id_),
        }
        for id_, document in documents.items()
    ]
    return sorted(told, key=_when, reverse=True)


def _when(row: Mapping[str, Any]) -> float:
    at = row["at"]
    return at.timestamp() if isinstance(at, datetime) else 0.0
