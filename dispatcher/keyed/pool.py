"""A fixed pool of named threads that decides documents key by key.

Jobs of one key run one at a time in the order they were put in; different keys run in parallel.
Each idle thread sleeps on its own `threading.Event`. Steps (work without a key) go before new
jobs, and jobs never occupy the last thread. The pool knows neither MongoDB nor LINE; what it
reads again it is handed by functions.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from dispatcher.keyed.holding import HELD_AFTER_SECONDS, Holding
from dispatcher.keyed.line import MOST_UNSAVED, Task
from dispatcher.keyed.lines import Lines
from dispatcher.keyed.ordered import Ordered
from dispatcher.keyed.rereading import Later, Load, Rereading
from dispatcher.keyed.saving import Saving
from dispatcher.keyed.suspects import Suspects
from dispatcher.keyed.threads import Thread, Threads
from dispatcher.keyed.view import PoolView
from dispatcher.progress.held import HeldKey, HeldStore
from dispatcher.progress.tracker import ProgressTracker
from linedesk.contract import JobResult, Step
from linedesk.store.documents import Document
from linedesk.store.orders import NO_PAUSES, Pauses


class Pool:
    """See the module's words.

    `decide` is the worker's function, `load` reads documents of recvq again by `_id`, `later`
    calls a function when some seconds are over. `bound` is the most documents from the oldest
    unfinished to the newest in hand. What a job or step raises ends its thread: that is for
    `threading.excepthook`, since the process has to stop then. With `held`, what waits longer
    than `held_after_seconds` leaves the window; `held_keys` are those a predecessor left there.
    """

    def __init__(
        self,
        decide: Callable[[Task], JobResult],
        ledger: ProgressTracker,
        *,
        threads: int,
        bound: int,
        load: Load,
        later: Later,
        suspects: Suspects | None = None,
        held: HeldStore | None = None,
        held_keys: Sequence[HeldKey] = (),
        held_after_seconds: float = HELD_AFTER_SECONDS,
        pauses: Pauses = NO_PAUSES,
    ) -> None:
        self._decide = decide
        self._bound = bound
        self._most_jobs = threads - 1
        self._threads = Threads(threads, self._work)
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        # All below under _lock.
        self._ledger = ledger
        self._suspects = suspects or Suspects()
        self._steps: deque[Step] = deque()
        self._idle: list[Thread] = []
        self._jobs = 0
        self._stopped = False
        self._scanning = False
        self._lines = Lines(ledger, wake=self._wake_one, resume=self._resume, pauses=pauses)
        after = held_after_seconds if held is not None else 0
        self.view = PoolView(ledger, self._lines, self._threads, lock=self._lock)
        holding = Holding(self._lines, ledger, after_seconds=after, bound=bound)
        # For the saver; it takes the lock itself.
        self.saving = Saving(ledger, self._lines, holding, room=self._room, load=load)
        self._rereading = Rereading(
            self._lines, self._lock, load=load, held=held, later=later, bound=bound
        )
        # For the thread that reads `control`; it takes the lock itself.
        self.ordered = Ordered(
            self._lines,
            self._lock,
            abandon=lambda task: self.abandon_overdue(0.0, only=task),
            all_met=lambda: self._suspects.all_met,
        )
        for key in held_keys:
            self._suspects.meet_held((key.channel, key.key))
            self._lines.add_held(key)
            # Where progress was removed by hand, its count begins anew, and theirs does not.
            ledger.held = max(ledger.held, key.top + 1)

    # Its life.

    def start(self) -> None:
        """Start the threads."""
        self._threads.start()

    def stop(self) -> None:
        """Begin no new job or step; may be called twice, and before `start`."""
        with self._lock:
            self._stopped = True
            self._room.notify_all()
            idle, self._idle = self._idle, []
        for thread in idle:
            thread.wake.set()

    def join(self, deadline: float) -> list[str]:
        """Wait for the threads until the monotonic deadline; says what those left are doing."""
        return self._threads.join(deadline)

    def abandon_overdue(self, limit_seconds: float, *, only: Task | None = None) -> list[Thread]:
        """Give up the threads whose handler runs longer than the limit; others take their place.

        Their jobs are parked, and somebody has to resume them. With `only` just that job's.
        """
        with self._lock:
            lost = self._threads.abandon_overdue(limit_seconds, only=only)
            for thread in lost:
                assert thread.task is not None, "only a handler is abandoned"
                self._jobs -= 1
                self._suspects.end(thread.task.line.key, decided=False)
                thread.task.resumed = False
                self._lines.park(thread.task)
        # A fresh thread looks for work at once, under the lock.
        for thread in lost:
            self._threads.replace(thread)
        return lost

    def abandoned(self) -> list[str]:
        """What the abandoned threads were doing that have still not returned."""
        return [thread.doing for thread in self._threads.abandoned]

    def busy_longer_than(self, seconds: float) -> list[str]:
        """What the threads do that have been at one job or step for longer than that."""
        return [thread.doing for thread in self._threads.busy_longer_than(seconds)]

    def under_way(self) -> int:
        """How many threads are at a job or step."""
        return len(self._threads.busy_longer_than(0))

    @property
    def suspects_are_through(self) -> bool:
        """Whether all that a predecessor may have died of is decided."""
        with self._lock:
            return self._suspects.are_through

    # Intake.

    def wait_for_room(self, timeout_seconds: float) -> bool:
        """Wait until another document may be put in; False if it still may not."""
        with self._lock:
            if len(self._ledger) >= self._bound and not self._stopped:
                self._room.wait(timeout_seconds)
            return len(self._ledger) < self._bound and not self._stopped

    def put(self, document: Document, token: Any, *, again: bool) -> bool:
        """Take a document in hand; False if it is known already: in hand or finished."""
        key = (document.get("channel"), document.get("key"))
        if self._scanning and self._rereading.is_held(key, document["_id"]):
            return False
        with self._lock:
            slot = self._ledger.take(document["_id"], token)
            if slot is None:
                return False
            slot.since = time.monotonic()
            is_first = self._lines.add(document, slot, key, again=again)
            if is_first and again:
                self._suspects.meet(key)
            if not again:
                self._suspects.close()
        return True

    def put_finished(self, document: Document, token: Any) -> None:
        """Enter a document that nobody has to decide, such as a heartbeat: finished at once."""
        with self._lock:
            slot = self._ledger.take(document["_id"], token)
            if slot is not None:
                self._ledger.finish(slot)
        self.saving.changed.set()

    def standing(self) -> tuple[int, Any]:
        """How many documents are in hand, and the one up to which all is finished."""
        with self._lock:
            return len(self._ledger), self._ledger.after

    def move(self, token: Any) -> None:
        """The feed stands at `token` with nothing new before it."""
        with self._lock:
            self._ledger.move(token)
            self._suspects.close()

    def forget_token(self) -> None:
        """The feed's position is lost (G9)."""
        with self._lock:
            self._ledger.forget_token()
        self.saving.changed.set()

    def begin_scan(self) -> Any:
        """The document behind which a scan begins; what is in hand is not taken again by it."""
        with self._lock:
            self._scanning = True
            # guard: scan-begins-in-one-step -> return self._ledger.after
            return self._ledger.begin_scan()

    def end_scan(self) -> None:
        """The scan has come to its end."""
        with self._lock:
            self._scanning = False
            self._ledger.end_scan()

    def step(self, step: Step) -> None:
        """Have a thread do `step` before any new job."""
        with self._lock:
            self._steps.append(step)
            self._wake_one()

    def _resume(self, task: Task) -> None:
        with self._lock:
            self._lines.resume(task)

    # What the threads do.

    def _work(self, me: Thread) -> None:
        while (work := self._next(me)) is not None:
            if isinstance(work, Task):
                self._run(me, work)
            else:
                me.since = time.monotonic()
                work()
            me.since = None

    def _next(self, me: Thread) -> Task | Step | None:
        """The next work, after a sleep if there is none; None once the pool has stopped."""
        while True:
            with self._lock:
                if self._stopped or me.is_abandoned:
                    return None
                work = self._choose()
                if work is not None:
                    self._wake_one()
                    return work
                me.wake.clear()
                self._idle.append(me)
            me.wake.wait()

    def _choose(self) -> Task | Step | None:
        if self._steps:
            return self._steps.popleft()
        if self._may_begin_job():
            self._jobs += 1
            line = self._lines.ready.popleft()
            task = line.tasks[0]
            task.begun = task.begun or time.monotonic()
            task.suspect = self._suspects.begin(line.key)
            if task.suspect and self._suspects.alone:
                # Any of what the predecessor may have decided and not saved comes before it.
                line.careful = MOST_UNSAVED + 1
            # Whatever resumed it so far is answered by this run.
            task.resumed = task.passes = False
            return task
        return None

    def _run(self, me: Thread, task: Task) -> None:
        me.since = time.monotonic()
        me.task = task
        verdict = self._decide(task) if task.document is not None else self._rereading.run(task)
        with self._lock:
            # guard: late-end-of-a-thread
            if me.is_abandoned:
                # Its job was parked then, and may have been decided by another run.
                return
            me.task = None
            self._jobs -= 1
            if task.suspect:
                # Where `held` had nothing of the key any more, there is nothing left to decide.
                decided = verdict is not JobResult.DEFERRED or not task.line.tasks
                self._suspects.end(task.line.key, decided=decided)
            if verdict is JobResult.DEFERRED:
                self._lines.park(task)
            else:
                self._lines.finish(task, verdict)
                self._room.notify()
        if verdict is not JobResult.DEFERRED and not self.saving.changed.is_set():
            self.saving.changed.set()

    # Under the lock.

    def _wake_one(self) -> None:
        if self._idle and (self._steps or self._may_begin_job()):
            self._idle.pop().wake.set()

    def _may_begin_job(self) -> bool:
        if not self._lines.ready or self._jobs >= self._most_jobs:
            return False
        if not self._suspects.alone:
            return True
        return self._suspects.may_begin(self._lines.ready[0].key, self._jobs)
