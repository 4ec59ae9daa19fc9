"""The search for a word, and what a word in a command means.

A word is an id of a user, group, room, event, message, dead letter or timer, LINE's request id, the
start of an id or its short form on a screen, or a part of a name in LINE.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import pymongo
from pymongo.database import Database

from linedesk.operate import dead_letters
from linedesk.operate.conversation import (
    ELLIPSIS,
    MOST_NAMED,
    NAMING,
    by_id_part,
    by_name,
    find_conversation,
    names_of,
    shown_name,
    starting,
    with_id,
)
from linedesk.operate.errors import NotOneConversation
from linedesk.operate.events.tracing import by_index, by_looking, by_start
from linedesk.operate.reading import reported
from linedesk.store.control import PAUSE, Scope
from linedesk.store.documents import (
    CONTROL,
    CONVERSATIONS,
    HELD,
    RECVQ,
)
from linedesk.store.errors import translated
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID

# Some 5 MB: a few hundredths of a second.
NEWEST_DOCUMENTS = 5_000
READ_SECONDS = 10.0
MOST_FOUND = 50
SHOWN = {EVENT_ID: 1, ACCEPT_TIME: 1, "unsent": 1, "event.type": 1, "event.message.type": 1}


@dataclass(frozen=True)
class Hit:
    """A conversation or an event that matches a word."""

    kind: Literal["conversation", "event"]
    id: str
    """`<channel>/<key>`, or the event's name."""
    name: str | None = None
    """The name in LINE of the user or group."""
    what: str | None = None
    """user, group or room of a conversation; the type of an event."""
    at: datetime | None = None
    """The last record of the conversation, or the arrival of the event."""


@dataclass(frozen=True)
class Found:
    """The matches of a word, the best first, MOST_FOUND at most."""

    hits: Sequence[Hit] = ()
    unseen: int = 0
    """How many conversations' names were not read."""


def search(database: Database[Any], word: str, *, channel: str) -> Found:
    """Return the matches of a word.

    A whole id has one match. Otherwise starts of ids come before names. Raises StoreUnavailable.
    """
    word = word.strip()
    if not word:
        return Found()
    conversations = database[CONVERSATIONS]
    with translated(), pymongo.timeout(READ_SECONDS):
        if (event := by_index(database, word)) is not None:
            return Found(_event_hits(database, [event]))
        if (exact := with_id(conversations, word, channel=channel)) is not None:
            return Found([_conversation_hit(exact)])
        condition = by_id_part(conversations, word)
        named = by_name(database, word)
        rows = [*conversations.find(condition, NAMING).limit(MOST_NAMED), *named.rows]
        found = {row["_id"]: _conversation_hit(row) for row in rows}
        events = by_start(database, word)
        if not found and not events:
            # Last, because it reads many rows.
            event = by_looking(database, word)
            events = [] if event is None else [event]
        hits = [*found.values(), *_event_hits(database, events)]
        return Found(hits[:MOST_FOUND], named.unseen)


def _conversation_hit(row: Mapping[str, Any]) -> Hit:
    at = row.get("at")
    return Hit(
        "conversation",
        str(row["_id"]),
        name=shown_name(row),
        what=row.get("kind"),
        at=at if isinstance(at, datetime) else None,
    )


def _event_hits(database: Database[Any], names: Sequence[str]) -> list[Hit]:
    """Return the events with the names of their users, where recvq has them."""
    fields = {**SHOWN, "channel": 1, "key": 1}
    rows = {
        row[EVENT_ID]: row for row in database[RECVQ].find({EVENT_ID: {"$in": list(names)}}, fields)
    }
    ids = {name: f"{row.get('channel')}/{row.get('key')}" for name, row in rows.items()}
    people = names_of(database, ids.values())
    return [
        Hit(
            "event",
            name,
            name=people.get(ids.get(name, "")),
            what=dead_letters.what({"document": rows[name]}) if name in rows else None,
            at=rows[name].get(ACCEPT_TIME) if name in rows else None,
        )
        for name in names
    ]


def scope_of(database: Database[Any], word: str | None, *, channel: str) -> Scope:
    """Return the scope of a pause: everything (`all` or None), a channel, or a conversation.

    A conversation is one that `find_conversation` finds, or a new `<channel>/<key>`. Any other
    word does not count as a channel. Raises NotAScope, NotOneConversation.
    """
    if word is not None and not word.strip():
        # An unset variable in a script must not pause everything.
        raise NotOneConversation(word, [])
    if word is not None and ELLIPSIS in word:
        return Scope.parse(find_conversation(database, word, channel=channel, whole_names=True))
    scope = Scope.parse(word)
    if scope.key is not None:
        return _whole(database, scope, channel=channel)
    if scope.channel in (None, channel) or _is_paused(database, scope):
        return scope
    with translated(), pymongo.timeout(READ_SECONDS):
        if database[CONVERSATIONS].find_one(starting(f"{scope.channel}/"), {"_id": 1}) is not None:
            return scope
    return Scope.parse(
        find_conversation(database, str(scope.channel), channel=channel, whole_names=True)
    )


def _whole(database: Database[Any], scope: Scope, *, channel: str) -> Scope:
    """Return the conversation with this start of an id; the typed one where that is paused."""
    if _is_paused(database, scope):
        return scope
    try:
        return Scope.parse(
            find_conversation(database, str(scope), channel=channel, whole_names=True)
        )
    except NotOneConversation as error:
        if error.found:
            raise
        return scope


def _is_paused(database: Database[Any], scope: Scope) -> bool:
    """Return whether exactly this pause exists, so that any tool can end it."""
    with translated(), pymongo.timeout(READ_SECONDS):
        paused = {"_id": scope.id, "act": PAUSE}
        return database[CONTROL].find_one(paused, {"_id": 1}) is not None


def is_seen(database: Database[Any], scope: Scope) -> bool:
    """Return whether a conversation is stored, or has events in `held` or the newest of recvq."""
    whose = {"channel": scope.channel, "key": scope.key}
    with translated(), pymongo.timeout(READ_SECONDS):
        return (
            database[CONVERSATIONS].find_one({"_id": str(scope)}, {"_id": 1}) is not None
            or database[HELD].find_one(whose, {"_id": 1}) is not None
            or _is_in_queue(database, whose)
        )


def _is_in_queue(database: Database[Any], whose: Mapping[str, Any]) -> bool:
    """Whether an event of it is among the newest documents of recvq."""
    stages: list[Mapping[str, Any]] = [
        *({"$limit": NEWEST_DOCUMENTS}, {"$match": whose}),
        *({"$limit": 1}, {"$project": {"_id": 1}}),
    ]
    return bool(list(reported(database, RECVQ).aggregate(stages, hint={"$natural": -1})))


def key_of(database: Database[Any], word: str, *, channel: str) -> str:
    """Return the key that a word means, which may be a new one.

    Raises NotOneConversation where it means several.
    """
    try:
        found = find_conversation(database, word, channel=channel, whole_names=True)
        return found.partition("/")[2]
    except NotOneConversation as error:
        if error.found:
            raise
        return word.rpartition("/")[2]
