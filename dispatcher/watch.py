"""What the main thread looks after once a second: overdue handlers, and what hangs."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from dispatcher.pool import Pool
from dispatcher.reader import Reader
from linedesk.contract import Worker
from recvq.thread import Component

log = logging.getLogger(__name__)

# What one job or step takes at the longest, its handler apart. One command of MongoDB: 5 s to
# select a server and 20 s for its answer, twice, since the driver tries once more. A job makes at
# most ten of them to settle its record. A step waits up to 60 s for the interval, notes its try,
# calls LINE in 13 s and writes down the answer. Beyond this a thread hangs where nothing may.
STEP_SECONDS = 600.0
# The feed brings a document at least this often, be it a heartbeat, or says what it waits for; so
# it has as long once it waits no more.
FEED_SECONDS = 90.0


class Watch:
    """Looks at the pool, the reader and all the other parts.

    `handler_seconds` is how long a handler may run.
    """

    def __init__(
        self,
        pool: Pool,
        reader: Reader,
        worker: Worker,
        parts: Sequence[Component],
        *,
        threads: int,
        handler_seconds: float,
    ) -> None:
        self._pool = pool
        self._reader = reader
        self._worker = worker
        self._parts = parts
        self._threads = threads
        self._handler_seconds = handler_seconds
        self._said: str | None = None

    def look(self) -> bool:
        """Look once; False if so many threads are lost that the process has to be restarted."""
        self._abandon_overdue()
        stall = self.stalled()
        if stall is not None and stall != self._said:
            log.error("stalled: %s", stall)
        self._said = stall
        return self._has_threads_left()

    def stalled(self) -> str | None:
        """What hangs although it may not, in words; None while all goes on.

        Every thread is within the limit of its step, and the feed has delivered lately or waits
        for something that has a name, and has said so lately.
        """
        late = self._pool.busy_longer_than(self._handler_seconds + STEP_SECONDS)
        if late:
            return f"a thread hangs {late[0]}"
        for part in self._parts:
            if (stall := part.stalled()) is not None:
                return stall
        if self._reader.quiet_seconds() > FEED_SECONDS and self._reader.reason.fresh() is None:
            return "the feed brings nothing, not even a heartbeat"
        return None

    def _abandon_overdue(self) -> None:
        for thread in self._pool.abandon_overdue(self._handler_seconds):
            task = thread.task
            assert task is not None, "only a handler is abandoned"
            log.error(
                "handler did not return, abandoned event_id=%s thread=%s seconds=%.1f",
                task.name,
                thread.name,
                thread.has_been_at_it(time.monotonic()),
            )
            self._worker.did_not_return(task, thread.stack)

    def _has_threads_left(self) -> bool:
        lost = self._pool.abandoned()
        if len(lost) < self._threads:
            return True
        log.error("as many handlers hang as there are threads, stopping threads=%d", len(lost))
        for doing in lost:
            log.error("abandoned thread still runs %s", doing)
        return False
