"""A fixed pool of named threads that decides documents key by key.

Jobs of one key run one at a time in the order they were put in; different keys run in parallel.
Each idle thread sleeps on its own `threading.Event`. Steps (work without a key) go before new
jobs, and jobs never occupy the last thread. The pool knows neither MongoDB nor LINE.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dispatcher.job import Step, Verdict
from dispatcher.ledger import Ledger, Snapshot
from dispatcher.line import Line, Task
from recvq.documents import Document
from recvq.errors import StoreUnavailable

log = logging.getLogger(__name__)

LOAD_AGAIN_SECONDS = 1.0

Load = Callable[[Sequence[Any]], Mapping[Any, Document]]
Later = Callable[[float, Callable[[], None]], None]


class Thread(threading.Thread):
    """One thread of the pool; it sleeps on `wake` when there is nothing for it."""

    def __init__(self, number: int, work: Callable[[Thread], None]) -> None:
        super().__init__(name=f"worker-{number:02d}", daemon=True)
        self.wake = threading.Event()
        self.task: Task | None = None
        self.since = 0.0
        self._work = work

    def run(self) -> None:
        self._work(self)

    @property
    def doing(self) -> str:
        """What it is at, for a log line."""
        task = self.task
        return f"thread={self.name} event_id={task.name if task else '-'}"


class Pool:
    """See the module's words.

    `decide` is the worker's function, `load` reads documents of recvq again by `_id`, `later`
    calls a function when some seconds are over. `bound` is the most documents from the oldest
    unfinished to the newest in hand. What a job or step raises ends its thread: that is for
    `threading.excepthook`, since the process has to stop then.
    """

    def __init__(
        self,
        decide: Callable[[Task], Verdict],
        ledger: Ledger,
        *,
        threads: int,
        bound: int,
        load: Load,
        later: Later,
    ) -> None:
        self._decide = decide
        self._load = load
        self._later = later
        self._bound = bound
        self._most_jobs = threads - 1
        self._threads = [Thread(n, self._work) for n in range(1, threads + 1)]
        self.changed = threading.Event()
        """Set when there may be progress to save."""
        self.urgent = threading.Event()
        """Set when a key waits for that save."""
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        # All below under _lock.
        self._ledger = ledger
        self._lines: dict[Any, Line] = {}
        self._ready: deque[Line] = deque()
        self._steps: deque[Step] = deque()
        self._idle: list[Thread] = []
        self._jobs = 0
        self._stopped = False
        self._generation = 1
        # Lines that decided something which the save under way does not cover.
        self._touched: list[Line] = []
        # Lines that may not decide on before a save.
        self._blocked: list[Line] = []

    # Its life.

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

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
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        return [thread.doing for thread in self._threads if thread.is_alive()]

    def slow_jobs(self, limit_seconds: float) -> list[tuple[Task, str, float]]:
        """Task, thread and seconds of each job that has run longer than the limit."""
        now = time.monotonic()
        running = [(t.task, t.name, now - t.since) for t in self._threads]
        return [
            (task, name, seconds)
            for task, name, seconds in running
            if task is not None and seconds > limit_seconds
        ]

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
        with self._lock:
            slot = self._ledger.take(document["_id"], token)
            if slot is None:
                return False
            line = self._lines.get(key)
            if line is None:
                line = self._lines[key] = Line(key)
            line.add(Task(line, document, slot, again=again, resume=self._resume))
            if not line.queued:
                self._queue(line)
        return True

    def move(self, token: Any) -> None:
        """The feed stands at `token` with nothing new before it."""
        with self._lock:
            self._ledger.move(token)

    def forget_token(self) -> None:
        """The feed's position is lost (G9)."""
        with self._lock:
            self._ledger.forget_token()
        self.changed.set()

    def begin_scan(self) -> Any:
        """The document behind which a scan begins; what is in hand is not taken again by it."""
        with self._lock:
            return self._ledger.begin_scan()

    def end_scan(self) -> None:
        """The scan has come to its end."""
        with self._lock:
            self._ledger.end_scan()

    def step(self, step: Step) -> None:
        """Have a thread do `step` before any new job."""
        with self._lock:
            self._steps.append(step)
            self._wake_one()

    def _resume(self, task: Task) -> None:
        with self._lock:
            if task.parked:
                task.parked = False
                self._queue(task.line)
            else:
                task.resumed = True

    # What the threads do.

    def _work(self, me: Thread) -> None:
        while (work := self._next(me)) is not None:
            if isinstance(work, Task):
                self._run(me, work)
            else:
                work()

    def _next(self, me: Thread) -> Task | Step | None:
        """The next work, after a sleep if there is none; None once the pool has stopped."""
        while True:
            with self._lock:
                if self._stopped:
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
        if self._ready and self._jobs < self._most_jobs:
            self._jobs += 1
            task = self._ready.popleft().tasks[0]
            # Whatever resumed it so far is answered by this run.
            task.resumed = False
            return task
        return None

    def _run(self, me: Thread, task: Task) -> None:
        me.since = time.monotonic()
        me.task = task
        verdict = self._decide(task) if task.document is not None else self._make_whole(task)
        me.task = None
        with self._lock:
            self._jobs -= 1
            if verdict == "parked":
                self._park(task)
            else:
                self._finish(task, verdict)

    def _make_whole(self, task: Task) -> Verdict:
        """Read again, for this task and the next ones, what was kept as an `_id` only."""
        with self._lock:
            wanted = task.line.shortened()
        try:
            documents = self._load([one.slot.id for one in wanted])
        except StoreUnavailable:
            self._later(LOAD_AGAIN_SECONDS, task.resume)
            return "parked"
        for one in wanted:
            one.document = documents.get(one.slot.id)  # type: ignore[assignment]
        if task.document is None:
            log.error("document overwritten before it was handled id=%s", task.slot.id)
            return "finished"
        task.resume()
        return "parked"

    # Under the lock.

    def _queue(self, line: Line) -> None:
        line.queued = True
        if line.needs_save:
            self._blocked.append(line)
            self.urgent.set()
        else:
            self._ready.append(line)
            self._wake_one()

    def _wake_one(self) -> None:
        if self._idle and (self._steps or (self._ready and self._jobs < self._most_jobs)):
            self._idle.pop().wake.set()

    def _park(self, task: Task) -> None:
        if task.resumed:
            self._queue(task.line)
        else:
            task.parked = True

    def _finish(self, task: Task, verdict: Verdict) -> None:
        line = task.line
        if line.generation != self._generation:
            line.generation = self._generation
            self._touched.append(line)
        line.decided += 1
        if verdict == "recorded":
            line.unsaved = []
        elif verdict == "finished":
            line.unsaved.append(task.name)
        line.tasks.popleft()
        self._ledger.finish(task.slot)
        self._room.notify()
        if line.tasks:
            self._queue(line)
        else:
            line.queued = False
        if not self.changed.is_set():
            self.changed.set()

    # Saving.

    def snapshot(self) -> tuple[Snapshot, list[Line]] | None:
        """What to save, and the lines whose decisions it covers; None if nothing changed."""
        with self._lock:
            if not self._ledger.changed:
                return None
            covered, self._touched = self._touched, []
            self._generation += 1
            return self._ledger.snapshot(), covered

    def saved(self, snapshot: Snapshot, covered: list[Line]) -> None:
        """The snapshot is durable: the keys that waited for it may decide on."""
        with self._lock:
            self._ledger.saved(snapshot)
            for line in covered:
                # One that has decided again since then is covered by the next save.
                if line.generation < self._generation:
                    line.forget()
                    if not line.queued and self._lines.get(line.key) is line:
                        del self._lines[line.key]
            self.urgent.clear()
            blocked, self._blocked = self._blocked, []
            for line in blocked:
                self._queue(line)

    def not_saved(self, covered: list[Line]) -> None:
        """The save failed or its outcome is unknown: the next one has to cover all of it."""
        with self._lock:
            self._ledger.not_saved()
            self._touched.extend(covered)
        # Without it a key that waits for the save would wait until something else finishes.
        self.changed.set()
