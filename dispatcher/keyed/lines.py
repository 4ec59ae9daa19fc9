"""All lines by their key, and where each stands: ready, blocked, paused or at rest.

All of it under the pool's lock; no I/O and no threads.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from dispatcher.keyed.line import MOST_WHOLE, Line, Task
from dispatcher.progress.held import HeldKey
from dispatcher.progress.tracker import ProgressTracker, Slot
from linedesk.contract import JobResult
from linedesk.store.documents import Document
from linedesk.store.orders import NO_PAUSES, Pauses


class Lines:
    """The account of the keys; `wake` is called for each line that a thread may take."""

    def __init__(
        self,
        ledger: ProgressTracker,
        *,
        wake: Callable[[], None],
        resume: Callable[[Task], None],
        pauses: Pauses = NO_PAUSES,
    ) -> None:
        self._ledger = ledger
        self._wake = wake
        self._resume = resume
        self.urgent = threading.Event()
        """Set when a line waits for a save."""
        self.by_key: dict[Any, Line] = {}
        self.ready: deque[Line] = deque()
        self.pauses = pauses
        # Lines whose first task might go to a thread, if they were not paused.
        self.paused: dict[Line, None] = {}
        # Lines that may not decide on before a save.
        self.blocked: list[Line] = []
        self._generation = 1
        # Lines that decided something which the save under way does not cover.
        self._touched: list[Line] = []
        # Ids of decided documents that `held` still has.
        self.gone: list[Any] = []
        self.held_keys = 0
        self.held_documents = 0
        # Since the start of the process: documents put in line, and documents decided.
        self.taken = 0
        self.decided = 0
        # Lines whose first task was parked, in the order in which that happened first, and how
        # many of those tasks are parked at this moment.
        self.slow: dict[Line, None] = {}
        self.parked = 0

    def add(self, document: Document, slot: Slot, key: Any, *, again: bool) -> bool:
        """Put a document at the end of its line; returns whether it is the only one of its key."""
        line = self.by_key.get(key)
        is_first = line is None
        self.taken += 1
        if line is None:
            line = self.by_key[key] = Line(key)
        line.add(Task(line, document, slot, again=again, resume=self._resume))
        if not line.queued:
            self.queue(line)
        return is_first

    def add_held(self, key: HeldKey) -> None:
        """A key of which `held` has documents, none of them in hand."""
        line = Line((key.channel, key.key), top=key.top)
        self.by_key[line.key] = line
        self.count_held(line, key.count)
        self._continue(line)

    def queue(self, line: Line) -> None:
        """The line's first task may go to a thread, once nothing has to be saved before."""
        line.queued = True
        # guard: paused-gets-no-thread -> never
        if self.pauses.rows and self._is_to_rest(line):
            self.paused[line] = None
        elif line.needs_save or line.holding:
            self.blocked.append(line)
            self.urgent.set()
        else:
            self.ready.append(line)
            self._wake()

    def _is_to_rest(self, line: Line) -> bool:
        """Whether it is paused, and no operator has released its first task."""
        return self.pauses.covers(*line.key) and not line.tasks[0].passes

    def obey(self, pauses: Pauses) -> None:
        """These are the pauses from now on: no job that they cover begins, all others may."""
        self.pauses = pauses
        # Those that were ready go first: nobody waits for what others had to wait for.
        waiting = [*self.ready, *self.paused]
        self.paused.clear()
        self.ready.clear()
        for line in waiting:
            self.queue(line)

    def let_pass(self, task: Task) -> None:
        """The first task of its line may run once, paused or not; one that is parked is resumed."""
        task.passes = True
        if task.line in self.paused:
            del self.paused[task.line]
            self.queue(task.line)
        else:
            self.resume(task)

    def park(self, task: Task) -> None:
        """The task's run did not decide it; it stays the first of its line."""
        if not task.resumed:
            task.parked = True
            self.parked += 1
            self.slow.setdefault(task.line)
        else:
            self._continue(task.line)

    def resume(self, task: Task) -> None:
        """Its run may be repeated, or will be at once when it is parked."""
        if task.parked:
            task.parked = False
            self.parked -= 1
            self.queue(task.line)
        else:
            task.resumed = True

    def finish(self, task: Task, verdict: JobResult) -> None:
        """The task is decided, and the next of its line comes."""
        line = task.line
        if line.generation != self._generation:
            line.generation = self._generation
            self._touched.append(line)
        line.decided += 1
        if line.careful:
            line.careful -= 1
        line.total += 1
        self.decided += 1
        if self.slow:
            self.slow.pop(line, None)
        if verdict is JobResult.RECORDED:
            line.unsaved = []
        elif verdict is JobResult.DONE:
            line.unsaved.append(task.name)
        line.tasks.popleft()
        if task.held_as is None:
            self._ledger.finish(task.slot)
        else:
            self.gone.append(task.slot.id)
            self.count_held(line, -1)
            self._ledger.finish_held(task.slot.id)
        self._continue(line)

    def settle(self, line: Line) -> None:
        """What of the line was on its way into `held` is durable."""
        line.settle()
        self._stand_in(line)

    def _stand_in(self, line: Line) -> None:
        if not line.tasks and line.stored:
            # It stands for the next documents in `held`, which a thread reads.
            slot = Slot(f"held/{line.key[1]}", None, finished=True)
            task = Task(line, None, slot, again=True, resume=self._resume)
            task.stands_in = True
            line.tasks.append(task)

    def _continue(self, line: Line) -> None:
        self._stand_in(line)
        if line.tasks:
            self.queue(line)
        else:
            line.queued = False
            self._drop_if_done(line)

    def _drop_if_done(self, line: Line) -> None:
        if not line.queued and not line.decided and self.by_key.get(line.key) is line:
            self.slow.pop(line, None)
            del self.by_key[line.key]

    def load(self, line: Line, rows: Sequence[Document], *, upto: int, asked: int) -> int:
        """`held` had these of the line's next documents, of the `asked` ones up to `upto`.

        Returns how many have vanished from it by other hands: they are not waited for.
        """
        tasks = []
        for row in rows:
            slot = Slot(row["_id"], None, finished=True)
            task = Task(line, row["document"], slot, again=True, resume=self._resume)
            task.held_as = row["n"]
            tasks.append(task)
        line.load(tasks, last=rows[-1]["n"] if len(rows) == asked else upto)
        if line.stored:
            return 0
        vanished = line.held - sum(task.held_as is not None for task in line.tasks)
        self.count_held(line, -vanished)
        return vanished

    def slice_size(self, bound: int) -> int:
        """How many documents of a line to read from `held` at once, so that all keep to a bound."""
        return max(1, min(MOST_WHOLE, bound // max(1, self.held_keys)))

    def count_held(self, line: Line, change: int) -> None:
        """So many documents more of the line are in `held`."""
        was = line.held
        line.held += change
        self.held_documents += change
        self.held_keys += (line.held > 0) - (was > 0)

    # Saving.

    def take_touched(self) -> list[Line]:
        """The lines whose decisions a save that begins now will cover."""
        covered, self._touched = self._touched, []
        self._generation += 1
        return covered

    def forget(self, covered: Sequence[Line]) -> None:
        """What these lines had decided is saved."""
        for line in covered:
            # One that has decided again since then is covered by the next save.
            if line.generation < self._generation:
                line.forget()
                self._drop_if_done(line)

    def touch_again(self, covered: Sequence[Line]) -> None:
        """What these lines had decided may not be saved."""
        self._touched.extend(covered)

    def unblock(self) -> None:
        """A save has succeeded: the lines that waited for it decide on, if they may."""
        blocked, self.blocked = self.blocked, []
        for line in blocked:
            self.queue(line)
