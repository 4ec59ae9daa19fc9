"""What an operator orders, as rows of the collection `control`: pauses and releases of a stuck key.

Commands and the page write rows; the dispatcher reads them twice a second. A row that is not whole,
for example typed by hand, is ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal

import pymongo
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.timestamp import Timestamp
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError
from pymongo.read_concern import ReadConcern

from linedesk.store.client import DURABLE, MAJORITY
from linedesk.store.documents import CONTROL, CONVERSATIONS, DEADLETTERS, Document
from linedesk.store.errors import NotAScope, translated
from linedesk.store.records.control import DONE_AT
from linedesk.store.records.effects import EFFECT_ID, OUTBOX_PAIRS, PENDING
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.letters import DEADLETTER

PAUSE = "pause"
RELEASE = "release"
ALL = "all"
RELEASED = "released by an operator"
"""The cause of a dead letter that a release has made."""

Head = Literal["eventId", "effectId"]
"""What a release gives up: the first event in line, or the first send of an outbox."""


@dataclass(frozen=True)
class Scope:
    """What a pause covers: one conversation, a whole channel, or everything."""

    channel: str | None = None
    key: str | None = None

    @classmethod
    def parse(cls, words: str | None) -> Scope:
        """`main/U…`, `main`, or `all`, which is also what nothing means. Raises NotAScope."""
        if words is None or words in ("", ALL):
            return cls()
        channel, slash, key = words.partition("/")
        if not channel or (slash and not key):
            raise NotAScope(words)
        return cls(channel, key or None)

    def __str__(self) -> str:
        return "/".join(filter(None, (self.channel, self.key))) or ALL

    @property
    def id(self) -> str:
        """The `_id` of its pause in `control`."""
        return "/".join(filter(None, (PAUSE, self.channel, self.key)))

    def covers(self, channel: Any, key: Any) -> bool:
        """Whether a conversation is within it."""
        return self.channel in (None, channel) and self.key in (None, key)


@dataclass(frozen=True)
class Pause:
    """One pause: by whom, why and since when, as far as the row tells."""

    scope: Scope
    by: str = ""
    why: str = ""
    at: datetime | None = None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Pause | None:
        """The pause that a row orders; None where it is not whole."""
        if row.get("act") != PAUSE or "channel" not in row or "key" not in row:
            return None
        scope = Scope(row["channel"], row["key"])
        if not _is_whole(scope) or row.get("_id") != scope.id:
            return None
        at = row.get("at")
        return cls(
            scope,
            by=str(row.get("by") or ""),
            why=str(row.get("why") or ""),
            at=at if isinstance(at, datetime) else None,
        )


@dataclass(frozen=True)
class Pauses:
    """All pauses of one moment."""

    rows: tuple[Pause, ...] = ()

    @cached_property
    def _scopes(self) -> frozenset[tuple[str | None, str | None]]:
        return frozenset((one.scope.channel, one.scope.key) for one in self.rows)

    def __bool__(self) -> bool:
        return bool(self.rows)

    def covers(self, channel: Any, key: Any) -> bool:
        """Whether the conversation is paused, by itself or with others."""
        scopes = self._scopes
        if not scopes:
            return False
        return (None, None) in scopes or (channel, None) in scopes or (channel, key) in scopes

    def covering(self, channel: Any, key: Any) -> list[Pause]:
        """Those that keep a conversation paused, the widest first."""
        return [one for one in self.rows if one.scope.covers(channel, key)]

    def as_rows(self) -> list[Document]:
        """What is paused, as the dispatcher's row in `status` tells it."""
        return [{"channel": one.scope.channel, "key": one.scope.key} for one in self.rows]


NO_PAUSES = Pauses()


@dataclass(frozen=True)
class Release:
    """The order to give up what a conversation is stuck on: the head that the operator saw."""

    channel: str
    key: str
    head: Head
    name: str
    """The id of that event or send."""
    by: str
    at: datetime
    """When it was ordered; with the conversation it tells this release from every other."""

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Release | None:
        """The release that a row orders; None where it is not whole."""
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
        """The `_id` of its row."""
        return f"{RELEASE}/{self.channel}/{self.key}"

    @property
    def conversation(self) -> str:
        """The `_id` of its conversation."""
        return f"{self.channel}/{self.key}"


@dataclass(frozen=True)
class Orders:
    """All that is ordered at one moment, and not carried out yet."""

    pauses: Pauses = NO_PAUSES
    releases: tuple[Release, ...] = ()


def _is_whole(scope: Scope) -> bool:
    """Whether both are names or nothing, and no key stands without its channel."""
    channel, key = scope.channel, scope.key
    named = all(one is None or (isinstance(one, str) and one) for one in (channel, key))
    return named and (channel is not None or key is None)


log = logging.getLogger(__name__)

READ_SECONDS = 5.0
NOTHING_STUCK = "nothing was stuck any more"
# A date beyond Python's, typed in a shell, must not be an error for who reads the others.
ANY_DATE: CodecOptions[Document] = CodecOptions(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


class Control:
    """Reads and writes of `control`, by one thread; every method raises StoreUnavailable.

    Writes are on a journalled majority. What was read once is never unread: right after an
    election a majority read may tell of a time before it, and a pause would be gone for a moment.
    `seen` is the server's time of a write whose predecessors have to be seen as well.
    """

    def __init__(
        self,
        database: Database[Any],
        *,
        seen: Timestamp | None = None,
        read_seconds: float = READ_SECONDS,
    ) -> None:
        self._database = database
        self._rows = database.get_collection(
            CONTROL, ANY_DATE, write_concern=DURABLE, read_concern=MAJORITY
        )
        self._seen = seen
        self._read_seconds = read_seconds
        self._passed_over: frozenset[str] = frozenset()

    # Whoever orders.

    def pause(self, scope: Scope, *, by: str, why: str = "") -> bool:
        """Have nothing of the scope decided from now on; False if it was paused already."""
        with translated():
            found = self._rows.find_one({"_id": scope.id})
            if found is not None and Pause.from_row(found) is not None:
                return False
            row = {
                "_id": scope.id,
                "act": PAUSE,
                "channel": scope.channel,
                "key": scope.key,
                "by": by,
                "why": why,
                "at": _now(),
            }
            self._put(row)
        return True

    def resume(self, scope: Scope) -> bool:
        """End that very pause, none that is wider or narrower; False if there was none."""
        with translated():
            return bool(self._rows.delete_one({"_id": scope.id}).deleted_count)

    def release(self, channel: str, key: str, what: Mapping[Head, str], *, by: str) -> Release:
        """Have what a conversation is stuck on given up: `what` is `{"eventId": …}`, the first
        event in line, or `{"effectId": …}`, the first send of the outbox.

        It takes the place of an earlier release of the same conversation.
        """
        ((head, name),) = what.items()
        release = Release(channel, key, head, name, by, _now())
        row = {
            "_id": release.id,
            "act": RELEASE,
            "channel": channel,
            "key": key,
            "what": {head: name},
            "by": by,
            "at": release.at,
        }
        with translated():
            self._put(row)
        return release

    def outcome_of(self, release: Release) -> str | None:
        """What came of it, in words; None as long as no dispatcher has carried it out."""
        with translated():
            row = self._rows.find_one({"_id": release.id})
        if row is None or row.get("at") != release.at:
            return "another release took its place"
        return str(row.get("came")) if row.get(DONE_AT) is not None else None

    def _put(self, row: Document) -> None:
        try:
            self._rows.replace_one({"_id": row["_id"]}, row, upsert=True)
        except DuplicateKeyError:
            # Two who order at once: now it is there.
            self._rows.replace_one({"_id": row["_id"]}, row, upsert=True)

    # Whoever looks and obeys.

    def read(self) -> Pauses:
        """What is paused."""
        return self.orders().pauses

    def orders(self) -> Orders:
        """What is paused, and the releases that are not carried out yet."""
        found = [(row, Pause.from_row(row) or Release.from_row(row)) for row in self._open()]
        self._tell(str(row["_id"]) for row, order in found if order is None)
        return Orders(
            Pauses(tuple(order for _, order in found if isinstance(order, Pause))),
            tuple(order for _, order in found if isinstance(order, Release)),
        )

    def _open(self) -> list[Document]:
        with (
            translated(),
            pymongo.timeout(self._read_seconds),
            self._database.client.start_session(causal_consistency=True) as session,
        ):
            # guard: pauses-as-of-the-claim
            if self._seen is not None:
                session.advance_operation_time(self._seen)
            rows = list(self._rows.find({DONE_AT: None}, session=session).sort("_id", 1))
            self._seen = session.operation_time
            return rows

    def came_of(self, release: Release) -> str | None:
        """In words what came of a release that is not under way any more; None for a moment yet.

        Told by what is stored, so that a successor says the same of what its predecessor did.
        """
        pairs = {"$map": {"input": OUTBOX_PAIRS, "in": ["$$this.v.id", "$$this.v.type"]}}
        letter = {
            "$or": [
                {"$expr": {"$in": [[release.name, DEADLETTER], pairs]}},
                {PENDING: {"$elemMatch": {"id": release.name, "type": DEADLETTER}}},
            ]
        }
        # In this order, since a letter is written before it leaves the outbox.
        if self._has(CONVERSATIONS, {"_id": release.conversation, **letter}):
            return None
        if self._has(DEADLETTERS, {"_id": release.name}):
            what = "event" if release.head == EVENT_ID else "send"
            return f"the {what} {release.name} is a dead letter"
        return NOTHING_STUCK

    def _has(self, collection: str, condition: Document) -> bool:
        # A majority read may tell of a time before the letter, right after an election.
        found = self._database.get_collection(collection, read_concern=ReadConcern("linearizable"))
        with translated(), pymongo.timeout(self._read_seconds):
            return found.find_one(condition, {"_id": 1}) is not None

    def finish(self, release: Release, came: str) -> None:
        """Write down what came of a release, unless another one has taken its place."""
        with translated():
            self._rows.update_one(
                {"_id": release.id, "at": release.at, DONE_AT: None},
                {"$set": {DONE_AT: _now(), "came": came}},
            )

    def _tell(self, ids: Iterable[str]) -> None:
        """Say once of each row that it is passed over."""
        passed_over = frozenset(ids)
        for id_ in sorted(passed_over - self._passed_over):
            log.warning("not a whole order, passed over id=%s", id_)
        self._passed_over = passed_over


def _now() -> datetime:
    """As MongoDB keeps it: to the millisecond."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)
