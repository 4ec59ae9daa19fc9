"""Group commit of conversations: simultaneous updates of many threads share one command.

Each has a condition of its own and changes one document. MongoDB reports how many of a command's
updates matched, but not which. The answer is therefore certain for all of them or for none. A
caller without a certain answer repeats its update by itself, which has to be harmless.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from bson.errors import BSONError
from pymongo import UpdateOne
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError, DocumentTooLarge, PyMongoError, WriteError

from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable, writing_one

# With more, the first of them would wait for the last.
MOST_TOGETHER = 50


class _Waiting:
    """One update under way; its thread sleeps until `done` is released."""

    __slots__ = ("condition", "done", "error", "is_certain", "leads", "update")

    def __init__(self, condition: Document, update: Document) -> None:
        self.condition = condition
        self.update = update
        self.done = threading.Lock()
        self.done.acquire()
        self.leads = False
        self.is_certain = False
        self.error: Exception | None = None


class GroupCommit:
    """Updates of single documents of one collection, with its write concern.

    One command is under way at a time. The first caller sends its update at once. Later ones share
    the next command, which one of them sends for all.
    """

    def __init__(self, collection: Collection[Any]) -> None:
        self._collection = collection
        self._lock = threading.Lock()
        # Both under _lock.
        self._waiting: deque[_Waiting] = deque()
        self._is_under_way = False

    def update(
        self, condition: Document, update: Document, *, seconds: float | None = None
    ) -> bool:
        """Return whether a document certainly matched and was updated; False: the result is
        unknown.

        It waits for others at most `seconds`; a `pymongo.timeout` around it limits its own command.
        Raises StoreUnavailable, and WriteRefused if MongoDB refuses this update.
        """
        one = _Waiting(condition, update)
        with self._lock:
            self._waiting.append(one)
            one.leads = not self._is_under_way
            self._is_under_way = True
        if not one.leads and not one.done.acquire(timeout=-1 if seconds is None else seconds):
            self._leave(one)
        if one.leads:
            self._lead()
        if one.error is not None:
            with writing_one():
                raise one.error
        return one.is_certain

    def _leave(self, one: _Waiting) -> None:
        """Its time is over. Raises StoreUnavailable, unless its answer or its turn has come."""
        with self._lock:
            if one.done.acquire(blocking=False):
                return
            if one in self._waiting:
                self._waiting.remove(one)
        raise StoreUnavailable("other writes take too long")

    def _lead(self) -> None:
        """Send the waiting updates, and let the next thread lead."""
        with self._lock:
            count = min(len(self._waiting), MOST_TOGETHER)
            together = [self._waiting.popleft() for _ in range(count)]
        try:
            self._send(together)
        finally:
            with self._lock:
                self._is_under_way = bool(self._waiting)
                if self._waiting:
                    self._waiting[0].leads = True
                    self._waiting[0].done.release()
                for one in together:
                    one.done.release()

    def _send(self, together: Sequence[_Waiting]) -> None:
        wanted = [UpdateOne(one.condition, one.update) for one in together]
        try:
            matched = self._collection.bulk_write(wanted, ordered=False).matched_count
        except BulkWriteError as error:
            matched = self._take_errors(together, error)
        except (BSONError, DocumentTooLarge):
            # One of them cannot be encoded, and the driver does not report which.
            return
        except PyMongoError as error:
            for one in together:
                one.error = error
            return
        taken = [one for one in together if one.error is None]
        # guard: certain-of-all-or-none -> for one in taken:
        for one in taken if matched == len(taken) else ():
            one.is_certain = True

    def _take_errors(self, together: Sequence[_Waiting], error: BulkWriteError) -> int:
        """Report the errors to the refused updates; returns how many others matched."""
        for found in error.details["writeErrors"]:
            together[found["index"]].error = WriteError(found["errmsg"], found["code"], found)
        if error.details["writeConcernErrors"]:
            # None of them is known to be on a majority.
            for one in together:
                one.error = one.error or StoreUnavailable("WTimeoutError")
        return int(error.details["nMatched"])
