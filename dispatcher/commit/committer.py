"""The committing thread: it makes all durable writes of a leader, in groups.

A group is one transaction with the leader's fence, `progress` (docs/explanation/architecture.md,
"One fence"). All groups are transactions of one session: MongoDB refuses one that is over, however
late its commands arrive. A document that a foreign transaction holds delays its own writes only,
unless it is the fence or a row of `held`.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from typing import Any, Protocol

import bson
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import DocumentTooLarge, OperationFailure, PyMongoError

from linedesk.runtime.backoff import pause_seconds
from linedesk.runtime.outage import MONGODB
from linedesk.runtime.thread import BackgroundThread
from linedesk.store.client import DURABLE, WTIMEOUT_SECONDS
from linedesk.store.documents import Document
from linedesk.store.errors import (
    QueueError,
    StoreUnavailable,
    WriteRefused,
    translate,
    translated,
)
from linedesk.store.insert import DUPLICATE_KEY, OBJECT_TOO_LARGE
from linedesk.store.limits import MOST_DOCUMENT_BYTES

log = logging.getLogger(__name__)

# With more, the first of them would wait for the last.
MOST_TOGETHER = 100
# The driver takes 16 MB in a command.
MOST_BYTES = 8 * 1024 * 1024
# With more writes that no thread waits for, threads wait for theirs.
MOST_LATER = 1000
LATER_SECONDS = 0.1
"""How long a write that no thread waits for waits for others, at most."""
WAIT_SECONDS = 10.0
"""How long a thread waits for its write unless it says otherwise."""
LONGEST_PAUSE_SECONDS = 2.0
# An error with this label was raised by a transaction that is over: nothing of it is written.
ABORTED = "TransientTransactionError"
WRITE_CONFLICT = 112
# After so many tries that met a foreign transaction a group is split. A write that meets it alone
# is put off for so long each time.
MOST_CONFLICTS = 3
PUT_OFF_SECONDS = 0.2


class Change:
    """An update or a removal of one document of a collection. An update has to match, or to insert;
    a removal may find nothing. Raises WriteRefused if MongoDB cannot hold it.
    """

    __slots__ = ("collection", "id", "kind", "raw")

    def __init__(
        self,
        collection: str,
        condition: Mapping[str, Any],
        update: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
        *,
        upsert: bool = False,
    ) -> None:
        self.collection = collection
        self.id = condition.get("_id")
        self.kind = "delete" if update is None else "update"
        told: Document = {"q": condition}
        told |= {"limit": 1} if update is None else {"u": update, "upsert": upsert}
        try:
            raw = bson.encode(told)
        except (BSONError, OverflowError) as error:
            raise WriteRefused(0) from error
        if len(raw) > MOST_DOCUMENT_BYTES:
            raise WriteRefused(OBJECT_TOO_LARGE)
        self.raw = RawBSONDocument(raw)

    @classmethod
    def insert(cls, collection: str, row: Mapping[str, Any]) -> Change:
        """Insert a document; one that is there already stays as it is."""
        fields = {name: value for name, value in row.items() if name != "_id"}
        return cls(collection, {"_id": row["_id"]}, {"$setOnInsert": fields}, upsert=True)


class Write:
    """Changes that are made together or not at all; a thread that waits for them sleeps until
    `done` is released.
    """

    def __init__(self, changes: Sequence[Change], begin_at: float = 0.0) -> None:
        self.changes = changes
        self.size = sum(len(one.raw.raw) for one in changes)
        self.begin_at = begin_at
        """Monotonic time at which it has to begin."""
        self.is_later = begin_at > 0
        self.put_off_until = 0.0
        self.done = threading.Lock()
        self.done.acquire()
        self.matched = False
        self.error: Exception | None = None
        self.is_ended = False

    @property
    def documents(self) -> set[str]:
        """The documents that it changes."""
        return {f"{one.collection}/{one.id!r}" for one in self.changes}

    def end(self, result: bool | Exception) -> None:
        if isinstance(result, Exception):
            self.error = result
        else:
            self.matched = result
        self.is_ended = True
        self.done.release()


class Fence(Protocol):
    """The document that each group writes under the leader's epoch, and what goes with it."""

    def changes(self, *, alone: bool) -> Sequence[Change]:
        """The fence's update, last, and other changes of the leader's own position. None at all if
        nothing has changed and nothing else is in the group.
        """

    def written(self) -> None:
        """The changes are durable."""

    def not_written(self) -> None:
        """They are not, and are asked for again."""

    def refused(self) -> None:
        """The fence did not match: raises Replaced if a successor has it, else makes it again."""

    def seconds(self) -> float:
        """How long it can wait for a group; 0 if it has waited long enough. Never more than a look
        may be late.
        """


class _NotWritten(Exception):
    """Nothing of a group is written."""


class _Unmatched(_NotWritten):
    """A change has not matched."""


class _Conflict(_NotWritten, StoreUnavailable):
    """A foreign transaction has one of the documents."""


class _FenceRefused(_NotWritten):
    """The fence has not matched."""


class _Refused(_NotWritten):
    """MongoDB refuses this change."""

    def __init__(self, change: Change, code: int) -> None:
        super().__init__(f"{change.collection}: code {code}")
        self.change = change
        self.code = code


class Committer(BackgroundThread):
    """Commits the groups of one leader. Before its thread is started, and after its end, the thread
    that waits for a write commits it. A stop commits the rest; the fence wakes it for its changes.
    """

    def __init__(self, database: Database[Any]) -> None:
        super().__init__("committer", self._run)
        self.database = database
        self.session: ClientSession = database.client.start_session(causal_consistency=True)
        """Of all transactions; its time is that of the last one."""
        self._fence: Fence | None = None
        self._lock = threading.Lock()
        # Under _lock.
        self._queue: deque[Write] = deque()
        self._later = 0
        self._failure: Exception | None = None
        self._is_over = False
        # Held by the thread that commits.
        self._committing = threading.Lock()
        self._is_uncertain = False
        # The documents of the writes of the group under way that are put off; whether the group
        # before it was one that had been.
        self._held: set[str] = set()
        self._was_put_off = False

    def lead(self, fence: Fence) -> None:
        """Write this fence with each group from now on."""
        self._fence = fence

    # Writes.

    def commit(self, *changes: Change, seconds: float = WAIT_SECONDS) -> bool:
        """Make these changes; returns False if one of them did not match, and none is made.

        It waits so many `seconds`. Raises StoreUnavailable if they are over; then the changes may
        be made later. Raises WriteRefused if MongoDB refuses one of them.
        """
        return self.result(self.enter(*changes), seconds)

    def commit_each(self, *changes: Change) -> None:
        """Make these changes; where one does not match, since its document was changed or removed
        by hand, the others are made all the same.
        """
        if not self.commit(*changes):
            for change in changes:
                self.commit(change)

    def enter(self, *changes: Change) -> Write:
        """Have these changes made; `result` waits for them."""
        write = Write(changes)
        with self._lock:
            if self._failure is not None:
                raise self._failure
            self._queue.append(write)
        self._wake.set()
        return write

    def result(self, write: Write, seconds: float = WAIT_SECONDS) -> bool:
        """Wait for a write, as `commit` does. If its time is over and it is in no group yet, it is
        never made, and has ended.
        """
        if not self._has_thread:
            self.commit_waiting()
        if not write.done.acquire(timeout=seconds):
            self._withdraw(write)
        # For the next one that asks.
        write.done.release()
        if write.error is not None:
            raise write.error
        return write.matched

    def commit_later(self, *changes: Change) -> bool:
        """Make these changes with the next group, which no thread waits for. They are dropped where
        they do not match. False if there is no room.
        """
        with self._lock:
            has_room = self._later < MOST_LATER and self._failure is None
            if has_room:
                begin_at = time.monotonic() + LATER_SECONDS
                self._queue.append(Write(changes, begin_at))
                self._later += 1
                is_first = self._later == 1
        if has_room and is_first:
            self._wake.set()
        return has_room

    @property
    def _has_thread(self) -> bool:
        """Whether its thread commits what waits."""
        return self._is_started and not self._is_over

    def _withdraw(self, write: Write) -> None:
        """Its time is over. Raises StoreUnavailable, unless its answer has come."""
        with self._lock:
            if write.done.acquire(blocking=False):
                return
            if write in self._queue:
                self._queue.remove(write)
                write.is_ended = True
        raise StoreUnavailable("MongoDB did not confirm in time")

    @contextmanager
    def reading(self) -> Iterator[ClientSession]:
        """A session whose reads see all groups that were committed, also right after an election,
        and all that the leader before has committed. Raises StoreUnavailable.
        """
        client = self.database.client
        with translated(), client.start_session(causal_consistency=True) as session:
            # guard: reads-behind-the-fence
            if self.session.operation_time is not None:
                session.advance_operation_time(self.session.operation_time)
            yield session

    # Groups.

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.activity.idle()
                self._wake.wait(self._seconds())
                self._wake.clear()
                if self._seconds() <= 0:
                    self.commit_waiting()
            self._end()
        except (QueueError, PyMongoError) as error:
            self._fail(error)
            raise

    def _end(self) -> None:
        """Commit the rest. Later writes are committed by their own threads."""
        while not self._is_over:
            if not self.commit_waiting():
                self._fail(StoreUnavailable("MongoDB did not confirm at the stop"))
            with self._lock:
                self._is_over = not self._queue

    def _seconds(self) -> float:
        """How long the next group can wait."""
        assert self._fence is not None
        with self._lock:
            begin_at = min((one.begin_at for one in self._queue), default=math.inf)
        return min(self._fence.seconds(), begin_at - time.monotonic())

    def commit_waiting(self) -> bool:
        """Commit all that waits now, and the fence's changes; False if MongoDB does not confirm in
        the end phase.
        """
        with self._committing:
            is_first = True
            while (group := self._next()) or is_first:
                is_first = False
                self.activity.busy()
                if not self._commit_group(group):
                    return False
        return True

    def _next(self) -> list[Write]:
        """Take the first writes, as far as they fit into a group. A write that was put off stays
        until its time, and with it those behind it that change one of its documents; then it is a
        group by itself, after one without it.

        The order: two writes of one document are made as they were entered. A group has them in
        this order, no write passes one that stays and shares a document with it, and all that stay
        are the first of the queue again, in their order.
        """
        group: list[Write] = []
        waiting: list[Write] = []
        held: set[str] = set()
        size = count = 0
        with self._lock:
            while self._queue:
                one = self._queue[0]
                is_full = size + one.size > MOST_BYTES or count + len(one.changes) > MOST_TOGETHER
                if group and (is_full or group[0].put_off_until):
                    break
                self._queue.popleft()
                is_late = one.put_off_until > 0 and (bool(group) or self._was_put_off)
                is_put_off = time.monotonic() < one.put_off_until
                waits = (is_put_off or is_late) and not self._stop.is_set()
                if waits or (held and held & one.documents):
                    held |= one.documents
                    waiting.append(one)
                else:
                    group.append(one)
                    size, count = size + one.size, count + len(one.changes)
                    self._later -= one.is_later
            until = max((one.put_off_until for one in waiting), default=0.0)
            for one in waiting:
                one.begin_at = max(one.begin_at, until)
            self._queue.extendleft(reversed(waiting))
        self._was_put_off = bool(group and group[0].put_off_until)
        return group

    def _put_off(self, write: Write) -> None:
        """It alone meets a foreign transaction: it stays the first for its documents. Without a
        thread that would make it later, it is not made.
        """
        if self._stop.is_set() or not self._has_thread:
            write.end(StoreUnavailable("a document is part of a foreign transaction"))
            return
        write.put_off_until = write.begin_at = time.monotonic() + PUT_OFF_SECONDS
        self._held |= write.documents

    def _stays_behind(self, write: Write) -> bool:
        """Whether a write before it stays, and they share a document: then it stays, too."""
        # guard: put-off-in-order -> return False
        if not self._held & write.documents:
            return False
        self._held |= write.documents
        return True

    def _commit_group(self, group: Sequence[Write]) -> bool:
        fence = self._fence
        assert fence is not None, "a leader commits"
        try:
            while True:
                self._held = set()
                own = fence.changes(alone=not group)
                if not own:
                    return True
                try:
                    conflicts = 1 if group and group[0].put_off_until else MOST_CONFLICTS
                    if not self._make(_open(group), own, conflicts=conflicts):
                        self._make((), own)
                except _FenceRefused:
                    fence.refused()
                    fence.not_written()
                else:
                    break
        except (QueueError, PyMongoError) as error:
            for one in _open(group):
                one.end(error)
            fence.not_written()
            if isinstance(error, StoreUnavailable):
                return False
            raise
        stay = _open(group)
        with self._lock:
            self._queue.extendleft(reversed(stay))
            self._later += sum(one.is_later for one in stay)
        fence.written()
        return True

    def _make(
        self,
        group: Sequence[Write],
        own: Sequence[Change],
        *,
        conflicts: int = MOST_CONFLICTS,
    ) -> bool:
        """Commit the group, without those that do not match or are refused; returns whether the
        fence's changes are written.
        """
        group = [one for one in group if not self._stays_behind(one)]
        changes = [change for one in group for change in one.changes]
        try:
            self._until_confirmed([*changes, *own], conflicts if group else None)
        except (_Unmatched, _Conflict) as error:
            if not group:
                raise
            if len(group) > 1:
                half = len(group) // 2
                is_written = self._make(group[:half], own, conflicts=1)
                return self._make(group[half:], own, conflicts=1) or is_written
            if isinstance(error, _Conflict):
                self._put_off(group[0])
            else:
                group[0].end(False)
            return False
        except _Refused as refused:
            whose = [one for one in group if refused.change in one.changes]
            if not whose:
                raise OperationFailure(str(refused), refused.code) from refused
            is_there = refused.code == DUPLICATE_KEY
            whose[0].end(False if is_there else WriteRefused(refused.code))
            others = _open(group)
            return self._make(others, own) if others else False
        for one in group:
            one.end(True)
        return True

    def _until_confirmed(self, changes: Sequence[Change], conflicts: int | None) -> None:
        """Repeat the transaction until it is certain. Raises _Conflict at so many of these, and
        StoreUnavailable at a stop, when it is tried once more only.
        """
        failures = 0
        while True:
            try:
                self._transact(changes)
            except StoreUnavailable as error:
                failures += 1
                if isinstance(error, _Conflict) and conflicts and failures >= conflicts:
                    raise
                if isinstance(error, _Conflict):
                    log.debug("writes in conflict with others, trying again error=%s", error)
                else:
                    MONGODB.fails("writes not confirmed", error)
                if self._stop.is_set() or not self._has_thread:
                    self._is_uncertain = False
                    raise
                self.activity.idle()
                self._stop.wait(pause_seconds(failures, most=LONGEST_PAUSE_SECONDS))
                self.activity.busy()
            else:
                MONGODB.works("writes not confirmed")
                return

    def _transact(self, changes: Sequence[Change]) -> None:
        """Make one try. Raises StoreUnavailable if it was aborted, or its outcome is unknown."""
        session = self.session
        if not self._is_uncertain:
            commit_ms = int(WTIMEOUT_SECONDS * 1000)
            session.start_transaction(write_concern=DURABLE, max_commit_time_ms=commit_ms)
            try:
                self._send(changes)
            except (PyMongoError, _NotWritten) as error:
                # Otherwise the next transaction ends it.
                with suppress(PyMongoError):
                    session.abort_transaction()
                if isinstance(error, PyMongoError):
                    raise translate(error) from error
                raise
        try:
            session.commit_transaction()
        except PyMongoError as error:
            # guard: commit-is-repeated -> self._is_uncertain = False
            self._is_uncertain = not error.has_error_label(ABORTED)
            # guard: unknown-is-not-success -> return
            raise translate(error) from error
        self._is_uncertain = False

    def _send(self, changes: Sequence[Change]) -> None:
        fenced = changes[-1]
        # The fence's collection last: from then on every other writer of it waits.
        fences = fenced.collection
        changes = sorted(changes, key=lambda one: (one.collection == fences, one.collection))
        for (collection, kind), found in groupby(changes, lambda one: (one.collection, one.kind)):
            sent = list(found)
            try:
                answer = self.database.command(
                    {
                        kind: collection,
                        f"{kind}s": [one.raw for one in sent],
                        "ordered": True,
                    },
                    session=self.session,
                )
            except DocumentTooLarge as error:
                raise _Refused(sent[0], OBJECT_TOO_LARGE) from error
            except OperationFailure as error:
                if error.code == WRITE_CONFLICT and sent[-1] is not fenced:
                    raise _Conflict("a document is part of a foreign transaction") from error
                raise
            for wrong in answer.get("writeErrors", ()):
                raise _Refused(sent[wrong["index"]], wrong["code"])
            if kind == "update" and answer["n"] != len(sent):
                raise _FenceRefused if sent[-1] is fenced else _Unmatched

    def _fail(self, error: Exception) -> None:
        """Nothing is written any more."""
        with self._lock:
            known = isinstance(error, QueueError)
            self._failure = error if known else StoreUnavailable(type(error).__name__)
            dropped, self._queue = list(self._queue), deque()
        for one in dropped:
            one.end(error)


def _open(group: Sequence[Write]) -> list[Write]:
    """Those without a result."""
    return [one for one in group if not one.is_ended]
