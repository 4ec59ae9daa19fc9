"""The documents of one key in line, each a job for the worker. All of it under the pool's lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dispatcher.keyed.job import CallClaim
from dispatcher.progress.tracker import Slot
from linedesk.contract import GiveUp
from linedesk.store.documents import Document, name_of

# A conversation remembers the last 100 names it applied, its newest too (architecture: step 7).
MOST_UNSAVED = 99
# Documents of one key kept whole; of later ones only the `_id` is kept (architecture: step 5).
MOST_WHOLE = 100


class Task:
    """A document in hand: the job of its worker, and its place in line and ledger."""

    # As most of them stay: to set each one costs as much as all else of putting a document in.
    memo: Any = None
    handling: CallClaim | None = None
    condemned: GiveUp | None = None
    tries = 0
    """How often its handler was called."""
    suspect = False
    """Whether a predecessor may have died of it (`dispatcher.keyed.suspects`)."""
    held_as: int | None = None
    """Its `n` in `held`, once it is to be there."""
    stands_in = False
    """Whether it is no document, but stands for the line's next ones in `held`."""
    is_lost = False
    """Whether it was looked for, and is nowhere any more."""
    begun = 0.0
    """Monotonic seconds of its first run; 0 before."""
    parked = False
    because: str | None = None
    """Why its last run ended parked."""
    passes = False
    """Whether its next run may begin although its key is paused."""
    resumed = False
    """A resume that came before the job was parked: it runs again as soon as it is."""

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
        self._resume = resume

    def begin_handler(self) -> CallClaim:
        """The handler begins, on this thread: from now on it may be found overdue."""
        self.tries += 1
        self.handling = CallClaim()
        return self.handling

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
    """First come, first served: the first task is with a thread, ready, parked or blocked.

    In order: `tasks`, then what only `held` has, of `n` above `last` up to `top`, then `behind`.
    """

    __slots__ = (
        *("behind", "careful", "decided", "generation", "held", "holding", "key", "last"),
        *("looked", "queued", "tasks", "top", "total", "unsaved"),
    )

    def __init__(self, key: Any, *, top: int = -1, held: int = 0) -> None:
        self.key = key
        self.tasks: deque[Task] = deque()
        self.behind: deque[Task] = deque()
        self.last = -1
        self.top = top
        # How many of its documents `held` has, in hand or not.
        self.held = held
        # Whether documents of it are on their way into `held`: until that is settled it rests.
        self.holding = False
        # Whether the line is anywhere else than at rest, so that nobody queues it twice.
        self.queued = False
        self.decided = 0
        # So many of its next documents wait each for the save of the one before.
        self.careful = 0
        self.unsaved: list[str] = []
        self.generation = 0
        # All that it ever decided, and how much of it the last look of `Holding` saw.
        self.total = 0
        self.looked = 0

    def __len__(self) -> int:
        return len(self.tasks) + len(self.behind)

    @property
    def stored(self) -> bool:
        """Whether `held` has documents that come before `behind` and are not in hand."""
        return self.last < self.top

    def add(self, task: Task) -> None:
        """Put a task at the end; beyond the bound only its `_id` is kept."""
        if len(self.tasks) + len(self.behind) >= MOST_WHOLE:
            task.document = None  # type: ignore[assignment]
        # guard: behind-what-is-held -> self.tasks.append(task)
        (self.behind if self.last < self.top else self.tasks).append(task)

    def shortened(self) -> list[Task]:
        """The next tasks of which only the `_id` was kept, as many as may be whole."""
        near = (self.tasks[n] for n in range(min(MOST_WHOLE, len(self.tasks))))
        return [task for task in near if task.document is None and not task.is_lost]

    def not_held(self) -> Iterator[Task]:
        """The tasks that the window still counts, in order: they end the line."""
        for tasks in (self.tasks, self.behind):
            yield from (task for task in tasks if task.held_as is None and not task.slot.finished)

    def settle(self) -> None:
        """What was to be held is durable: of it only the first task stays in hand."""
        self.holding = False
        if not self.stored and self.tasks:
            # It may be with a thread, or parked and about to be resumed. One that came first only
            # while the others were under way may be an `_id`, and is read from `held` as they are.
            is_whole = self.tasks[0].document is not None or self.tasks[0].held_as is None
            head = [self.tasks.popleft()] if is_whole else []
            self.tasks, self.behind = deque(head), self.tasks
        while self.behind and self.behind[0].held_as is not None:
            number = self.behind.popleft().held_as
            assert number is not None
            if not self.stored:
                self.last = number - 1
            self.top = number
        self._close_up()

    def load(self, tasks: Sequence[Task], *, last: int) -> None:
        """Continue with tasks from `held`, which reach up to `last`, in place of the first one."""
        self.tasks.clear()
        self.tasks.extend(tasks)
        self.last = last
        self._close_up()

    def _close_up(self) -> None:
        if not self.stored:
            self.tasks.extend(self.behind)
            self.behind.clear()

    @property
    def needs_save(self) -> bool:
        """Whether it has decided as many documents as a conversation can remember."""
        # guard: ninety-nine-at-most -> return bool(self.careful and self.decided)
        return self.decided >= MOST_UNSAVED or bool(self.careful and self.decided)

    def forget(self) -> None:
        """All that it decided is in a saved progress, and gone from `held`."""
        self.decided = 0
        self.unsaved = []
