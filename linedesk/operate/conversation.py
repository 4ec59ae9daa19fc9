"""One conversation: finding it by an id, a part of an id or a name, and reading all of it.

It only reads and locks nothing, so a result may be a moment old.
"""

from __future__ import annotations

import re
import sys
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import nsmallest
from typing import Any

import pymongo
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import OperationFailure

from linedesk.operate.dead_letters import LISTED
from linedesk.operate.errors import NotOneConversation
from linedesk.operate.reading import outbox_of
from linedesk.store.control import DONE_AT, RELEASE, Release
from linedesk.store.documents import (
    CONTROL,
    CONVERSATIONS,
    DEADLETTERS,
    HELD,
    SCHEDULE,
    Document,
)
from linedesk.store.errors import UNAUTHORIZED, translated
from linedesk.store.records.answers import waiting_in
from linedesk.store.records.conversations import (
    FORMER_NAMES,
    member_names,
    own_name,
)
from linedesk.store.records.effects import TRIED_AT
from linedesk.store.records.letters import LAST_AT, REPLAYED_AT
from linedesk.store.records.timers import RUN_AT, SET_BY
from linedesk.store.timers import STATE_TIMER

# At most so many matches are named.
MOST_NAMED = 20
READ_SECONDS = 10.0
MOST_LETTERS = 1_000
# The sign in a shortened id on a screen. A copied short id is found, too.
ELLIPSIS = "…"
SHORTEST_START = 6
# The shown fields of an effect: all but tokens and keys.
EFFECT = (
    "id",
    "type",
    "way",
    "to",
    "messages",
    "at",
    TRIED_AT,
    "name",
    RUN_AT,
    "data",
    "cause",
    "about",
)
MOST_CHANNELS = 50
MOST_IN_A_NAME = 3
# A search by name reads conversations for so long.
NAMES_SECONDS = 2.0
# The ranks of whole names.
WHOLE = ((0, False), (0, True))
# Combining Diacritical Marks of Unicode.
ACCENTS = ("\u0300", "\u036f")
BATCH = 1_000
NAMING: Mapping[str, Any] = dict.fromkeys(("kind", "at", "profile.displayName", "members"), 1)
# A group can have 200 members. They are read only where it has no name of its own.
NAME_ONLY: Mapping[str, Any] = {
    "profile.displayName": 1,
    "members": {"$cond": [{"$gt": ["$profile.displayName", None]}, "$$REMOVE", "$members"]},
}


@dataclass(frozen=True)
class ConversationView:
    """One conversation as stored."""

    conversation: Document
    outbox: list[Document]
    """The effects in its outbox, in order; each send with its try."""
    timers: list[Document]
    """Its waiting rows of `schedule`, the next one first."""
    held: list[Document]
    """Time and reason of its documents in `held`, in order."""
    letters: list[Document]
    """Its dead letters among the newest MOST_LETTERS, without their contents; the newest first."""
    release: OrderedRelease | None = None


@dataclass(frozen=True)
class OrderedRelease:
    """The last release of a conversation that was ordered within a day."""

    by: str
    at: datetime
    what: str
    """The id of the event or send."""
    outcome: str | None
    """None until a dispatcher confirms it."""


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
        found = _few(conversations, by_id_part(conversations, word))
        if len(found) == 1:
            return str(found[0]["_id"])
        named = Named() if found else by_name(database, word)
    wholes = [row for row in named.rows if _rank(row, folded(word)) in WHOLE]
    # guard: a-name-of-unread-conversations-is-no-act
    if whole_names and named.unseen:
        wholes = []
    fits = wholes or ([] if whole_names else named.rows)
    if len(fits) == 1:
        return str(fits[0]["_id"])
    raise NotOneConversation(
        word, [_told(row) for row in found or fits or named.rows], unseen=named.unseen
    )


def read_conversation(database: Database[Any], id_: str) -> ConversationView:
    """Return a conversation with everything that belongs to it.

    Raises NotOneConversation where it is gone.
    """
    with translated(), pymongo.timeout(READ_SECONDS):
        conversation = database[CONVERSATIONS].find_one(
            {"_id": id_}, {"applied": 0, "unsent": 0, FORMER_NAMES: 0}
        )
        if conversation is None:
            raise NotOneConversation(id_, [])
        whose = dict(zip(("channel", "key"), id_.split("/", 1), strict=True))
        # The timer that ends a state is shown with the state.
        waiting = {**starting(f"{id_}/"), RUN_AT: {"$ne": None}, "name": {"$ne": STATE_TIMER}}
        return ConversationView(
            conversation,
            outbox=outbox_of(database, conversation),
            timers=sorted(database[SCHEDULE].find(waiting), key=lambda row: row[RUN_AT]),
            held=list(database[HELD].find(whose, {"since": 1, "why": 1}).sort("n", 1)),
            letters=_letters(database, whose),
            release=_release(database, id_),
        )


def _letters(database: Database[Any], whose: Mapping[str, str]) -> list[Document]:
    """Return its letters among the newest ones: they have no index by conversation."""
    stages: list[Mapping[str, Any]] = [
        {"$sort": {LAST_AT: -1}},
        {"$limit": MOST_LETTERS},
        {"$match": whose},
        {"$project": dict.fromkeys(LISTED, 1)},
    ]
    return list(database[DEADLETTERS].aggregate(stages))


def _release(database: Database[Any], id_: str) -> OrderedRelease | None:
    row = database[CONTROL].find_one({"_id": f"{RELEASE}/{id_}"})
    release = Release.from_row(row) if row else None
    if row is None or release is None:
        return None
    outcome = row.get("came") if row.get(DONE_AT) is not None else None
    return OrderedRelease(release.by, release.at, release.name, outcome)


def conversation_summary(view: ConversationView) -> Document:
    """Return its summary, under the names of the JSON."""
    found = view.conversation
    return {
        "id": found["_id"],
        "channel": found.get("channel"),
        "key": found.get("key"),
        "kind": found.get("kind"),
        "name": shown_name(found),
        "friend": found.get("friend"),
        **_place(found),
        "members": [
            {"user": user, "name": member_names(found).get(user), **_place(place)}
            for user, place in (found.get("states") or {}).items()
        ],
        "timers": [_timer(row, found) for row in view.timers],
        "outbox": _outbox(view.outbox),
        "answers": _answers(found),
        "held": {
            "count": len(view.held),
            "since": min((row["since"] for row in view.held), default=None),
            "why": view.held[0]["why"] if view.held else None,
        },
        "deadLetters": sum(row.get(REPLAYED_AT) is None for row in view.letters),
        "records": found.get("n", 0),
        "at": found.get("at"),
    }


def _place(place: Mapping[str, Any]) -> Document:
    return {
        "state": place.get("state"),
        "until": place.get("until"),
        "data": place.get("data") or {},
    }


def _timer(row: Mapping[str, Any], conversation: Mapping[str, Any]) -> Document:
    member, _, name = row["_id"].removeprefix(f"{conversation['_id']}/").rpartition("/")
    every = row.get("every")
    return {
        "name": name,
        "member": member_names(conversation).get(member, member) if member else None,
        "at": row[RUN_AT],
        "every": f"{every['at']} {every['tz']}" if every else None,
        SET_BY: row.get(SET_BY),
        "data": row.get("data") or {},
    }


def _outbox(effects: Sequence[Mapping[str, Any]]) -> Document:
    return {
        "count": len(effects),
        "oldest": min((one["at"] for one in effects if "at" in one), default=None),
        "tried": sum(one.get(TRIED_AT) is not None for one in effects),
        "effects": [{name: one[name] for name in EFFECT if name in one} for one in effects],
    }


def _answers(conversation: Mapping[str, Any]) -> Document:
    """Return the answers that wait for a tap on their button."""
    entries = [one for _, one in waiting_in(conversation)]
    since = [one["at"] for one in entries if "at" in one]
    return {"waiting": len(entries), "oldest": min(since, default=None)}


def shown_name(conversation: Mapping[str, Any]) -> str | None:
    """Return the name in LINE of the user or group, else the known names of its members."""
    own = own_name(conversation)
    if own:
        return own
    names = list(member_names(conversation).values())
    more = len(names) - MOST_IN_A_NAME
    return "、".join(names[:MOST_IN_A_NAME]) + (f" +{more}" if more > 0 else "") or None


def names_of(database: Database[Any], ids: Iterable[str]) -> dict[str, str]:
    """Return the known names in LINE of the conversations `<channel>/<key>`.

    It is empty where the MongoDB user may not read conversations. Raises the errors of the driver.
    """
    wanted = {"_id": {"$in": sorted(set(ids))}}
    try:
        rows = list(database[CONVERSATIONS].find(wanted, NAME_ONLY))
    except OperationFailure as error:
        if error.code != UNAUTHORIZED:
            raise
        return {}
    return {row["_id"]: name for row in rows if (name := shown_name(row))}


def with_names(
    database: Database[Any], rows: Iterable[Mapping[str, Any]], *, channel: str
) -> list[Document]:
    """Return the rows, each with the `name` of its conversation; None where it is not known.

    `channel` is the channel of rows that name none. Raises StoreUnavailable.
    """
    listed = [(row, _id_of(row, channel)) for row in rows]
    with translated(), pymongo.timeout(READ_SECONDS):
        names = names_of(database, (id_ for _, id_ in listed if id_ is not None))
    return [{**row, "name": names.get(id_ or "")} for row, id_ in listed]


def _id_of(row: Mapping[str, Any], channel: str) -> str | None:
    key = row.get("key")
    return f"{row.get('channel') or channel}/{key}" if isinstance(key, str) and key else None


def starting(text: str) -> Document:
    """Return the condition for ids that begin with a text; the index serves it."""
    return {"_id": between(text)}


def between(start: str, end: str = "") -> Document:
    """Return the condition for values with this start and end; an index of the field serves it."""
    ends = {"$regex": f"{re.escape(end)}$"} if end else {}
    return {"$gte": start, "$lt": f"{start}{chr(sys.maxunicode)}", **ends}


def id_part(word: str) -> tuple[str, str]:
    """Return start and end of a typed id: its start, or the short form on a screen.

    An end needs the start before it; without a start every id would be compared.
    """
    start, _, end = word.replace("...", ELLIPSIS).partition(ELLIPSIS)
    is_part = len(start) >= SHORTEST_START if end else bool(start)
    return (start, end) if is_part else (word, "")


def with_id(conversations: Collection[Any], word: str, *, channel: str) -> Document | None:
    """Return the conversation of `<channel>/<key>`, or of the key in this channel."""
    wanted = {"_id": {"$in": [word, f"{channel}/{word}"]}}
    found: Document | None = conversations.find_one(wanted, NAMING)
    return found


def by_id_part(conversations: Collection[Any], word: str) -> Document:
    """Return the filter for conversations with such an id, or such a key in any channel."""
    start, end = id_part(word)
    places = [start, *(f"{channel}/{start}" for channel in known_channels(conversations))]
    return {"$or": [{"_id": between(place, end)} for place in places]}


def known_channels(conversations: Collection[Any]) -> Iterator[str]:
    """Yield the channels of all conversations, MOST_CHANNELS at most, by one index read each."""
    after = ""
    for _ in range(MOST_CHANNELS):
        row = conversations.find_one({"_id": {"$gt": after}}, {"_id": 1}, sort=[("_id", 1)])
        if row is None:
            return
        channel = row["_id"].partition("/")[0]
        yield channel
        after = f"{channel}/{chr(sys.maxunicode)}"


@dataclass(frozen=True)
class Named:
    """The conversations with a name, the best match first, and how many were not read."""

    rows: Sequence[Document] = ()
    unseen: int = 0


def by_name(database: Database[Any], word: str) -> Named:
    """Return the conversations whose name is the word, or contains it: MOST_NAMED at most.

    A conversation's own name comes before a member's, a whole name before its start, and a start
    before another part; then the latest record comes first. The newest conversations are read
    first, for NAMES_SECONDS at most. Raises the errors of the driver.
    """
    wanted, conversations = folded(word), database[CONVERSATIONS]
    if not wanted:
        return Named()
    until, seen = time.monotonic() + NAMES_SECONDS, 0
    is_whole = True

    def ranked() -> Iterator[tuple[tuple[int, bool], Document]]:
        nonlocal seen, is_whole
        with conversations.find({}, NAMING, batch_size=BATCH).hint([("$natural", -1)]) as rows:
            for row in rows:
                seen += 1
                if (rank := _rank(row, wanted)) is not None:
                    yield rank, row
                if seen % BATCH == 0 and time.monotonic() > until:
                    is_whole = False
                    return

    best = nsmallest(MOST_NAMED, ranked(), key=lambda found: (found[0], -_recency(found[1])))
    # The number is an estimate of MongoDB's, which reads no document for it.
    unseen = 0 if is_whole else max(1, conversations.estimated_document_count() - seen)
    return Named([row for _, row in best], unseen)


def folded(text: str) -> str:
    """The text for comparisons: without accents, width, case and spaces.

    ﾊﾅｺ is ハナコ, ｓａｔｏ is Sato, José is jose. The marks of kana stay: が is not か.
    """
    text = unicodedata.normalize("NFKC", text).casefold()
    marked = unicodedata.normalize("NFKD", text)
    plain = "".join(one for one in marked if not ACCENTS[0] <= one <= ACCENTS[1])
    return "".join(unicodedata.normalize("NFKC", plain).split())


def _rank(row: Mapping[str, Any], wanted: str) -> tuple[int, bool] | None:
    """Return the rank of its best matching name, the best lowest; None without a match."""
    own = own_name(row)
    names = [(own, False)] if own else []
    names += [(name, True) for name in member_names(row).values()]
    fits = [
        (0 if name == wanted else 1 if name.startswith(wanted) else 2, is_members)
        for name, is_members in ((folded(name), is_members) for name, is_members in names)
        if wanted in name
    ]
    return min(fits, default=None)


def _recency(row: Mapping[str, Any]) -> float:
    at = row.get("at")
    return at.timestamp() if isinstance(at, datetime) else 0.0


def _few(conversations: Collection[Any], condition: Document) -> list[Document]:
    return list(conversations.find(condition, NAMING).sort("_id", 1).limit(MOST_NAMED))


def _told(row: Mapping[str, Any]) -> str:
    return " ".join(part for part in (row["_id"], row.get("kind"), shown_name(row)) if part)
