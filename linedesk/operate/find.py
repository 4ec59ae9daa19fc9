"""Finds the conversation or the event that a word means.

A word is an id of a user, group, room, event, document, message, effect, dead letter or timer, or
LINE's request id; the start of such an id, or its short form on a screen; or a name in LINE. All
reads use an index or are bounded.
"""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import nsmallest
from typing import Any, Literal

import pymongo
from bson import ObjectId
from pymongo.collection import Collection
from pymongo.database import Database

from linedesk.operate.conversation import known_channels, shown_name
from linedesk.operate.reading import (
    NEWEST_DOCUMENTS,
    between,
    found_rows,
    naming,
    newest_rows,
    reported,
    starting,
)
from linedesk.operate.text import NotDone, NotOneConversation
from linedesk.runtime.language import gettext as _
from linedesk.store.control import PAUSE, Scope
from linedesk.store.documents import (
    CALLS,
    CONTROL,
    CONVERSATIONS,
    DEADLETTERS,
    HELD,
    JOBS,
    RECVQ,
    SCHEDULE,
    Document,
    name_of,
)
from linedesk.store.errors import translated
from linedesk.store.records.calls import REQUEST_ID
from linedesk.store.records.conversations import member_names, own_name
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.timers import SET_BY

READ_SECONDS = 10.0
# At most so many matches of a start or of a name are named.
MOST_NAMED = 20
MOST_FOUND = 50
# An event in `held` is found by its eventId among so many, the oldest.
MOST_HELD = 10_000
# The sign in a shortened id on a screen. A copied short id is found, too.
ELLIPSIS = "…"
SHORTEST_START = 6
# A search by name reads conversations for so long.
NAMES_SECONDS = 2.0
# Combining Diacritical Marks of Unicode.
ACCENTS = ("\u0300", "\u036f")
BATCH = 1_000
# LINE's request ids have no index: a row of `calls` is 180 bytes, so this reads 4 MB at most.
NEWEST_CALLS = 20_000
NAMING: Mapping[str, Any] = dict.fromkeys(("kind", "at", "profile.displayName", "members"), 1)


# Conversations.


def find_conversation(
    database: Database[Any], word: str, *, channel: str, whole_names: bool = False
) -> str:
    """Return the `_id` of the conversation that a word means.

    The word is an id of a user, group or room, `<channel>/<id>`, a unique start of it, the short
    form on a screen, or a name; else a part of a name. With `whole_names`, for acts, it is no part
    of a name, and a name only where the names of all conversations were read. Raises
    NotOneConversation.
    """
    conversations = database[CONVERSATIONS]
    with translated(), pymongo.timeout(READ_SECONDS):
        exact = with_id(conversations, word, channel=channel)
        if exact is not None:
            return str(exact["_id"])
        found = list(_by_id_part(conversations, word))
        if len(found) == 1:
            return str(found[0]["_id"])
        named, unseen = ([], 0) if found else by_name(database, word)
    wholes = [row for row in named if _rank(row, folded(word)) == 0]
    # guard: a-name-of-unread-conversations-is-no-act
    if whole_names and unseen:
        wholes = []
    fits = wholes or ([] if whole_names else named)
    if len(fits) == 1:
        return str(fits[0]["_id"])
    candidates = [_told(row) for row in found or fits or named]
    raise NotOneConversation(word, candidates, unseen=unseen)


def id_part(word: str) -> tuple[str, str]:
    """Return start and end of a typed id: its start, or the short form on a screen.

    An end needs the start before it; without a start every id would be compared.
    """
    start, _sign, end = word.replace("...", ELLIPSIS).partition(ELLIPSIS)
    is_part = len(start) >= SHORTEST_START if end else bool(start)
    return (start, end) if is_part else (word, "")


def with_id(conversations: Collection[Any], word: str, *, channel: str) -> Document | None:
    """Return the conversation of `<channel>/<key>`, or of the key in this channel."""
    wanted = {"_id": {"$in": [word, f"{channel}/{word}"]}}
    found: Document | None = conversations.find_one(wanted, NAMING)
    return found


def _by_id_part(conversations: Collection[Any], word: str) -> Iterator[Document]:
    """Yield the conversations with such an id, or such a key in any channel."""
    start, end = id_part(word)
    places = [start, *(f"{channel}/{start}" for channel in known_channels(conversations))]
    wanted = {"$or": [{"_id": between(place, end)} for place in places]}
    yield from conversations.find(wanted, NAMING).sort("_id", 1).limit(MOST_NAMED)


def by_name(database: Database[Any], word: str) -> tuple[list[Document], int]:
    """Return the conversations whose name is the word, or contains it, and how many were not read.

    At most MOST_NAMED: a whole name comes before its start, and a start before another part; then
    the latest record comes first. The newest conversations are read first, for NAMES_SECONDS at
    most. Raises the errors of the driver.
    """
    wanted, conversations = folded(word), database[CONVERSATIONS]
    if not wanted:
        return [], 0
    until, seen = time.monotonic() + NAMES_SECONDS, 0
    is_whole = True

    def ranked() -> Iterator[tuple[int, Document]]:
        nonlocal seen, is_whole
        with conversations.find({}, NAMING, batch_size=BATCH).hint([("$natural", -1)]) as rows:
            for row in rows:
                seen += 1
                if (rank := _rank(row, wanted)) is not None:
                    yield rank, row
                if seen % BATCH == 0 and time.monotonic() > until:
                    is_whole = False
                    return

    best = nsmallest(MOST_NAMED, ranked(), key=lambda found: (found[0], -at_of(found[1])))
    # The number is an estimate of MongoDB's, which reads no document for it.
    unseen = 0 if is_whole else max(1, conversations.estimated_document_count() - seen)
    return [row for _place, row in best], unseen


def folded(text: str) -> str:
    """The text for comparisons: without accents, width, case and spaces.

    ﾊﾅｺ is ハナコ, ｓａｔｏ is Sato, José is jose. The marks of kana stay: が is not か.
    """
    text = unicodedata.normalize("NFKC", text).casefold()
    marked = unicodedata.normalize("NFKD", text)
    plain = "".join(one for one in marked if not ACCENTS[0] <= one <= ACCENTS[1])
    return "".join(unicodedata.normalize("NFKC", plain).split())


def _rank(row: Mapping[str, Any], wanted: str) -> int | None:
    """Return the rank of its best matching name, the best lowest; None without a match."""
    names = [folded(one) for one in (own_name(row), *member_names(row).values()) if one]
    fits = [
        0 if name == wanted else 1 if name.startswith(wanted) else 2
        for name in names
        if wanted in name
    ]
    return min(fits, default=None)


def at_of(row: Mapping[str, Any]) -> float:
    """Return the `at` of a row in seconds since 1970; a row without it comes first."""
    at = row.get("at")
    return at.timestamp() if isinstance(at, datetime) else 0.0


def _told(row: Mapping[str, Any]) -> str:
    return " ".join(part for part in (row["_id"], row.get("kind"), shown_name(row)) if part)


# Events.


def event_of(database: Database[Any], word: str) -> str:
    """Return the event's name: its eventId, else the `_id` of its document.

    `word` is this name or any other id of the event, its unique start, or its short form. Raises
    NotDone, and the errors of the driver.
    """
    found = _by_index(database, word) or _by_looking(database, word)
    if found is not None:
        return found
    starts = _by_start(database, word)
    if len(starts) == 1:
        return starts[0]
    if starts:
        message = _("{word!r} matches several events: {events}")
        raise NotDone(message.format(word=word, events=", ".join(starts)))
    message = _(
        "nothing is known by {word!r}: it is no id of an event, a message, a dead letter, an "
        "effect or a timer, and no x-line-request-id of the newest {count} calls"
    )
    raise NotDone(message.format(word=word, count=f"{NEWEST_CALLS:,}"))


def _by_index(database: Database[Any], word: str) -> str | None:
    """Return the event of a whole id that has an index."""
    if next(_rows(database, *naming(word), limit=1), None) is not None:
        return word
    found = [*_letters(database, {"_id": word}), *_documents(database, word)]
    if found:
        return found[0]
    # An effect's id is the event's name, a slash and a number. A timer's id has slashes, too.
    event = word.rpartition("/")[0]
    if event and (found_event := _by_index(database, event)) is not None:
        return found_event
    row = database[SCHEDULE].find_one({"_id": word}, {SET_BY: 1}) or {}
    return str(row[SET_BY]) if isinstance(row.get(SET_BY), str) else None


def _by_start(database: Database[Any], word: str) -> list[str]:
    """Return the events with an id that begins with the word, or has it as its short form.

    The ids are those of events, messages and dead letters; each has an index.
    """
    wanted = {"$exists": True, **between(*id_part(word))}
    messages = database[RECVQ].find({"event.message.id": wanted}, {EVENT_ID: 1})
    found = [
        *(str(row[EVENT_ID]) for row in _rows(database, {EVENT_ID: wanted}, limit=MOST_NAMED)),
        *map(name_of, messages.limit(MOST_NAMED)),
        *_letters(database, {"_id": wanted}),
    ]
    return list(dict.fromkeys(found))[:MOST_NAMED]


def _by_looking(database: Database[Any], word: str) -> str | None:
    """Return the event of an id without an index: a bounded number of rows is read."""
    if held_by_event_id(database, word) is not None:
        return word
    # A typed word may be short; a request id has 36 characters.
    start, end = id_part(word)
    wanted = between(start, end) if len(start) >= SHORTEST_START else word
    stages = [*newest_rows(NEWEST_CALLS), {"$match": {REQUEST_ID: wanted}}, {"$limit": 1}]
    rows = reported(database, CALLS).aggregate(stages, hint={"$natural": -1})
    return next((row.get(EVENT_ID) or None for row in rows), None)


def _rows(
    database: Database[Any], of_event: Document, *of_calls: Document, limit: int
) -> Iterator[Document]:
    """Yield rows of recvq, `jobs` and `calls` that match a filter, by an index each."""
    yield from reported(database, RECVQ).find(of_event, {EVENT_ID: 1}).limit(limit)
    for collection, wanted in ((JOBS, [of_event]), (CALLS, [of_event, *of_calls])):
        stages = [*found_rows(*wanted), {"$limit": limit}, {"$project": {EVENT_ID: 1}}]
        yield from reported(database, collection).aggregate(stages)


def _letters(database: Database[Any], wanted: Document) -> Iterator[str]:
    """Yield the events of dead letters."""
    rows = database[DEADLETTERS].find(wanted, {f"effect.{EVENT_ID}": 1}).limit(MOST_NAMED)
    return (str((row.get("effect") or {}).get(EVENT_ID) or row["_id"]) for row in rows)


def _documents(database: Database[Any], word: str) -> Iterator[str]:
    """Yield the events whose document or message has this id."""
    fields = {f"document.{name}": 1 for name in ("_id", EVENT_ID)}
    inside: list[tuple[str, Document]] = [(DEADLETTERS, {"document.event.message.id": word})]
    wanted: list[Document] = [{"event.message.id": word}]
    if ObjectId.is_valid(word):
        wanted.append({"_id": ObjectId(word)})
        inside.append((HELD, {"_id": ObjectId(word)}))
    for one in wanted:
        yield from map(name_of, database[RECVQ].find(one, {EVENT_ID: 1}).limit(1))
    for collection, one in inside:
        row = database[collection].find_one(one, fields) or {}
        document = row.get("document")
        if isinstance(document, Mapping):
            yield name_of({"_id": row["_id"], **document})


def held_by_event_id(database: Database[Any], event_id: str) -> Document | None:
    """Return the row of `held` with this event, among the oldest MOST_HELD."""
    wanted = {"$match": {f"document.{EVENT_ID}": event_id}}
    found = database[HELD].aggregate([{"$limit": MOST_HELD}, wanted, {"$limit": 1}])
    row: Document | None = next(found, None)
    return row


# The search: both.


@dataclass(frozen=True)
class Hit:
    """A conversation or an event that matches a word."""

    kind: Literal["conversation", "event"]
    id: str
    """`<channel>/<key>`, or the event's name."""
    name: str | None = None
    """The name in LINE of the user or group."""
    what: str | None = None
    """user, group or room."""
    at: datetime | None = None
    """The last record of the conversation."""


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
        if (event := _by_index(database, word)) is not None:
            return Found([Hit("event", event)])
        if (exact := with_id(conversations, word, channel=channel)) is not None:
            return Found([_hit(exact)])
        named, unseen = by_name(database, word)
        rows = [*_by_id_part(conversations, word), *named]
        found = {row["_id"]: _hit(row) for row in rows}
        events = _by_start(database, word)
        if not found and not events:
            # Last, because it reads many rows.
            event = _by_looking(database, word)
            events = [] if event is None else [event]
        hits = [*found.values(), *(Hit("event", one) for one in events)]
        return Found(hits[:MOST_FOUND], unseen)


def _hit(row: Mapping[str, Any]) -> Hit:
    """Return a conversation as a match."""
    at = row.get("at") if isinstance(row.get("at"), datetime) else None
    return Hit("conversation", str(row["_id"]), shown_name(row), row.get("kind"), at)


# Scopes.


def scope_of(database: Database[Any], word: str | None, *, channel: str) -> Scope:
    """Return the scope of a pause: everything (`all` or None), a channel, or a conversation.

    A conversation is one that `find_conversation` finds, or a new `<channel>/<key>`. Any other
    word does not count as a channel. Raises NotAScope, NotOneConversation.
    """
    if word is not None and not word.strip():
        # An unset variable in a script must not pause everything.
        raise NotOneConversation(word, [])
    typed = None if word is not None and ELLIPSIS in word else Scope.parse(word)
    if typed is not None and _is_scope(database, typed, channel=channel):
        return typed
    id_ = _meant(database, str(typed or word), channel=channel)
    if id_ is not None:
        return Scope.parse(id_)
    if typed is None or typed.key is None:
        raise NotOneConversation(str(typed or word), [])
    return typed


def _meant(database: Database[Any], word: str, *, channel: str) -> str | None:
    """Return the conversation for an act; None where the word means none."""
    try:
        return find_conversation(database, word, channel=channel, whole_names=True)
    except NotOneConversation as error:
        if error.found:
            raise
    return None


def _is_scope(database: Database[Any], typed: Scope, *, channel: str) -> bool:
    """Return whether it is a known channel, or a pause: any tool can end exactly this pause."""
    if typed.key is None and typed.channel in (None, channel):
        return True
    with translated(), pymongo.timeout(READ_SECONDS):
        if database[CONTROL].find_one({"_id": typed.id, "act": PAUSE}, {"_id": 1}) is not None:
            return True
        known = database[CONVERSATIONS].find_one(starting(f"{typed.channel}/"), {"_id": 1})
        return typed.key is None and known is not None


def is_seen(database: Database[Any], scope: Scope) -> bool:
    """Return whether a conversation is stored, or has events in `held` or the newest of recvq."""
    whose = {"channel": scope.channel, "key": scope.key}
    newest: list[Document] = [{"$limit": NEWEST_DOCUMENTS}, {"$match": whose}, {"$limit": 1}]
    with translated(), pymongo.timeout(READ_SECONDS):
        return (
            database[CONVERSATIONS].find_one({"_id": str(scope)}, {"_id": 1}) is not None
            or database[HELD].find_one(whose, {"_id": 1}) is not None
            or any(reported(database, RECVQ).aggregate(newest, hint={"$natural": -1}))
        )


def key_of(database: Database[Any], word: str, *, channel: str) -> str:
    """Return the key that a word means, which may be a new one.

    Raises NotOneConversation where it means several.
    """
    return (_meant(database, word, channel=channel) or word).rpartition("/")[2]
