"""Reading again what of a line is kept as `_id`s only, or waits in `held`; on a worker's thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dispatcher.keyed.holding import ids_of
from dispatcher.keyed.line import Task
from dispatcher.keyed.lines import Lines
from dispatcher.progress.held import HeldStore
from linedesk.contract import JobResult
from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable

log = logging.getLogger(__name__)

LOAD_AGAIN_SECONDS = 1.0

Load = Callable[[Sequence[Any]], Mapping[Any, Document]]
Later = Callable[[float, Callable[[], None]], None]


class Rereading:
    """See the module's words; `lock` is the pool's, and `bound` how much may be in hand."""

    def __init__(
        self,
        lines: Lines,
        lock: threading.Lock,
        *,
        load: Load,
        held: HeldStore | None,
        later: Later,
        bound: int,
    ) -> None:
        self._lines = lines
        self._lock = lock
        self._load = load
        self._held = held
        self._later = later
        self._bound = bound

    def run(self, task: Task) -> JobResult:
        """Read on in the task's line, whose first it is; then it is resumed, or its successor."""
        try:
            return self._load_held(task) if task.stands_in else self._make_whole(task)
        except StoreUnavailable:
            task.because = "MongoDB does not give the document"
            self._later(LOAD_AGAIN_SECONDS, task.resume)
            return JobResult.DEFERRED

    def is_held(self, key: Any, id_: Any) -> bool:
        """Whether a document that a scan met is in `held`; one held long ago the ring forgot.

        Raises StoreUnavailable.
        """
        with self._lock:
            line = self._lines.by_key.get(key)
            may_be = line is not None and line.held > 0
        return may_be and self._held is not None and self._held.has(id_)

    def _load_held(self, task: Task) -> JobResult:
        """Read the line's next documents from `held`, in place of the task that stands for them."""
        line = task.line
        with self._lock:
            asked, above, upto = self._lines.slice_size(self._bound), line.last, line.top
        assert self._held is not None, "a line has stored documents only with a store"
        rows = self._held.slice(line.key, above=above, upto=upto, most=asked)
        with self._lock:
            vanished = self._lines.load(line, rows, upto=upto, asked=asked)
        if vanished > 0:
            log.error("documents vanished from held key=%s documents=%d", line.key[1], vanished)
        task.resume()
        return JobResult.DEFERRED

    def _make_whole(self, task: Task) -> JobResult:
        """Read again, for this task and the next ones, what was kept as an `_id` only."""
        with self._lock:
            wanted = task.line.shortened()
        documents = self._load(ids_of(wanted)) if wanted else {}
        with self._lock:
            for one in wanted:
                # On its way into `held` it may have been read, and recvq have lost it since.
                if one.document is None:
                    one.document = documents.get(one.slot.id)
                    one.is_lost = one.document is None
        if task.document is None:
            log.error("document overwritten before it was handled id=%s", task.slot.id)
            return JobResult.DONE
        task.resume()
        return JobResult.DEFERRED
