"""Lists of conversations: the latest ones and the waiting ones. Also the channels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pymongo
from pymongo.database import Database

from linedesk.operate import processes
from linedesk.operate.conversation import known_channels, names_of
from linedesk.operate.events.lists import NEWEST_DOCUMENTS
from linedesk.operate.events.rows import present_leader
from linedesk.operate.reading import reported
from linedesk.operate.text import known
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark
from linedesk.store.control import Control, Pause, Pauses
from linedesk.store.documents import CONVERSATIONS, HELD, RECVQ
from linedesk.store.errors import translated
from linedesk.store.records.effects import OUTBOX, OUTBOX_PAIRS, SEND, WITH_OUTBOX
from linedesk.store.records.events import ACCEPT_TIME

MOST_CONVERSATIONS = 200
MOST_HELD = 10_000
READ_SECONDS = 10.0
# A shorter wait needs no operator.
LEAST_WAIT = timedelta(seconds=2)
# So many conversations with one cause are one line.
MANY = 3
UNSENT = mark("LINE has not taken its sends yet")
NOT_SET = mark("its timers are not set yet")

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
        for row in processes.listed(present_leader(database) or {}, "waiting")
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
            why=_(_effect_words(row["types"])),
        )
        for row in rows
        for channel, key in (str(row["_id"]).partition("/")[::2],)
    ]


def _effect_words(types: list[str]) -> str:
    return UNSENT if SEND in types else NOT_SET


def _named(database: Database[Any], lines: list[ConversationLine]) -> list[ConversationLine]:
    names = names_of(database, (one.id for one in lines))
    return [replace(one, name=names.get(one.id)) for one in lines]


def pause_of_everything(database: Database[Any], *, own: str) -> Pause | None:
    """Return the pause of everything, or of the only channel, which is the same.

    `own` is the channel of the settings. Raises StoreUnavailable.
    """
    pauses = Control(database).read()
    wide = [one for one in pauses.rows if one.scope.key is None]
    if not wide:
        return None
    channels = channels_of(database, own=own, pauses=pauses)
    covering = (one for one in wide if one.scope.channel is None or channels == [one.scope.channel])
    return next(covering, None)


def channels_of(database: Database[Any], *, own: str, pauses: Pauses) -> list[str]:
    """Return the channel of the settings and the channels of conversations and pauses.

    Reads one id of each channel. Raises StoreUnavailable.
    """
    found = {own, *(one.scope.channel for one in pauses.rows if one.scope.channel)}
    with translated(), pymongo.timeout(READ_SECONDS):
        return sorted(found.union(known_channels(database[CONVERSATIONS])))
