"""All lines by their key, and where each stands: ready, blocked or at rest.

All of it under the pool's lock; no I/O and no threads.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from dispatcher.held import HeldKey
from dispatcher.job import Verdict
from dispatcher.ledger import Ledger, Slot
from dispatcher.line import MOST_WHOLE, Line, Task
from recvq.documents import Document


class Lines:
    """The account of the keys; `wake` is called for each line that a thread may take."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        wake: Callable[[], None],
        resume: Callable[[Task], None],
    ) -> None:
        self._ledger = ledger
        self._wake = wake
        self._resume = resume
        self.urgent = threading.Event()
        """Set when a line waits for a save."""
        self.by_key: dict[Any, Line] = {}
        self.ready: deque[Line] = deque()
        # Lines that may not decide on before a save.
        self._blocked: list[Line] = []
        self._generation = 1
        # Lines that decided something which the save under way does not cover.
        self._touched: list[Line] = []
        # Ids of decided documents that `held` still has.
        self.gone: list[Any] = []
        self.held_keys = 0
        self.held_documents = 0

    def add(self, document: Document, slot: Slot, key: Any, *, again: bool) -> bool:
        """Put a document at the end of its line; returns whether it is the only one of its key."""
        line = self.by_key.get(key)
        is_first = line is None
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
        if line.needs_save or line.holding:
            self._blocked.append(line)
            self.urgent.set()
        else:
            self.ready.append(line)
            self._wake()

    def park(self, task: Task) -> None:
        """The task's run did not decide it; it stays the first of its line."""
        if not task.resumed:
            task.parked = True
        else:
            self._continue(task.line)

    def resume(self, task: Task) -> None:
        """Its run may be repeated, or will be at once when it is parked."""
        if task.parked:
            task.parked = False
            self.queue(task.line)
        else:
            task.resumed = True

    def finish(self, task: Task, verdict: Verdict) -> None:
        """The task is decided, and the next of its line comes."""
        line = task.line
        if line.generation != self._generation:
            line.generation = self._generation
            self._touched.append(line)
        line.decided += 1
        if line.careful:
            line.careful -= 1
        line.total += 1
        if verdict == "recorded":
            line.unsaved = []
        elif verdict == "finished":
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
        blocked, self._blocked = self._blocked, []
        for line in blocked:
            self.queue(line)
