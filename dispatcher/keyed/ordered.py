"""The pool's side of what an operator orders: what is paused, and which first document is given up.

A job that is under way when its key is paused goes on to its end; the next one waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain

from dispatcher.keyed.line import Line, Task
from dispatcher.keyed.lines import Lines
from dispatcher.keyed.threads import Thread
from linedesk.contract import GiveUp
from linedesk.store.orders import RELEASED, Pauses


class Ordered:
    """See the module's words. `lock` is the pool's, and never held by the caller.

    `abandon` gives up the thread on which a task's handler runs, if one does; `all_met` says
    whether all that was stored before this start is in hand.
    """

    def __init__(
        self,
        lines: Lines,
        lock: threading.Lock,
        *,
        abandon: Callable[[Task], Sequence[Thread]],
        all_met: Callable[[], bool],
    ) -> None:
        self._lines = lines
        self._lock = lock
        self._abandon = abandon
        self._all_met = all_met

    @property
    def pauses(self) -> Pauses:
        """What is obeyed at this moment."""
        return self._lines.pauses

    def obey(self, pauses: Pauses) -> None:
        """From now on no job begins that these cover; all others may."""
        with self._lock:
            self._lines.obey(pauses)

    def give_up(self, channel: str, key: str, name: str) -> bool:
        """Have the event become a dead letter if it is the first in line of its conversation.

        True as long as that is under way, so it has to be asked again: a run that has decided
        already goes on to its end, and what only `held` has is read first. The key may be paused.
        """
        with self._lock:
            line = self._lines.by_key.get((channel, key))
            if line is None or not line.tasks:
                # guard: release-waits-for-all -> return False
                return not self._all_met()
            head = line.tasks[0]
            if head.document is None and str(head.slot.id) != name:
                # An `_id`, or what stands for those in `held`: it shows once it is read.
                self._lines.let_pass(head)
                return True
            if head.name != name:
                return not self._all_met() or (head.again and _may_hold(line, name))
        self._condemn(head)
        return True

    def _condemn(self, head: Task) -> None:
        lost = self._abandon(head)
        if head.condemned is None:
            stack = lost[0].stack if lost else ""
            head.condemned = GiveUp(RELEASED, head.tries, _first_at(head), stack)
        with self._lock:
            self._lines.let_pass(head)


def _may_hold(line: Line, name: str) -> bool:
    """Whether the event may be behind others that a predecessor has decided."""
    tasks = chain(line.tasks, line.behind)
    return line.stored or any(task.document is None or task.name == name for task in tasks)


def _first_at(task: Task) -> datetime:
    """When it ran first; now, if it never did."""
    ago = time.monotonic() - task.begun if task.begun else 0.0
    return datetime.now(UTC) - timedelta(seconds=ago)
