"""The documents of one key in line, each a job for the worker. All of it under the pool's lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from dispatcher.ledger import Slot
from recvq.documents import Document, name_of

# A conversation remembers the last 100 names it applied, its newest too (architecture: step 7).
MOST_UNSAVED = 99
# Documents of one key kept whole; of later ones only the `_id` is kept (architecture: step 5).
MOST_WHOLE = 100


class Task:
    """A document in hand: the job of its worker, and its place in line and ledger."""

    __slots__ = ("_resume", "again", "document", "line", "memo", "parked", "resumed", "slot")

    def __init__(
        self,
        line: Line,
        document: Document | None,
        slot: Slot,
        *,
        again: bool,
        resume: Callable[[Task], None],
    ) -> None:
        self.line = line
        # None while only the `_id` is kept; a worker never sees it so.
        self.document: Document = document  # type: ignore[assignment]
        self.slot = slot
        self.again = again
        self.memo: Any = None
        self.parked = False
        # A resume that came before the job was parked: it runs again as soon as it is.
        self.resumed = False
        self._resume = resume

    def unsaved(self) -> Sequence[str]:
        """Names of the key's documents decided without a record since the last save."""
        return self.line.unsaved

    def resume(self) -> None:
        """Let the job run again, from any thread."""
        self._resume(self)

    @property
    def name(self) -> str:
        """The event id, for a log line."""
        return name_of(self.document) if self.document is not None else str(self.slot.id)


class Line:
    """First come, first served: the first task is with a thread, ready, parked or blocked."""

    __slots__ = ("decided", "generation", "key", "queued", "tasks", "unsaved")

    def __init__(self, key: Any) -> None:
        self.key = key
        self.tasks: deque[Task] = deque()
        # Whether the line is anywhere else than at rest, so that nobody queues it twice.
        self.queued = False
        self.decided = 0
        self.unsaved: list[str] = []
        self.generation = 0

    def add(self, task: Task) -> None:
        """Put a task at the end; beyond the bound only its `_id` is kept."""
        if len(self.tasks) >= MOST_WHOLE:
            task.document = None  # type: ignore[assignment]
        self.tasks.append(task)

    def shortened(self) -> list[Task]:
        """The next tasks of which only the `_id` was kept, as many as may be whole."""
        near = (self.tasks[n] for n in range(min(MOST_WHOLE, len(self.tasks))))
        return [task for task in near if task.document is None]

    @property
    def needs_save(self) -> bool:
        """Whether it has decided as many documents as a conversation can remember."""
        return self.decided >= MOST_UNSAVED

    def forget(self) -> None:
        """All that it decided is in a saved progress."""
        self.decided = 0
        self.unsaved = []
