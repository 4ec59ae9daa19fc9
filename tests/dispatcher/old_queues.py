"""Lines, Line and Holding behind the calls of `KeyQueues`, for `test_queues` alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dispatcher.keyed import holding as holding_module
from dispatcher.keyed import line as line_module
from dispatcher.keyed import lines as lines_module
from dispatcher.keyed.holding import Holding
from dispatcher.keyed.line import Line, Task
from dispatcher.keyed.lines import Lines
from dispatcher.progress.held import HeldKey
from dispatcher.progress.tracker import ProgressSnapshot, ProgressTracker
from linedesk.contract import JobResult
from linedesk.store.documents import Document
from linedesk.store.orders import NO_PAUSES, Pauses


@dataclass(eq=False)
class OldRun:
    """A run as the pool's thread knows it."""

    job: Task
    queue: Line
    is_over: bool = False


@dataclass(eq=False)
class OldLoad:
    """The task that stands for a line's documents in `held`, at work."""

    task: Task
    queue: Line
    above: int
    upto: int
    most: int


@dataclass(eq=False)
class OldRecall:
    """A first task of which only the `_id` is kept, at work."""

    task: Task
    queue: Line
    jobs: list[Task]


@dataclass(frozen=True)
class OldPlan:
    """What a save tells, and the lines that it covers."""

    snapshot: ProgressSnapshot
    covered: list[Line]


class OldQueues:
    """See the module's words."""

    counts_precisely = False

    def __init__(
        self,
        ledger: ProgressTracker,
        *,
        resume: Callable[[Any], None],
        pauses: Pauses = NO_PAUSES,
        most_unsaved: int,
        most_whole: int,
        most_moved: int,
    ) -> None:
        line_module.MOST_UNSAVED = most_unsaved
        line_module.MOST_WHOLE = lines_module.MOST_WHOLE = most_whole
        holding_module.AT_ONCE = most_moved
        self.ledger = ledger
        self.lines = Lines(ledger, wake=lambda: None, resume=resume, pauses=pauses)
        self.holding = Holding(self.lines, ledger, after_seconds=60.0, bound=1000)

    def get(self, key: Any) -> Line | None:
        return self.lines.by_key.get(key)

    def may_hold(self, key: Any) -> bool:
        line = self.get(key)
        return line is not None and line.held > 0

    @property
    def held_documents(self) -> int:
        return self.lines.held_documents

    @property
    def is_empty(self) -> bool:
        return not self.lines.by_key

    def put(
        self, document: Document, token: Any, *, key: Any, again: bool, now: float
    ) -> Task | None:
        slot = self.ledger.take(document["_id"], token)
        if slot is None:
            return None
        self.lines.add(document, slot, key, again=again)
        line = self.lines.by_key[key]
        return (line.behind or line.tasks)[-1]

    def put_held(self, held: HeldKey) -> None:
        self.lines.add_held(held)

    def next(self, now: float) -> OldRun | OldLoad | OldRecall | None:
        if not self.lines.ready:
            return None
        line = self.lines.ready.popleft()
        task = line.tasks[0]
        task.resumed = task.passes = False
        if task.stands_in:
            return OldLoad(task, line, line.last, line.top, self.lines.slice_size(1000))
        if task.document is None:
            return OldRecall(task, line, line.shortened())
        return OldRun(task, line)

    def decided(self, run: OldRun, result: JobResult) -> bool:
        if run.is_over:
            return False
        run.is_over = True
        self.lines.finish(run.job, result)
        return True

    def deferred(self, run: OldRun) -> bool:
        if run.is_over:
            return False
        run.is_over = True
        self.lines.park(run.job)
        return True

    def abandoned(self, run: OldRun) -> None:
        run.is_over = True
        run.job.resumed = False
        self.lines.park(run.job)

    def resume(self, what: Any) -> None:
        self.lines.resume(what if isinstance(what, Task) else what.task)

    def save_each(self, queue: Line) -> None:
        queue.careful = line_module.MOST_UNSAVED + 1

    def loaded(self, load: OldLoad, rows: Sequence[Document]) -> int:
        vanished = self.lines.load(load.task.line, rows, upto=load.upto, asked=load.most)
        self._go_on(load.task)
        return vanished

    def recalled(self, recall: OldRecall, documents: Mapping[Any, Document]) -> list[Task]:
        for one in recall.jobs:
            if one.document is None:
                one.document = documents.get(one.slot.id)  # type: ignore[assignment]
                one.is_lost = one.document is None
        if recall.task.document is None:
            self.lines.finish(recall.task, JobResult.DONE)
            return [recall.task]
        self._go_on(recall.task)
        return []

    def _go_on(self, task: Task) -> None:
        self.lines.resume(task)
        self.lines.park(task)

    def not_read(self, work: OldLoad | OldRecall, because: str) -> None:
        self.lines.park(work.task)

    def obey(self, pauses: Pauses) -> None:
        self.lines.obey(pauses)

    def let_pass(self, queue: Line) -> None:
        self.lines.let_pass(queue.tasks[0])

    def want_moved(self, counts: Iterable[tuple[Line, int]]) -> None:
        self.holding._wanted.update(counts)

    def choose(self) -> list[Task]:
        return [] if self.holding.settles else list(self.holding.choose())

    def move(self, read: Mapping[Any, Document], at: datetime) -> list[Task]:
        chosen = [task for task in self.holding.choose() if not task.slot.finished]
        self.holding.take(read)
        return [
            task
            for task in chosen
            if task.slot.finished and task.slot.id not in {r["_id"] for r in self.holding.rows}
        ]

    def begin_save(self) -> OldPlan | None:
        gone = self.lines.gone
        if not (self.ledger.changed or self.holding.settles or gone):
            return None
        snapshot = self.ledger.snapshot(self.holding.rows, gone)
        return OldPlan(snapshot, self.lines.take_touched())

    def saved(self, plan: OldPlan) -> None:
        self.ledger.saved(plan.snapshot)
        del self.lines.gone[: len(plan.snapshot.gone)]
        self.holding.settled()
        self.lines.forget(plan.covered)
        self.lines.unblock()

    def not_saved(self, plan: OldPlan) -> None:
        self.ledger.not_saved()
        self.lines.touch_again(plan.covered)
