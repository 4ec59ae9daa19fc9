"""Finds the event that belongs to any id that an operator has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bson import ObjectId
from bson.errors import InvalidId
from pymongo.database import Database

from linedesk.operate.conversation import SHORTEST_START, between, id_part
from linedesk.operate.errors import NoSuchEvent, Phrase
from linedesk.operate.reading import found_rows, naming, newest_rows, reported
from linedesk.runtime.language import mark
from linedesk.store.documents import (
    CALLS,
    DEADLETTERS,
    HELD,
    JOBS,
    RECVQ,
    SCHEDULE,
    Document,
    name_of,
)
from linedesk.store.records.calls import REQUEST_ID
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.timers import SET_BY

# LINE's request ids have no index: a row of `calls` is 180 bytes, so this reads 4 MB at most.
NEWEST_CALLS = 20_000
# `held` has no index by event id.
MOST_HELD = 10_000
# At most so many matches of a start are named.
MOST_STARTS = 20


def event_of(database: Database[Any], word: str) -> str:
    """Return the event's name: its eventId, else the `_id` of its document.

    `word` is this name, or the id of a document, a message, an effect, a dead letter, a timer, or
    the x-line-request-id of a call; else the unique start of an id, or its short form. Raises
    NoSuchEvent, and the errors of the driver.
    """
    found = by_index(database, word) or by_looking(database, word)
    if found is not None:
        return found
    starts = by_start(database, word)
    if len(starts) == 1:
        return starts[0]
    if starts:
        message = mark("{word!r} matches several events: {events}")
        raise NoSuchEvent(Phrase(message, word=word, events=", ".join(starts)))
    message = mark(
        "nothing is known by {word!r}: it is no id of an event, a message, a dead letter, an "
        "effect or a timer, and no x-line-request-id of the newest {count} calls"
    )
    raise NoSuchEvent(Phrase(message, word=word, count=f"{NEWEST_CALLS:,}"))


def by_index(database: Database[Any], word: str) -> str | None:
    """Return the event of an id that has an index."""
    looks = (_as_event, _as_document, _as_effect, _as_timer, _as_message)
    return next((found for look in looks if (found := look(database, word)) is not None), None)


def by_start(database: Database[Any], word: str) -> list[str]:
    """Return the events with an id that begins with the word, or has it as its short form.

    The ids are those of events, messages and dead letters; each has an index.
    """
    wanted = {"$exists": True, **between(*id_part(word))}
    found: dict[str, None] = {}
    for row in _rows(database, {EVENT_ID: wanted}, limit=MOST_STARTS):
        found[str(row[EVENT_ID])] = None
    messages = database[RECVQ].find({"event.message.id": wanted}, {EVENT_ID: 1})
    found |= {name_of(row): None for row in messages.limit(MOST_STARTS)}
    letters = database[DEADLETTERS].find({"_id": wanted}, {f"effect.{EVENT_ID}": 1})
    for row in letters.limit(MOST_STARTS):
        found[str((row.get("effect") or {}).get(EVENT_ID) or row["_id"])] = None
    return list(found)[:MOST_STARTS]


def by_looking(database: Database[Any], word: str) -> str | None:
    """Return the event of an id without an index: a bounded number of rows is read."""
    return _as_held(database, word) or _as_request(database, word)


def _rows(
    database: Database[Any], of_event: Document, *of_calls: Document, limit: int
) -> Iterator[Document]:
    """Yield rows of recvq, `jobs` and `calls` that match a filter, by an index each."""
    yield from reported(database, RECVQ).find(of_event, {EVENT_ID: 1}).limit(limit)
    for collection, wanted in ((JOBS, [of_event]), (CALLS, [of_event, *of_calls])):
        stages = [*found_rows(*wanted), {"$limit": limit}, {"$project": {EVENT_ID: 1}}]
        yield from reported(database, collection).aggregate(stages)


def _as_event(database: Database[Any], word: str) -> str | None:
    if next(_rows(database, *naming(word), limit=1), None) is not None:
        return word
    letter = database[DEADLETTERS].find_one(
        {"_id": word}, {"document._id": 1, f"effect.{EVENT_ID}": 1}
    )
    if letter is None:
        return None
    return str((letter.get("effect") or {}).get(EVENT_ID) or word)


def _as_document(database: Database[Any], word: str) -> str | None:
    try:
        id_ = ObjectId(word)
    except InvalidId:
        return None
    document = database[RECVQ].find_one({"_id": id_}, {EVENT_ID: 1})
    if document is None:
        held = database[HELD].find_one({"_id": id_}, {f"document.{EVENT_ID}": 1}) or {}
        document = {**(held.get("document") or {}), "_id": id_} if held else None
    return None if document is None else name_of(document)


def _as_effect(database: Database[Any], word: str) -> str | None:
    """Return the event of an effect, whose id is the event's name, a slash and a number."""
    for event in _before_slashes(word):
        found = _as_event(database, event)
        if found is not None:
            return found
    return None


def _before_slashes(word: str) -> Iterator[str]:
    while "/" in word:
        word = word.rpartition("/")[0]
        yield word


def _as_timer(database: Database[Any], word: str) -> str | None:
    """Return the event that set a timer."""
    row = database[SCHEDULE].find_one({"_id": word}, {SET_BY: 1})
    if row is not None and isinstance(row.get(SET_BY), str):
        return str(row[SET_BY])
    return None


def _as_message(database: Database[Any], word: str) -> str | None:
    document = database[RECVQ].find_one({"event.message.id": word}, {EVENT_ID: 1})
    if document is None:
        wanted = {"document.event.message.id": word}
        letter = database[DEADLETTERS].find_one(
            wanted, {f"document.{EVENT_ID}": 1, "document._id": 1}
        )
        document = _whole((letter or {}).get("document"))
    return None if document is None else name_of(document)


def _as_held(database: Database[Any], word: str) -> str | None:
    """Return an event in `held` that recvq does not have any more and that never ran."""
    return None if held_by_event_id(database, word) is None else word


def held_by_event_id(database: Database[Any], event_id: str) -> Document | None:
    """Return the row of `held` with this event, among the oldest MOST_HELD."""
    stages: list[Mapping[str, Any]] = [
        {"$limit": MOST_HELD},
        {"$match": {f"document.{EVENT_ID}": event_id}},
        {"$limit": 1},
    ]
    found: Document | None = next(database[HELD].aggregate(stages), None)
    return found


def _whole(document: Any) -> Document | None:
    return dict(document) if isinstance(document, Mapping) and "_id" in document else None


def _as_request(database: Database[Any], word: str) -> str | None:
    # A typed word may be short; a request id has 36 characters.
    start, end = id_part(word)
    wanted = between(start, end) if len(start) >= SHORTEST_START else word
    stages: list[Mapping[str, Any]] = [
        *newest_rows(NEWEST_CALLS),
        {"$match": {REQUEST_ID: wanted}},
        {"$limit": 1},
    ]
    for row in reported(database, CALLS).aggregate(stages, hint={"$natural": -1}):
        return row.get(EVENT_ID) or None
    return None
