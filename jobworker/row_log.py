"""Rows for reporting, such as those of `calls` and `jobs`: collected in memory and written in
batches by one thread, so that no work waits for them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence

from bson.errors import BSONError
from pymongo.collection import Collection
from pymongo.errors import PyMongoError
from pymongo.write_concern import WriteConcern

from linedesk.runtime.thread import BackgroundThread
from linedesk.store.documents import Document
from linedesk.store.records.rows import documents_of

log = logging.getLogger(__name__)

BATCH_SECONDS = 0.5
MOST_WAITING = 10_000


class RowLog:
    """Rows of one collection, from any thread. While MongoDB is away, rows beyond the bound are
    dropped, the oldest first; `unwritten` gets the number of rows that are never written.
    """

    def __init__(self, collection: Collection[Document], unwritten: Callable[[int], None]) -> None:
        self._collection = collection.with_options(write_concern=WriteConcern(w=1))
        self._rows: deque[Document] = deque(maxlen=MOST_WAITING)
        self._unwritten = unwritten
        self._dropped = 0

    @property
    def waiting(self) -> int:
        return len(self._rows)

    def add(self, row: Document) -> None:
        """Have a row written later; raises nothing."""
        self._dropped += len(self._rows) == self._rows.maxlen
        self._rows.append(row)

    def write(self) -> None:
        """Insert the waiting rows, many in a document; for the writer's thread. Raises nothing."""
        rows = [self._rows.popleft() for _ in range(len(self._rows))]
        if not rows:
            return
        name = self._collection.name
        try:
            self._collection.insert_many(documents_of(rows), ordered=False)
        except (PyMongoError, BSONError, UnicodeError) as error:
            # Any error: reporting must not end the thread.
            kind = type(error).__name__
            log.warning("rows of %s not written rows=%d error=%s", name, len(rows), kind)
            self._unwritten(len(rows))
        if self._dropped:
            log.warning("rows of %s dropped rows=%d", name, self._dropped)
            self._unwritten(self._dropped)
            self._dropped = 0


class RowWriter(BackgroundThread):
    """The one thread that writes the rows of some logs; `looks` are called after each batch."""

    def __init__(self, *logs: RowLog, looks: Sequence[Callable[[], None]] = ()) -> None:
        super().__init__("rows", self._run)
        self._logs = logs
        self._looks = looks

    def _run(self) -> None:
        while not self._stop.wait(BATCH_SECONDS):
            self.write()
            for look in self._looks:
                look()
        self.write()

    def write(self) -> None:
        for one in self._logs:
            one.write()
