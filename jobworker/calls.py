"""One row in `calls` per LINE API call: what LINE tells bot makers to keep, since it gives out
no logs of its own. Written in batches from a thread of its own, and never waited for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import PyMongoError
from pymongo.write_concern import WriteConcern

from recvq.documents import Document

log = logging.getLogger(__name__)

BATCH_SECONDS = 0.5
MOST_WAITING = 10_000


class CallLog:
    """Collects rows and inserts them; rows beyond the bound, while MongoDB is away, are counted
    and dropped, the oldest first.
    """

    def __init__(self, collection: Collection[Any]) -> None:
        self._collection = collection.with_options(write_concern=WriteConcern(w=1))
        self._rows: deque[Document] = deque(maxlen=MOST_WAITING)
        self._dropped = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="calls", daemon=True)

    def start(self) -> None:
        """Start the thread, unless it runs already."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Write what is left and end; may be called twice, and before `start`."""
        self._stop.set()

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the thread to end; returns whether it did."""
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    @contextmanager
    def noted(
        self, method: str, endpoint: str, context: Mapping[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """Note one call; the caller fills in `status` and `requestId` when there is an answer."""
        row: dict[str, Any] = {
            "at": datetime.now(UTC),
            "ms": 0.0,
            "method": method,
            "endpoint": endpoint,
            "status": None,
            "requestId": None,
            "eventId": context.get("eventId"),
            "key": context.get("key"),
            "attempt": context.get("attempt", 1),
        }
        started = time.monotonic()
        try:
            yield row
        finally:
            row["ms"] = round((time.monotonic() - started) * 1000, 1)
            log.info(
                "called LINE method=%s endpoint=%s status=%s request_id=%s event_id=%s "
                "attempt=%d ms=%.1f",
                *(row[name] for name in ("method", "endpoint", "status", "requestId")),
                *(row[name] for name in ("eventId", "attempt", "ms")),
            )
            self._dropped += len(self._rows) == MOST_WAITING
            self._rows.append(row)

    def _run(self) -> None:
        while not self._stop.wait(BATCH_SECONDS):
            self._write()
        self._write()

    def _write(self) -> None:
        rows = [self._rows.popleft() for _ in range(len(self._rows))]
        if not rows:
            return
        try:
            self._collection.insert_many(rows, ordered=False)
        except PyMongoError as error:
            # Whatever it is: what only tells of the work must not end it.
            kind = type(error).__name__
            log.warning("rows of calls not written rows=%d error=%s", len(rows), kind)
        if self._dropped:
            log.warning("rows of calls dropped rows=%d", self._dropped)
            self._dropped = 0
