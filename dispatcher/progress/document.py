"""The `progress` document: how far all documents are finished, guarded by the epoch."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from pymongo import ReturnDocument
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from dispatcher.progress.held import HeldStore, transaction
from dispatcher.progress.tracker import RING_SLOTS, ProgressSnapshot, ProgressTracker
from linedesk.store.client import DURABLE, WTIMEOUT_SECONDS
from linedesk.store.collections import DISPATCHER, require_schema
from linedesk.store.documents import HELD, SCHEMA, Document
from linedesk.store.errors import Replaced, StoreUnavailable, translated

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trying:
    """A suspect that was named before it ran (`dispatcher.keyed.suspects`)."""

    name: str
    starts: int
    """How many starts have found it named."""
    since: datetime


@dataclass(frozen=True)
class Start:
    """The state that a dispatcher finds when it takes over."""

    tracker: ProgressTracker
    feed: str | None
    """The feed of the saved token; None before the very first start."""
    starts: int = 0
    """The number of consecutive starts that met unfinished documents and ended badly."""
    explained: int = 0
    """How many of them were counted although their lease was taken."""
    trying: Sequence[Trying] = ()


class _Unmatched(Exception):
    """There is no row of this epoch."""


class Progress:
    """Reads and saves `progress` for the holder of one epoch.

    Every write is on a journalled majority. It raises Replaced when the document has a higher
    epoch, StoreUnavailable when its outcome is unknown.
    """

    def __init__(self, collection: Collection[Any], *, feed: str, epoch: int) -> None:
        self._collection = collection.with_options(write_concern=DURABLE)
        self._feed = feed
        self._epoch = epoch
        # Used by one thread at a time: first by the takeover, then by the holder of the saver's
        # lock.
        self._session = collection.database.client.start_session()
        # The numbers of the last save that was tried, and of the last one that succeeded.
        self._tried = self._succeeded = 0
        self._writing = threading.Lock()
        self.held = HeldStore(collection.database[HELD])

    def take_over(self) -> Start:
        """Set the epoch, so a predecessor is refused from now on; returns its state."""
        # guard: left-transaction-ended
        self._end_left_transaction()
        found = self._claim(self._session)
        self.held.time = self._session.operation_time
        return self._start(found)

    def _claim(self, session: ClientSession | None = None) -> Document:
        empty: Document = {"token": None, "after": None, "finished": [], "passed": 0, "feed": None}
        changes = {
            "$set": {
                "epoch": self._epoch,
                "schema": SCHEMA,
                "session": self._session.session_id["id"],
                "at": datetime.now(UTC),
            },
            "$setOnInsert": {**empty, "ring": [None] * RING_SLOTS, "starts": 0, "trying": None},
        }
        with translated():
            try:
                found: Document | None = self._collection.find_one_and_update(
                    # Our own epoch matches, too: the outcome of a first try may be unknown.
                    {
                        "_id": DISPATCHER,
                        "epoch": {"$lte": self._epoch},
                        "schema": SCHEMA,
                    },
                    changes,
                    upsert=True,
                    return_document=ReturnDocument.AFTER,
                    session=session,
                )
            except DuplicateKeyError as error:
                require_schema(self._collection.database)
                raise Replaced(f"progress is held by an epoch above {self._epoch}") from error
        assert found is not None, "an upsert returns what it left"
        return found

    def _end_left_transaction(self) -> None:
        """Abort a save that a predecessor had begun when it was killed or frozen.

        MongoDB would keep it for a minute, and no other process could write `progress` meanwhile.
        """
        mine = {"_id": DISPATCHER, "epoch": {"$lte": self._epoch}}
        with translated():
            found = self._collection.find_one(mine, {"session": 1})
            if found is not None and found.get("session") is not None:
                client = self._collection.database.client
                client.admin.command("killSessions", [{"id": found["session"]}])

    def save(self, snapshot: ProgressSnapshot) -> None:
        """Write the changes: of `ring` and `finished` only the places
        (docs/reference/collections.md).

        Documents enter and leave `held` in the same transaction; a transaction of unknown outcome
        may be repeated. Such a save may reach MongoDB after later ones: its number makes MongoDB
        refuse it. A save that contains only changes is also refused after the row was recreated.
        """
        self._tried += 1
        changes: Document = {
            "feed": self._feed,
            "token": snapshot.token,
            "after": snapshot.after,
            "passed": snapshot.passed,
            "held": snapshot.held,
            "saves": self._tried,
            "at": datetime.now(UTC),
        }
        changes.update({f"ring.{place}": id_ for place, id_ in snapshot.ring.items()})
        if isinstance(snapshot.finished, list):
            changes["finished"] = snapshot.finished
            after: Document = {"saves": {"$not": {"$gte": self._tried}}}
        else:
            changes.update({f"finished.{n}": id_ for n, id_ in snapshot.finished.items()})
            after = {"saves": self._succeeded}
        if not (snapshot.rows or snapshot.gone):
            with self._own_row():
                self._update(changes, after)
        else:
            with self._own_row(), transaction(self._session):
                self.held.write(self._session, snapshot.rows, snapshot.gone)
                # Last, because this locks progress against every other writer until the end.
                self._update(changes, after, self._session)
            self.held.time = self._session.operation_time
        self._succeeded = self._tried

    def _update(
        self, changes: Document, after: Document | None = None, session: ClientSession | None = None
    ) -> None:
        """Update the row of this epoch; `after` holds further conditions on the row."""
        condition = {
            "_id": DISPATCHER,
            "epoch": self._epoch,  # guard: epoch-of-the-save
            **(after or {}),  # guard: number-of-the-save
        }
        with translated():
            answer = self._collection.update_one(condition, {"$set": changes}, session=session)
        if answer.matched_count == 0:
            raise _Unmatched

    def note_starts(self, starts: int, *trying: Trying) -> None:
        """Store the count of starts, and the suspects that are about to run or do so.

        Releases before this one know a single name, in `trying`.
        """
        rows = [asdict(one) for one in trying]
        changes: Document = {"starts": starts, "trying": rows[0] if rows else None}
        changes["tryingToo"] = rows[1:]
        with self._own_row():
            self._update(changes if starts else {**changes, "explained": 0})

    def note_explained(self) -> None:
        """Subtract this start from the count, which a higher epoch continues meanwhile."""
        taken = {"_id": DISPATCHER, "epoch": {"$gt": self._epoch}, "starts": {"$gt": 0}}
        with translated():
            self._collection.update_one(taken, {"$inc": {"explained": 1}})

    @contextmanager
    def _own_row(self) -> Iterator[None]:
        """Wrap a write, including its transaction, that raises _Unmatched.

        Raises Replaced if the row belongs to a higher epoch. After a drop of the whole database the
        row is recreated, and StoreUnavailable says that the write has to be repeated.
        """
        try:
            # guard: one-write-at-a-time -> body
            with self._alone():
                yield
            return
        except _Unmatched:
            # Without the session, which another thread may be using.
            self._claim()
        log.error("progress was dropped, recreating it epoch=%d", self._epoch)
        raise StoreUnavailable("progress was dropped")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep out other writes of this process: one during a transaction would end it."""
        if not self._writing.acquire(timeout=WTIMEOUT_SECONDS):
            raise StoreUnavailable("another write of progress is under way")
        try:
            yield
        finally:
            self._writing.release()

    def _start(self, found: Document) -> Start:
        tracker = ProgressTracker(
            token=found["token"],
            after=found["after"],
            finished=found["finished"],
            passed=found["passed"],
            ring=found["ring"],
            held=found.get("held", 0),
        )
        trying = [found.get("trying"), *found.get("tryingToo", ())]
        self._tried = self._succeeded = found.get("saves") or 0
        return Start(
            tracker,
            found["feed"],
            starts=found.get("starts", 0),
            explained=found.get("explained", 0),
            trying=[Trying(**row) for row in trying if row],
        )
