"""Group commit of conversations: simultaneous updates of many threads share one command.

Each has a condition of its own and changes one document. MongoDB reports how many of a command's
updates matched, but not which. The answer is therefore certain for all of them or for none. A
caller without a certain answer repeats its update by itself, which has to be harmless.

The driver does not repeat a command itself: MongoDB would keep a note of each update for that,
which costs as much as a small update. Instead a command without an answer is repeated here as a
whole, since all of its updates are conditional.

An update may also be left for the next command, if no thread waits for it.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context
from itertools import islice
from typing import Any

import bson
import pymongo
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection
from pymongo.errors import DocumentTooLarge, PyMongoError, WriteError, WTimeoutError

from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable, WriteRefused, is_transient, writing_one

# With more, the first of them would wait for the last.
MOST_TOGETHER = 50
# MongoDB takes 48 MB in a command.
MOST_BYTES = 16 * 1024 * 1024
# With more, the threads of further ones wait.
MOST_LEFT = 1000
DUPLICATE_KEY = 11000
W_TIMEOUT = 64


class GroupUpdate:
    """One update; a thread that waits for it sleeps until `done` is released."""

    def __init__(self, condition: Document, update: Document, *, upsert: bool = False) -> None:
        self.condition = condition
        self.update = update
        self.raw = RawBSONDocument(bson.encode({"q": condition, "u": update, "upsert": upsert}))
        self.done = threading.Lock()
        self.done.acquire()
        self.leads = False
        self.is_certain = False
        self.error: Exception | None = None
        # Of one that was left: other updates that take it along now, whether it has no match, and
        # whether one of the others was durable.
        self.users = 0
        self.is_alone = False
        self.is_durable = False


class GroupCommit:
    """Updates of single documents of one collection, with its write concern.

    One command is under way at a time. The first caller sends its update at once. Later ones share
    the next command, which one of them sends for all.
    """

    def __init__(self, collection: Collection[Any]) -> None:
        self._collection = collection
        self._lock = threading.Lock()
        # All under _lock.
        self._waiting: deque[GroupUpdate] = deque()
        # By the `_id` in their condition.
        self._left: dict[Any, GroupUpdate] = {}
        self._is_under_way = False

    def update(
        self,
        condition: Document,
        update: Document,
        *,
        upsert: bool = False,
        seconds: float | None = None,
    ) -> bool:
        """Return whether a document certainly matched and was updated, or was inserted; False: the
        result is unknown.

        It waits for others at most `seconds`, and its command takes at most as long again; without
        `seconds` a `pymongo.timeout` around it limits its own command. Raises StoreUnavailable, and
        WriteRefused if MongoDB refuses this update.
        """
        with writing_one():
            one = GroupUpdate(condition, update, upsert=upsert)
            with self._lock:
                self._waiting.append(one)
                one.leads = not self._is_under_way
                self._is_under_way = True
            if not one.leads and not one.done.acquire(timeout=-1 if seconds is None else seconds):
                self._give_up(one)
            if one.leads and seconds is None:
                self._lead()
            elif one.leads and seconds is not None:
                # Others are in its command, which gets all of the time, and not just what is left.
                Context().run(self._lead_within, seconds)
            if one.error is not None:
                raise one.error
            return one.is_certain

    def _give_up(self, one: GroupUpdate) -> None:
        """Its time is over. Raises StoreUnavailable, unless its answer or its turn has come."""
        with self._lock:
            if one.done.acquire(blocking=False):
                return
            if one in self._waiting:
                self._waiting.remove(one)
        raise StoreUnavailable("other writes take too long")

    # Updates that no thread waits for, at most one a document.

    def leave(self, condition: Document, update: Document) -> bool:
        """Leave an update for the next command; False if there is no room."""
        id_, one = condition["_id"], GroupUpdate(condition, update)
        with self._lock:
            has_room = len(self._left) < MOST_LEFT and id_ not in self._left
            if has_room:
                self._left[id_] = one
        return has_room

    def has_left(self, id_: Any) -> bool:
        """Whether an update of this document is left, and not known to be durable."""
        return id_ in self._left

    @contextmanager
    def taken(self, id_: Any) -> Iterator[GroupUpdate | None]:
        """The update that is left of a document, for another one of it to take along; then that
        one sets its `is_durable`.
        """
        with self._lock:
            one = self._left.get(id_)
            if one is not None:
                one.users += 1
        try:
            yield one
        finally:
            if one is not None:
                with self._lock:
                    one.users -= 1
                    if one.is_durable:
                        self._leaves(one)

    def _leaves(self, one: GroupUpdate) -> None:
        id_ = one.condition["_id"]
        if self._left.get(id_) is one:
            del self._left[id_]

    def write_left(self, alone: Callable[[GroupUpdate], None]) -> bool:
        """Write the updates that are left and that no other one takes along; `alone` writes one
        that did not match in a command. Returns whether some are still left, as they are also if
        it raises StoreUnavailable.
        """
        with self._lock:
            commands = math.ceil(len(self._left) / MOST_TOGETHER)
        for _ in range(commands):
            # One that changes nothing, for a command of what is left.
            self.update({}, {})
        refused: WriteRefused | None = None
        for id_ in list(self._left):
            with self.taken(id_) as one:
                if one is None or not one.is_alone or one.users != 1:
                    continue
                try:
                    alone(one)
                    one.is_durable = True
                except WriteRefused as error:
                    # Its document's own trouble.
                    refused = error
        if refused is not None:
            raise refused
        return bool(self._left)

    # A command.

    def _lead_within(self, seconds: float) -> None:
        with pymongo.timeout(seconds):
            self._lead()

    def _lead(self) -> None:
        """Send the waiting updates, and let the next thread lead."""
        with self._lock:
            together = self._next()
            free = (one for one in self._left.values() if not (one.users or one.is_alone))
            left = list(islice(free, MOST_TOGETHER))
        try:
            self._send(together, left)
        finally:
            with self._lock:
                self._settle_left(left)
                self._is_under_way = bool(self._waiting)
                if self._waiting:
                    self._waiting[0].leads = True
                    self._waiting[0].done.release()
                for one in together:
                    one.done.release()

    def _next(self) -> list[GroupUpdate]:
        """Under the lock: take the first waiting updates, as far as they fit into a command."""
        together: list[GroupUpdate] = []
        size = 0
        while self._waiting and len(together) < MOST_TOGETHER:
            size += len(self._waiting[0].raw.raw)
            if together and size > MOST_BYTES:
                break
            together.append(self._waiting.popleft())
        return together

    def _settle_left(self, left: Sequence[GroupUpdate]) -> None:
        """Under the lock."""
        for one in left:
            if one.is_certain:
                self._leaves(one)
            # Otherwise it would make every further command uncertain.
            one.is_alone = one.error is None or isinstance(one.error, WriteError)
            one.error = None

    def _send(self, together: Sequence[GroupUpdate], left: Sequence[GroupUpdate]) -> None:
        sent = [*(one for one in together if one.update), *left]
        if not sent:
            return
        try:
            answer = self._answer(sent)
        except DocumentTooLarge:
            # One of them, and the driver does not report which.
            return
        except PyMongoError as error:
            for one in (*together, *left):
                one.error = error
            return
        is_there_already = set[int]()
        for found in answer.get("writeErrors", ()):
            if found["code"] == DUPLICATE_KEY:
                is_there_already.add(found["index"])
            else:
                told = WriteError(found.get("errmsg", ""), found["code"], found)
                sent[found["index"]].error = told
        if "writeConcernError" in answer:
            # None of them is known to be on a majority.
            for one in sent:
                one.error = one.error or WTimeoutError("not on a majority")
        taken = [
            one for n, one in enumerate(sent) if one.error is None and n not in is_there_already
        ]
        # guard: certain-of-all-or-none -> for one in taken:
        for one in taken if answer["n"] == len(taken) else ():
            one.is_certain = True

    def _answer(self, sent: Sequence[GroupUpdate]) -> Mapping[str, Any]:
        """Return MongoDB's answer to the command; without one it is sent once more."""

        def command() -> Mapping[str, Any]:
            return self._collection.database.command(
                {
                    "update": self._collection.name,
                    "updates": [one.raw for one in sent],
                    "ordered": False,
                    "writeConcern": self._collection.write_concern.document,
                }
            )

        # guard: uncertain-group-again -> return command()
        try:
            answer = command()
        except PyMongoError as error:
            if error.timeout or not is_transient(error):
                raise
            return command()
        code = answer.get("writeConcernError", {}).get("code", W_TIMEOUT)
        return answer if code == W_TIMEOUT else command()
