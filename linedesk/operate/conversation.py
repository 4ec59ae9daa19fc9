"""One conversation with everything that belongs to it, and the names, channels and lists of many.

It only reads and locks nothing, so a result may be a moment old.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pymongo
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import OperationFailure

from linedesk.operate.dead_letters import LISTED, summary
from linedesk.operate.processes import listed, present_leader
from linedesk.operate.reading import NEWEST_DOCUMENTS, outbox_of, reported, starting
from linedesk.operate.text import NotOneConversation, known
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark
from linedesk.store.control import DONE_AT, RELEASE, Pauses, Release
from linedesk.store.documents import (
    CONTROL,
    CONVERSATIONS,
    DEADLETTERS,
    HELD,
    RECVQ,
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
from linedesk.store.records.effects import OUTBOX, OUTBOX_PAIRS, SEND, TRIED_AT, WITH_OUTBOX
from linedesk.store.records.events import ACCEPT_TIME
from linedesk.store.records.letters import LAST_AT, REPLAYED_AT
from linedesk.store.records.timers import RUN_AT, SET_BY
from linedesk.store.timers import STATE_TIMER

READ_SECONDS = 10.0
MOST_LETTERS = 1_000
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
MOST_CONVERSATIONS = 200
MOST_HELD = 10_000
# A shorter wait needs no operator.
LEAST_WAIT = timedelta(seconds=2)
# So many conversations with one cause are one line.
MANY = 3
UNSENT = mark("LINE has not taken its sends yet")
NOT_SET = mark("its timers are not set yet")
MOST_CHANNELS = 50
MOST_IN_A_NAME = 3
# A group can have 200 members. They are read only where it has no name of its own.
NAME_ONLY: Mapping[str, Any] = {
    "profile.displayName": 1,
    "members": {"$cond": [{"$gt": ["$profile.displayName", None]}, "$$REMOVE", "$members"]},
}


def read_conversation(database: Database[Any], id_: str) -> Document:
    """Return the summary of a conversation.

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
        return conversation_summary(
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


def _release(database: Database[Any], id_: str) -> Document | None:
    row = database[CONTROL].find_one({"_id": f"{RELEASE}/{id_}"})
    release = Release.from_row(row) if row else None
    if row is None or release is None:
        return None
    outcome = row.get("came") if row.get(DONE_AT) is not None else None
    return {"by": release.by, "at": release.at, "what": release.name, "outcome": outcome}


def conversation_summary(
    found: Document,
    *,
    outbox: Sequence[Document] = (),
    timers: Sequence[Document] = (),
    held: Sequence[Document] = (),
    letters: Sequence[Document] = (),
    release: Document | None = None,
) -> Document:
    """Return the summary of a conversation, under the names of the JSON.

    `outbox` has the waiting effects in order, each send with its try; `timers` the waiting rows of
    `schedule`, the next one first; `held` time and reason of its documents there, in order;
    `letters` its dead letters among the newest MOST_LETTERS, the newest first; `release` its last
    one within a day: by, at, what, and outcome, None until a dispatcher confirms it.
    """
    answers = [one for _place, one in waiting_in(found)]
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
        "timers": [_timer(row, found) for row in timers],
        "outbox": {
            "count": len(outbox),
            "oldest": _oldest(outbox),
            "tried": sum(one.get(TRIED_AT) is not None for one in outbox),
            "effects": [{name: one[name] for name in EFFECT if name in one} for one in outbox],
        },
        # The answers that wait for a tap on their button.
        "answers": {"waiting": len(answers), "oldest": _oldest(answers)},
        "held": {
            "count": len(held),
            "since": min((row["since"] for row in held), default=None),
            "why": held[0]["why"] if held else None,
        },
        "names": member_names(found),
        "release": release,
        "letters": [summary(row) for row in letters],
        "deadLetters": sum(row.get(REPLAYED_AT) is None for row in letters),
        "records": found.get("n", 0),
        "at": found.get("at"),
    }


def _oldest(rows: Sequence[Mapping[str, Any]]) -> datetime | None:
    return min((one["at"] for one in rows if "at" in one), default=None)


def _place(place: Mapping[str, Any]) -> Document:
    return {
        "state": place.get("state"),
        "until": place.get("until"),
        "data": place.get("data") or {},
    }


def _timer(row: Mapping[str, Any], conversation: Mapping[str, Any]) -> Document:
    member, _slash, name = row["_id"].removeprefix(f"{conversation['_id']}/").rpartition("/")
    every = row.get("every")
    return {
        "name": name,
        "member": member_names(conversation).get(member, member) if member else None,
        "at": row[RUN_AT],
        "every": f"{every['at']} {every['tz']}" if every else None,
        SET_BY: row.get(SET_BY),
        "data": row.get("data") or {},
    }


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
    found = [(row, _id_of(row, channel)) for row in rows]
    with translated(), pymongo.timeout(READ_SECONDS):
        names = names_of(database, (id_ for _row, id_ in found if id_ is not None))
    return [{**row, "name": names.get(id_ or "")} for row, id_ in found]


def _id_of(row: Mapping[str, Any], channel: str) -> str | None:
    key = row.get("key")
    return f"{row.get('channel') or channel}/{key}" if isinstance(key, str) and key else None


def known_channels(conversations: Collection[Any]) -> Iterator[str]:
    """Yield the channels of all conversations, MOST_CHANNELS at most, by one index read each."""
    after = ""
    for _n in range(MOST_CHANNELS):
        row = conversations.find_one({"_id": {"$gt": after}}, {"_id": 1}, sort=[("_id", 1)])
        if row is None:
            return
        channel = row["_id"].partition("/")[0]
        yield channel
        after = f"{channel}/{chr(sys.maxunicode)}"


def channels_of(database: Database[Any], *, own: str, pauses: Pauses) -> list[str]:
    """Return the channel of the settings and the channels of conversations and pauses.

    Reads one id of each channel. Raises StoreUnavailable.
    """
    found = {own, *(one.scope.channel for one in pauses.rows if one.scope.channel)}
    with translated(), pymongo.timeout(READ_SECONDS):
        return sorted(found.union(known_channels(database[CONVERSATIONS])))


# Lists.

Row = TypeVar("Row")
Groups = dict[str, list[Row]]


@dataclass(frozen=True)
class ConversationLine:
    """One conversation of a list."""

    channel: str
    key: str
    name: str | None = None
    at: datetime | None = None
    """The time of its last event, or the start of its wait."""
    events: int = 0
    """The number of its events among the newest documents, or of its waiting events."""
    why: str | None = None
    """The reason for its wait."""

    @property
    def id(self) -> str:
        """`<channel>/<key>`."""
        return f"{self.channel}/{self.key}"


def latest(database: Database[Any]) -> list[ConversationLine]:
    """Return the conversations of the newest documents, the latest first.

    Raises StoreUnavailable.
    """
    stages: list[Mapping[str, Any]] = [
        {"$limit": NEWEST_DOCUMENTS},
        {"$match": {"channel": {"$type": "string"}, "key": {"$type": "string"}}},
        {
            "$group": {
                "_id": {"channel": "$channel", "key": "$key"},
                "at": {"$max": f"${ACCEPT_TIME}"},
                "events": {"$sum": 1},
            }
        },
        {"$sort": {"at": -1}},
        {"$limit": MOST_CONVERSATIONS},
    ]
    with translated(), pymongo.timeout(READ_SECONDS):
        rows = reported(database, RECVQ).aggregate(stages, hint={"$natural": -1})
        lines = [ConversationLine(**row["_id"], at=row["at"], events=row["events"]) for row in rows]
        return _named(database, lines)


def waiting(database: Database[Any]) -> list[ConversationLine]:
    """Return the conversations with an event or send that waits for long, the longest wait first.

    Raises StoreUnavailable.
    """
    with translated(), pymongo.timeout(READ_SECONDS):
        found = {one.id: one for one in _with_outbox(database)}
        found |= {one.id: one for one in _held(database)}
        found |= {one.id: one for one in _told(database)}
        long = [one for one in found.values() if is_long(one.at, now=datetime.now(UTC))]
        lines = sorted(long, key=lambda one: one.at.timestamp() if one.at else 0.0)
        return _named(database, lines[:MOST_CONVERSATIONS])


def is_long(since: Any, *, now: datetime) -> bool:
    """Return whether a wait is worth a line: not if it is known to be shorter than LEAST_WAIT."""
    return not isinstance(since, datetime) or now - since >= LEAST_WAIT


def cause_of(why: object) -> str:
    """Return the reason of a wait without the time of its next try, which differs."""
    if isinstance(why, Mapping):
        why = {name: value for name, value in why.items() if name != "until"}
    return known(why)


def by_cause(rows: Iterable[Row], cause: Callable[[Row], str]) -> tuple[list[Row], Groups[Row]]:
    """Return the rows, apart from those of causes that hold MANY; these by their cause."""
    rows, groups = list(rows), dict[str, list[Row]]()
    for row in rows:
        groups.setdefault(cause(row), []).append(row)
    many = {name: found for name, found in groups.items() if len(found) >= MANY}
    return [row for row in rows if cause(row) not in many], many


def _told(database: Database[Any]) -> list[ConversationLine]:
    """Return the conversations that the leader reports; none while no dispatcher runs."""
    return [
        ConversationLine(
            str(row["channel"]),
            str(row["key"]),
            at=row["since"] if isinstance(row.get("since"), datetime) else None,
            events=row["documents"] if isinstance(row.get("documents"), int) else 0,
            why=cause_of(row.get("why")),
        )
        for row in listed(present_leader(database) or {}, "waiting")
        if row.get("channel") and row.get("key")
    ]


def _held(database: Database[Any]) -> list[ConversationLine]:
    stages: list[Mapping[str, Any]] = [
        {"$limit": MOST_HELD},
        {
            "$group": {
                "_id": {"channel": "$channel", "key": "$key"},
                "at": {"$min": "$since"},
                "events": {"$sum": 1},
                "why": {"$first": "$why"},
            }
        },
        {"$sort": {"at": 1}},
        {"$limit": MOST_CONVERSATIONS},
    ]
    rows = database[HELD].aggregate(stages)
    return [
        ConversationLine(
            str(row["_id"].get("channel")),
            str(row["_id"].get("key")),
            at=row["at"],
            events=row["events"],
            why=_("held: {reason}").format(reason=cause_of(row["why"])),
        )
        for row in rows
    ]


def _with_outbox(database: Database[Any]) -> list[ConversationLine]:
    stages: list[Mapping[str, Any]] = [
        {"$match": WITH_OUTBOX},
        {"$sort": {"at": 1}},
        {"$limit": MOST_CONVERSATIONS},
        {"$project": {"effects": OUTBOX_PAIRS}},
        {"$project": {"since": {"$min": "$effects.v.at"}, "types": "$effects.v.type"}},
    ]
    rows = database[CONVERSATIONS].aggregate(stages, hint=OUTBOX)
    return [
        ConversationLine(
            channel,
            key,
            at=at if isinstance(at := row.get("since"), datetime) else None,
            why=_(why),
        )
        for row in rows
        for channel, key in (str(row["_id"]).partition("/")[::2],)
        for why in (UNSENT if SEND in row["types"] else NOT_SET,)
    ]


def _named(database: Database[Any], lines: list[ConversationLine]) -> list[ConversationLine]:
    names = names_of(database, (one.id for one in lines))
    return [replace(one, name=names.get(one.id)) for one in lines]
