"""The feed that tails local.oplog.rs, for servers where a change stream is not wanted.

Like a change stream it reads majority-committed entries only: it never delivers an entry that is
rolled back later. A position is the `ts` of an entry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from bson.timestamp import Timestamp
from pymongo import CursorType
from pymongo.cursor import Cursor
from pymongo.errors import PyMongoError

from dispatcher.feed.feed import (
    OPEN_SECONDS,
    STEP_SECONDS,
    FeedItem,
    PositionLost,
    RecvqGone,
    gone_by_rename,
    patiently,
    sorted_out,
)
from linedesk.store.client import MAJORITY, Client
from linedesk.store.documents import RECVQ, Document
from linedesk.store.errors import StoreUnavailable

# CappedPositionLost: the cursor's entry was truncated while the cursor waited.
LOST_CODES = frozenset({136})


class OplogFeed:
    """See `dispatcher.feed.feed.Feed`. `client` is the feed's own; `database` holds recvq."""

    name = "oplog"

    def __init__(self, client: Client, database: str) -> None:
        self._namespace = f"{database}.{RECVQ}"
        self._client = client
        self._oplog = client.local.get_collection("oplog.rs", read_concern=MAJORITY)
        self._cursor: Cursor[Document] | None = None
        self._token: Timestamp | None = None
        # The first entry after opening the cursor, if any.
        self._first: Document | None = None
        # Inserts of an applyOps entry that are not delivered yet.
        self._rest: deque[FeedItem] = deque()

    def open(self, token: Any) -> None:
        if not isinstance(token, Timestamp):
            raise PositionLost("the saved token is not one of an oplog")
        self._tail(token)

    def open_at(self, time: Timestamp) -> None:
        # The filter of the oplog means "after"; one tick earlier makes it "at or after".
        self._tail(_before(time))

    def read(self) -> FeedItem | None:
        if self._rest:
            return self._rest.popleft()
        entry = self._next()
        if entry is None:
            return None
        self._token = entry["ts"]
        self._rest.extend(self._readings(entry))
        return self._rest.popleft() if self._rest else None

    @property
    def token(self) -> Any:
        return self._token

    def close(self) -> None:
        self._rest.clear()
        self._first = None
        if self._cursor is not None:
            cursor, self._cursor = self._cursor, None
            cursor.close()

    def _tail(self, after: Timestamp) -> None:
        self.close()
        try:
            self._cursor = self._oplog.find(
                self._filter(after), cursor_type=CursorType.TAILABLE_AWAIT, batch_size=1000
            ).max_await_time_ms(int(STEP_SECONDS * 1000))
            with patiently(self._client, seconds=OPEN_SECONDS):
                self._first = next(self._cursor, None)
            # Only now that the cursor is open: a find is not sent before its first `next`.
            self._refuse_gap(after)
        except PyMongoError as error:
            raise sorted_out(error, LOST_CODES) from error
        self._token = after

    def _refuse_gap(self, after: Timestamp) -> None:
        """Raise PositionLost if the oldest entry is newer: entries are missing."""
        oldest = self._oplog.find({}, {"ts": 1}).sort("$natural", 1).limit(1).next()
        if oldest["ts"] > after:
            raise PositionLost(f"the oplog begins at {oldest['ts']}, after {after}")

    def _filter(self, after: Timestamp) -> Document:
        """Select inserts into recvq, also in applyOps, and noops to advance the position."""
        return {
            "ts": {"$gt": after},
            "$or": [
                {"ns": self._namespace, "op": "i"},
                {"op": "c", "o.applyOps.ns": self._namespace},
                {"op": "c", "o.applyOps.o.applyOps.ns": self._namespace},
                {"ns": f"{self._namespace.partition('.')[0]}.$cmd", "op": "c"},
                {"op": "n"},
            ],
        }

    def _next(self) -> Document | None:
        assert self._cursor is not None, "read before open"
        if self._first is not None:
            first, self._first = self._first, None
            return first
        try:
            entry = next(self._cursor, None)
        except PyMongoError as error:
            raise sorted_out(error, LOST_CODES) from error
        if entry is None and not self._cursor.alive:
            # A tailable cursor on an empty range is dead at once (SERVER-13955).
            raise StoreUnavailable("the cursor on the oplog ended")
        return entry

    def _readings(self, entry: Document) -> Iterator[FeedItem]:
        """Return the inserts of one entry; only the last one moves the position past the entry."""
        found = list(inserts(entry, self._namespace))
        for number, document in enumerate(found, 1):
            token = entry["ts"] if number == len(found) else None
            yield FeedItem(document, token, entry["ts"])


def inserts(entry: Mapping[str, Any], namespace: str) -> Iterator[Document]:
    """The documents that an oplog entry inserts into a collection, also by applyOps.

    Raises RecvqGone for a drop or rename: later inserts belong to another collection.
    """
    if entry["op"] == "i" and entry["ns"] == namespace:
        yield entry["o"]
    elif entry["op"] == "c":
        _refuse_removal(entry, namespace)
        for operation in entry["o"].get("applyOps", ()):
            yield from inserts(operation, namespace)


def _refuse_removal(entry: Mapping[str, Any], namespace: str) -> None:
    command, database = entry["o"], namespace.partition(".")[0]
    local = entry["ns"] == f"{database}.$cmd"
    dropped = local and (command.get("drop") == RECVQ or "dropDatabase" in command)
    if dropped:
        raise RecvqGone("dropped")
    if namespace in (command.get("renameCollection"), command.get("to")):
        raise gone_by_rename(command["renameCollection"], command["to"], namespace)


def _before(time: Timestamp) -> Timestamp:
    if time.inc > 0:
        return Timestamp(time.time, time.inc - 1)
    return Timestamp(time.time - 1, 2**32 - 1)
