"""The operator's orders, as rows of the collection `control`: pauses, releases of a stuck key, and
timers for all friends.

Commands and the console write them (`linedesk.operate.acts`), and the dispatcher reads
them twice a second. Incomplete rows, for example typed by hand, are ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal

import pymongo
from bson.timestamp import Timestamp
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError
from pymongo.read_concern import ReadConcern

from linedesk.store.client import ANY_DATE, DURABLE, MAJORITY
from linedesk.store.documents import CONTROL, CONVERSATIONS, DEADLETTERS, Document
from linedesk.store.errors import NotAScope, translated
from linedesk.store.records.effects import EFFECT_ID, OUTBOX_PAIRS
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.letters import DEADLETTER, DROPPED, Cause
from linedesk.store.recurrence import Recurrence
from linedesk.store.timers import START_TIMER

PAUSE = "pause"
DROP = "drop"
RELEASE = "release"
TIMERS = "timers"
STARTED = "started"
"""An order of the bot's own that is carried out: it is not given again, so its row stays."""
BOT = "bot"
ALL = "all"
DONE_AT = "doneAt"
"""When a release was carried out; pauses do not have it."""

Head = Literal["eventId", "effectId"]
"""The target of a release: the first event in the queue, or the first send of an outbox."""


@dataclass(frozen=True)
class Scope:
    """The scope of a pause: one conversation, a whole channel, or everything."""

    channel: str | None = None
    key: str | None = None

    @classmethod
    def parse(cls, words: str | None) -> Scope:
        """Parse `main/U…`, `main`, or `all`, which is the default. Raises NotAScope."""
        if words is None or words in ("", ALL):
            return cls()
        channel, slash, key = words.partition("/")
        if not channel or (slash and not key):
            raise NotAScope(words)
        return cls(channel, key or None)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Scope | None:
        """The scope of a pause's row; None if the row is incomplete."""
        scope = cls(row.get("channel"), row.get("key"))
        channel, key = scope.channel, scope.key
        named = all(one is None or (isinstance(one, str) and one) for one in (channel, key))
        is_whole = named and (channel is not None or key is None)
        return scope if is_whole and row.get("_id") == scope.id else None

    def __str__(self) -> str:
        return "/".join(filter(None, (self.channel, self.key))) or ALL

    @property
    def id(self) -> str:
        """The `_id` of its pause in `control`."""
        return "/".join(filter(None, (PAUSE, self.channel, self.key)))

    def covers(self, channel: Any, key: Any) -> bool:
        return self.channel in (None, channel) and self.key in (None, key)


@dataclass(frozen=True)
class Pause:
    """One pause: operator, reason and start, as far as the row has them."""

    scope: Scope
    by: str = ""
    why: str = ""
    at: datetime | None = None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Pause | None:
        """The pause in a row; None if the row is incomplete."""
        scope = Scope.of_row(row)
        if scope is None or row.get("act") != PAUSE or not {"channel", "key"} <= row.keys():
            return None
        at = row.get("at")
        return cls(
            scope,
            by=str(row.get("by") or ""),
            why=str(row.get("why") or ""),
            at=at if isinstance(at, datetime) else None,
        )


@dataclass(frozen=True)
class Drop:
    """The order to give up all events of a scope that were stored before `at`.

    It is a part of the row of its pause, and stays after the resume until `end_drop`.
    """

    scope: Scope
    by: str
    at: datetime

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Drop | None:
        """The drop in a row; None if it has none, or an incomplete one."""
        scope, drop = Scope.of_row(row), row.get(DROP)
        if scope is None or not isinstance(drop, Mapping):
            return None
        at = drop.get("at")
        return cls(scope, str(drop.get("by") or ""), at) if isinstance(at, datetime) else None

    @property
    def cause(self) -> Cause:
        return Cause(DROPPED, {"by": self.by})


def _scopes_over(channel: Any, key: Any) -> tuple[tuple[Any, Any], ...]:
    """The scopes that include a conversation, as channel and key, the widest first."""
    return (None, None), (channel, None), (channel, key)


@dataclass(frozen=True)
class Pauses:
    """All pauses and drops at one moment."""

    rows: tuple[Pause, ...] = ()
    drops: tuple[Drop, ...] = ()

    @cached_property
    def _drops(self) -> Mapping[tuple[str | None, str | None], Drop]:
        return {(one.scope.channel, one.scope.key): one for one in self.drops}

    def drop_of(self, channel: Any, key: Any, stored_at: datetime) -> Drop | None:
        """The drop that covers an event; None for one that was stored after the orders."""
        scopes = _scopes_over(channel, key) if self.drops else ()
        found = (self._drops.get(scope) for scope in scopes)
        return next((one for one in found if one is not None and stored_at <= one.at), None)

    @cached_property
    def _scopes(self) -> frozenset[tuple[str | None, str | None]]:
        return frozenset((one.scope.channel, one.scope.key) for one in self.rows)

    def __bool__(self) -> bool:
        return bool(self.rows)

    def covers(self, channel: Any, key: Any) -> bool:
        """Whether the conversation is paused, by any scope."""
        return bool(self.rows) and not self._scopes.isdisjoint(_scopes_over(channel, key))

    def covering(self, channel: Any, key: Any) -> list[Pause]:
        """The pauses that cover a conversation, the widest first."""
        return [one for one in self.rows if one.scope.covers(channel, key)]

    def ages(self, now: datetime) -> dict[str, list[float]]:
        """The ages of the pauses in seconds, by the size of their scope; 0 if unknown."""
        ages: dict[str, list[float]] = {"everything": [], "channel": [], "conversation": []}
        for one in self.rows:
            size = "channel" if one.scope.key is None else "conversation"
            seconds = 0.0 if one.at is None else round((now - one.at).total_seconds(), 3)
            ages["everything" if one.scope.channel is None else size].append(max(0.0, seconds))
        return ages

    def as_rows(self) -> list[Document]:
        """The pauses, in the form of the dispatcher's row in `status`."""
        return [{"channel": one.scope.channel, "key": one.scope.key} for one in self.rows]


NO_PAUSES = Pauses()


@dataclass(frozen=True)
class Release:
    """The order to give up the head that blocks a conversation: the one that the operator saw."""

    channel: str
    key: str
    head: Head
    name: str
    """The id of that event or send."""
    by: str
    at: datetime
    """The time of the order; with the conversation it identifies the release."""

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Release | None:
        """The release in a row; None if the row is incomplete."""
        channel, key, what, at = (row.get(name) for name in ("channel", "key", "what", "at"))
        if row.get("act") != RELEASE or not isinstance(at, datetime):
            return None
        if not (isinstance(channel, str) and isinstance(key, str) and isinstance(what, Mapping)):
            return None
        for head in (EVENT_ID, EFFECT_ID):
            if len(what) == 1 and isinstance(what.get(head), str):
                found = cls(channel, key, head, what[head], str(row.get("by") or ""), at)
                return found if row.get("_id") == found.id else None
        return None

    @property
    def id(self) -> str:
        return f"{RELEASE}/{self.channel}/{self.key}"

    @property
    def conversation(self) -> str:
        return f"{self.channel}/{self.key}"


@dataclass(frozen=True)
class TimerOrder:
    """The order to set a timer in the conversation of each known user who has not blocked the bot.

    The leader carries it out in the order of the conversations' ids.
    """

    name: str
    timer: Mapping[str, Any]
    """Its fields `runAt` and `every`, one of which is None, and `data`, as in `schedule`."""
    by: str
    at: datetime
    """The time of the order; with the name it identifies the order."""
    last: str = ""
    """The last conversation that has its timer."""
    count: int = 0

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> TimerOrder | None:
        """The order in a row; None if the row is incomplete."""
        try:
            fields = ("name", "timer", "by", "at", "last", "count")
            found = cls(**{name: row[name] for name in fields})
            found.due(found.at)
        except (KeyError, TypeError, ValueError, AttributeError, OSError):
            return None
        return found if row.get("act") == TIMERS and row["_id"] == found.id else None

    def due(self, now: datetime) -> datetime | None:
        """When the timer fires first; None if its rule has ended."""
        if self.timer["every"] is not None:
            return Recurrence.from_document(self.timer["every"]).after(now)
        run_at: datetime = self.timer["runAt"].astimezone(UTC)
        return run_at

    @property
    def id(self) -> str:
        return f"{TIMERS}/{self.name}"

    @property
    def row(self) -> Document:
        """Its row without the `_id`."""
        return {"act": TIMERS, **vars(self)}


def start_order(name: str, now: datetime) -> TimerOrder:
    """The bot's own order: a timer that calls the handler of `bot.start_timers(name)` at once."""
    timer: Document = {"runAt": now, "every": None, "data": {}}
    return TimerOrder(f"{START_TIMER}{name}", timer, BOT, now)


@dataclass(frozen=True)
class Orders:
    """All open orders at one moment."""

    pauses: Pauses = NO_PAUSES
    releases: tuple[Release, ...] = ()
    timers: tuple[TimerOrder, ...] = ()


log = logging.getLogger(__name__)

READ_SECONDS = 5.0
NOTHING_STUCK = "nothing_stuck"


class Control:
    """Reads and writes of `control`, by one thread; every method may raise StoreUnavailable.

    Writes use a journalled majority. Reads never go back in time: right after an election a
    majority read may return an older state, and a pause would disappear for a moment. `seen` is the
    server's time of a write; reads include it and all earlier ones.
    """

    def __init__(self, database: Database[Any], *, seen: Timestamp | None = None) -> None:
        self._database = database
        self.rows = database.get_collection(
            CONTROL, ANY_DATE, write_concern=DURABLE, read_concern=MAJORITY
        )
        self._seen = seen
        self._passed_over: frozenset[str] = frozenset()

    def accept_bot(self, version: str, *, by: str) -> bool:
        """Let workers with this version of the bot get jobs; False if they may already."""
        row = {"act": BOT, "version": version, "by": by, "at": now_stored()}
        id_ = {"_id": f"{BOT}/{version}"}
        with translated(), pymongo.timeout(READ_SECONDS):
            try:
                return self.rows.update_one(id_, {"$setOnInsert": row}, upsert=True).did_upsert
            except DuplicateKeyError:
                # Another process has accepted it at this moment.
                return False

    def bots(self) -> set[str]:
        """The versions of the bot that operators have accepted."""
        with translated(), pymongo.timeout(READ_SECONDS):
            return {str(row.get("version")) for row in self.rows.find({"act": BOT})}

    def read(self) -> Pauses:
        return self.orders().pauses

    def orders(self) -> Orders:
        found = [
            (
                row,
                Pause.from_row(row) or Release.from_row(row) or TimerOrder.from_row(row),
                Drop.from_row(row),
            )
            for row in self._open()
        ]
        self._tell(str(row["_id"]) for row, *orders in found if orders == [None, None])
        return Orders(
            Pauses(
                tuple(order for _, order, _ in found if isinstance(order, Pause)),
                tuple(drop for _, _, drop in found if drop is not None),
            ),
            tuple(order for _, order, _ in found if isinstance(order, Release)),
            tuple(order for _, order, _ in found if isinstance(order, TimerOrder)),
        )

    def _open(self) -> list[Document]:
        with (
            translated(),
            pymongo.timeout(READ_SECONDS),
            self._database.client.start_session(causal_consistency=True) as session,
        ):
            # guard: pauses-as-of-the-claim
            if self._seen is not None:
                session.advance_operation_time(self._seen)
            wanted = {DONE_AT: None, "act": {"$nin": [BOT, STARTED]}}
            rows = list(self.rows.find(wanted, session=session).sort("_id", 1))
            self._seen = session.operation_time
            return rows

    def came_of(self, release: Release) -> Document | None:
        """The result of a release that is no longer under way; None if it is not stored yet.

        It is read from the database, so a successor reports the same result as its predecessor.
        """
        pairs = {"$map": {"input": OUTBOX_PAIRS, "in": ["$$this.v.id", "$$this.v.type"]}}
        letter = {"$expr": {"$in": [[release.name, DEADLETTER], pairs]}}
        # In this order, since a dead letter is written before its send leaves the outbox.
        if self._has(CONVERSATIONS, {"_id": release.conversation, **letter}):
            return None
        if self._has(DEADLETTERS, {"_id": release.name}):
            what = "event" if release.head == EVENT_ID else "send"
            return {"code": f"{what}_is_letter", "id": release.name}
        return {"code": NOTHING_STUCK}

    def _has(self, collection: str, condition: Document) -> bool:
        # Right after an election a majority read may return a state before the letter.
        found = self._database.get_collection(collection, read_concern=ReadConcern("linearizable"))
        with translated(), pymongo.timeout(READ_SECONDS):
            return found.find_one(condition, {"_id": 1}) is not None

    def finish(self, order: Release | TimerOrder, came: Document) -> None:
        """Store the result of an order, unless another one has replaced it."""
        is_own = isinstance(order, TimerOrder) and order.name.startswith(START_TIMER)
        self._change(order, {"act": STARTED} if is_own else {DONE_AT: now_stored(), "came": came})

    def went_on(self, order: TimerOrder, *, last: str, count: int) -> None:
        """Store how far an order is carried out, unless another one has replaced it."""
        self._change(order, {"last": last, "count": count})

    def order_start(self, name: str) -> None:
        """Order the bot's own timer of this name, unless that was ordered before."""
        order = start_order(name, now_stored())
        with translated(), pymongo.timeout(READ_SECONDS), suppress(DuplicateKeyError):
            self.rows.update_one({"_id": order.id}, {"$setOnInsert": order.row}, upsert=True)

    def _change(self, order: Release | TimerOrder, changes: Document) -> None:
        with translated():
            same = {"_id": order.id, "at": order.at, DONE_AT: None}
            self.rows.update_one(same, {"$set": changes})

    def end_drop(self, drop: Drop) -> None:
        """No event of the drop is left, unless its scope is paused again."""
        mine = {"_id": drop.scope.id, "act": DROP, f"{DROP}.at": drop.at}
        with translated():
            self.rows.update_one(mine, {"$set": {DONE_AT: now_stored()}})

    def _tell(self, ids: Iterable[str]) -> None:
        """Log each ignored row once."""
        passed_over = frozenset(ids)
        for id_ in sorted(passed_over - self._passed_over):
            log.warning("incomplete order ignored id=%s", id_)
        self._passed_over = passed_over


def now_stored() -> datetime:
    """The time to the millisecond, as MongoDB stores it."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)
