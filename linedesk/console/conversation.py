"""One conversation: finding it by an id, a part of one or a name, and reading all of it.

It only reads and locks nothing, so what it shows may be a moment old.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pymongo
from pymongo.collection import Collection
from pymongo.database import Database

from jobworker.bot.states import STATE_TIMER
from linedesk.console.errors import NotOneConversation
from linedesk.console.reading import outbox_of
from linedesk.store.documents import CONVERSATIONS, DEADLETTERS, HELD, SCHEDULE, Document
from linedesk.store.errors import translated
from linedesk.store.records.answers import waiting_in
from linedesk.store.records.effects import TRIED_AT
from linedesk.store.records.letters import LAST_AT, REPLAYED_AT
from linedesk.store.records.timers import RUN_AT

# Of so many that fit a word as many are named.
MOST_NAMED = 20
READ_SECONDS = 10.0
MOST_LETTERS = 1_000
# A shortened id as a screen shows it, so that it can be copied.
ELLIPSIS = "…"
# What is told of an effect: all but tokens and keys.
EFFECT = ("id", "type", "way", "to", "messages", "at", TRIED_AT, "name", RUN_AT, "data", "cause")
# What says who somebody is.
WHO = ("_id", "kind", "profile.displayName", "members")


@dataclass(frozen=True)
class ConversationView:
    """One conversation as it stands in the database."""

    conversation: Document
    outbox: list[Document]
    """What waits in its outbox, in order; each send with its try."""
    timers: list[Document]
    """Its rows of `schedule` that wait, the next one first."""
    held: list[Document]
    """When its documents came to `held`, and why; in their order."""
    letters: int
    """Those of the newest MOST_LETTERS dead letters that were not replayed."""


def find_conversation(database: Database[Any], word: str, *, channel: str) -> str:
    """The `_id` of the conversation that a word means.

    That is an id of a user, group or room, `<channel>/<id>`, a start of it that no other has, or
    a display name. Raises NotOneConversation.
    """
    word = word.removesuffix(ELLIPSIS)
    conversations = database[CONVERSATIONS]
    with translated(), pymongo.timeout(READ_SECONDS):
        for id_ in (word, f"{channel}/{word}"):
            if conversations.find_one({"_id": id_}, {"_id": 1}) is not None:
                return id_
        starts = [starting(word), starting(f"{channel}/{word}")]
        found = _few(conversations, {"$or": starts}) or _few(conversations, _named(word))
    if len(found) != 1:
        raise NotOneConversation(word, [_told(row) for row in found])
    return str(found[0]["_id"])


def read_conversation(database: Database[Any], id_: str) -> ConversationView:
    """All that is known of a conversation. Raises NotOneConversation where it is gone."""
    with translated(), pymongo.timeout(READ_SECONDS):
        conversation = database[CONVERSATIONS].find_one({"_id": id_}, {"applied": 0, "unsent": 0})
        if conversation is None:
            raise NotOneConversation(id_, [])
        whose = dict(zip(("channel", "key"), id_.split("/", 1), strict=True))
        # That which ends a state is told with the state.
        waiting = {**starting(f"{id_}/"), RUN_AT: {"$ne": None}, "name": {"$ne": STATE_TIMER}}
        return ConversationView(
            conversation,
            outbox=outbox_of(database, conversation),
            timers=sorted(database[SCHEDULE].find(waiting), key=lambda row: row[RUN_AT]),
            held=list(database[HELD].find(whose, {"since": 1, "why": 1}).sort("n", 1)),
            letters=_letters(database, whose),
        )


def _letters(database: Database[Any], whose: Mapping[str, str]) -> int:
    """How many of the newest letters are its, since they have no index by conversation."""
    stages: list[Mapping[str, Any]] = [
        {"$sort": {LAST_AT: -1}},
        {"$limit": MOST_LETTERS},
        {"$match": {**whose, REPLAYED_AT: None}},
        {"$count": "letters"},
    ]
    return next((int(row["letters"]) for row in database[DEADLETTERS].aggregate(stages)), 0)


def conversation_summary(view: ConversationView) -> Document:
    """What is told of it, under the names of the JSON."""
    found = view.conversation
    return {
        "id": found["_id"],
        "channel": found.get("channel"),
        "key": found.get("key"),
        "kind": found.get("kind"),
        "name": _name(found),
        "friend": found.get("friend"),
        **_place(found),
        "members": [
            {"user": user, "name": _names(found).get(user), **_place(place)}
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
        "deadLetters": view.letters,
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
        "member": _names(conversation).get(member, member) if member else None,
        "at": row[RUN_AT],
        "every": f"{every['at']} {every['tz']}" if every else None,
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
    """Those that wait for a tap on their button."""
    entries = [one for _, one in waiting_in(conversation)]
    since = [one["at"] for one in entries if "at" in one]
    return {"waiting": len(entries), "oldest": min(since, default=None)}


def _name(conversation: Mapping[str, Any]) -> str | None:
    """The name in LINE of the user, or of the members of the group as far as they are known."""
    own = (conversation.get("profile") or {}).get("displayName")
    return own or "、".join(_names(conversation).values()) or None


def _names(conversation: Mapping[str, Any]) -> dict[str, str]:
    members = (conversation.get("members") or {}).items()
    return {user: told["displayName"] for user, told in members if told.get("displayName")}


def names_of(database: Database[Any], ids: Iterable[str]) -> dict[str, str]:
    """Names in LINE of the conversations `<channel>/<key>`, as far as they are known.

    Raises what the driver raises.
    """
    wanted = {"_id": {"$in": sorted(set(ids))}}
    rows = database[CONVERSATIONS].find(wanted, list(WHO))
    return {row["_id"]: name for row in rows if (name := _name(row))}


def starting(text: str) -> Document:
    """The ids that begin with a text, read by their index."""
    return {"_id": {"$gte": text, "$lt": f"{text}{chr(sys.maxunicode)}"}}


def _named(word: str) -> Document:
    """By another channel's key, or by a name: every conversation has to be looked at."""
    members = {"$objectToArray": {"$ifNull": ["$members", {}]}}
    names = {"$map": {"input": members, "in": "$$this.v.displayName"}}
    return {
        "$or": [
            {"key": word},
            {"profile.displayName": word},
            # Only groups have members: to look into every conversation takes ten times as long.
            {"kind": {"$in": ["group", "room"]}, "$expr": {"$in": [word, names]}},
        ]
    }


def _few(conversations: Collection[Any], condition: Document) -> list[Document]:
    return list(conversations.find(condition, list(WHO)).sort("_id", 1).limit(MOST_NAMED))


def _told(row: Mapping[str, Any]) -> str:
    return " ".join(part for part in (row["_id"], row.get("kind"), _name(row)) if part)
