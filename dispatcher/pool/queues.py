"""The key queues: the unfinished documents, their order, and what each key waits for.

Pure: no lock, no threads, no I/O and no callbacks. The pool calls one method under its lock and
then derives from the state which threads to wake (`dispatcher.pool.pool`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain, islice
from typing import Any

from dispatcher.commit.held import HeldKey
from dispatcher.commit.tracker import ProgressSnapshot, ProgressTracker, Slot
from dispatcher.conversations.conversations import Conversations
from dispatcher.conversations.mailbox import (
    Following,
    Job,
    JobOwner,
    KeyState,
    Load,
    Mailbox,
    ReadyLine,
    Run,
    Wait,
)
from dispatcher.pool.suspects import CrashSuspects
from linedesk.store.control import NO_PAUSES, Drop, Pauses
from linedesk.store.documents import Document
from linedesk.store.limits import MOST_WRAPPED_BYTES
from linedesk.store.queue.usage import accepted_at
from linedesk.store.records.waits import Why, reason

# Of one key: the documents that a job sees behind it, those that are read from `held` at a time,
# and the most that a key may have in a crowded window.
MANY = 100
# One transaction moves this many documents to `held`, and about this many bytes.
MOST_MOVED = 200
MOST_MOVED_BYTES = 4 * 1024 * 1024
# While other keys are ready, one in this many keys that begin is one of them.
SHARE_OF_OTHERS = 5


def _id_of(key: tuple[Any, Any]) -> Any:
    """The conversation's id; a document that the front desk did not make may have another key."""
    channel, name = key
    return f"{channel}/{name}" if isinstance(channel, str) and isinstance(name, str) else key


class KeyQueues:
    """The state of all keys.

    A key is in one state at a time (`KeyState`), which `_place` computes from its facts. Every
    method changes facts and then calls it. Combinations outside the table cannot happen or have no
    effect.

    | event | in | what follows |
    | --- | --- | --- |
    | put | IDLE | append, place |
    | put | all others | append |
    | put | RUNNING, DEFERRED, of a job that listens | append; as resume(job) |
    | next | READY | RUNNING: a Load if none is in memory, else a Run |
    | take_along(job) | RUNNING, of this job | these stay in memory, and end with the job |
    | decided(run) | RUNNING, this run | its document and those taken along are removed; place |
    | decided(run) | else | refused: the late end of an abandoned run |
    | take_slow_place(job) | RUNNING, of this job | a slow run from now on, or refused: then |
    | | | the deferred job is READY again, and begins when a slow run has ended |
    | deferred(run) | RUNNING, this run | DEFERRED; place if it was resumed meanwhile |
    | abandoned(run) | RUNNING, this run | DEFERRED, though it was resumed meanwhile |
    | resume(job) | RUNNING, of this job | noted in the run |
    | resume(job) | DEFERRED, of this job | place |
    | loaded | RUNNING | the documents are in memory; place |
    | not_read | RUNNING | DEFERRED |
    | obey(pauses) | PAUSED, UNSAVED, READY | place |
    | obey(pauses) | DEFERRED, of a job that a drop covers | as resume(job) |
    | let_pass | DEFERRED, PAUSED, UNSAVED, READY | past a pause once; resumed; place |
    | let_pass | RUNNING, of a job | the same, if the run is deferred |
    | choose | all | moving; place: READY becomes UNSAVED |
    | saved(plan) | all | marks; moved documents leave memory, except the first; place |

    `tracker` is the window, `held_bound` limits the documents of `held` in memory. `owner` answers
    a job's own methods, on the thread that calls them; without an owner the queues answer. At most
    `most_jobs` keys are RUNNING at a time, and at most `most_slow` of these runs are slow. Keys
    that are met while `suspects` are sought wait in a line of their own.
    """

    def __init__(
        self,
        tracker: ProgressTracker,
        *,
        known: Conversations | None = None,
        owner: JobOwner | None = None,
        pauses: Pauses = NO_PAUSES,
        most_jobs: int = 1_000,
        most_slow: int = 1_000,
        suspects: CrashSuspects | None = None,
        held_bound: int = 10_000,
        many: int = MANY,
        most_moved: int = MOST_MOVED,
    ) -> None:
        self.tracker = tracker
        self._owner = owner or self
        self.pauses = pauses
        self._most_slow = most_slow
        self.most_jobs = most_jobs
        self.suspects = suspects or CrashSuspects()
        self._held_bound = held_bound
        self._many = many
        self._most_moved = most_moved
        self._known = Conversations() if known is None else known
        self._in: dict[KeyState, OrderedDict[Mailbox, None]] = {
            state: OrderedDict() for state in KeyState
        }
        # The ready keys, by line.
        self._ready: dict[ReadyLine, OrderedDict[Mailbox, None]] = {
            line: OrderedDict() for line in ReadyLine
        }
        self._answers, self._others, self._slow, self._suspects = self._ready.values()
        # How many keys of the line ANSWER began in a row while others were ready.
        self._passed = 0
        # Keys with decisions that are not saved.
        self._dirty: dict[Mailbox, None] = {}
        # Ids of decided documents that are still in `held`.
        self.gone: list[Any] = []
        # Documents that have to move to `held`: a number for each key, then the batch under way.
        self._to_move: dict[Mailbox, int] = {}
        self._moving: list[Mailbox] = []
        self._rows: list[Document] = []
        self.held_keys = 0
        self.held_documents = 0
        # Documents put in, and documents decided, since the start of the process.
        self.taken = 0
        self.decided_documents = 0
        # Keys whose first document was ever deferred, in the order of their first deferral.
        self.tried: dict[Mailbox, None] = {}

    # Queries.

    def in_state(self, state: KeyState) -> Iterator[Mailbox]:
        """The keys in a state, in the order in which they entered it."""
        return iter(self._in[state])

    def count(self, state: KeyState) -> int:
        return len(self._in[state])

    @property
    def first(self) -> Mailbox | None:
        """The key whose job may begin now, if any."""
        if len(self._in[KeyState.RUNNING]) >= self.most_jobs:
            return None
        suspects = self.suspects
        if suspects.sought:
            first = self._first_suspect
            if first is not None and suspects.may_begin(first.name, self.most_jobs):
                return first
            if suspects.is_proving:
                return None
        return self.first_ready

    @property
    def first_ready(self) -> Mailbox | None:
        """The key that begins next, apart from suspects; None if none may begin.

        A slow key begins as soon as another slow run has ended. Otherwise keys of the line ANSWER
        come first, so that no user waits behind the events of a thousand timers. Every fifth start
        goes to another ready key.
        """
        # guard: half-of-the-threads-for-slow -> if self._slow:
        if self._slow and self.slow < self._most_slow:
            return next(iter(self._slow))
        answers, others = self._answers, self._others
        is_their_turn = not answers or self._passed >= SHARE_OF_OTHERS - 1
        return next(iter(others if others and is_their_turn else answers), None)

    @property
    def _first_suspect(self) -> Mailbox | None:
        """The first key in the line of suspects; None if it waits for a slow run to end."""
        queue = next(iter(self._suspects), None)
        is_slow = queue is not None and queue.head is not None and queue.head.is_slow
        return None if is_slow and self.slow >= self._most_slow else queue

    @property
    def slow(self) -> int:
        runs = (queue.running for queue in self._in[KeyState.RUNNING])
        return sum(isinstance(run, Run) and run.job.is_slow for run in runs)

    def ready(self, line: ReadyLine) -> Iterable[Mailbox]:
        return self._ready[line]

    @property
    def save_is_urgent(self) -> bool:
        """Whether a key waits for a save, or there are more documents to move."""
        return bool(self._in[KeyState.UNSAVED] or self.has_to_move)

    @property
    def has_to_move(self) -> bool:
        """Whether another save has to follow at once."""
        return bool(self._to_move or self._moving)

    def get(self, key: Any) -> Mailbox | None:
        found = self._known.find(_id_of(key))
        return None if found is None else found.mailbox

    def all(self) -> Sequence[Mailbox]:
        return [*chain.from_iterable(self._in.values())]

    def is_paused(self, queue: Mailbox) -> bool:
        return bool(self.pauses.rows) and self.pauses.covers(*queue.key)

    # Documents arrive.

    def put(
        self, document: Document, token: Any, *, key: Any, size: int, again: bool, now: float
    ) -> Job | None:
        """Accept a document of `size` bytes; None if it is known, unfinished or finished."""
        slot = self.tracker.take(document["_id"], token, size)
        if slot is None:
            return None
        slot.since = now
        self.taken += 1
        conversation = self._known.get(_id_of(key))
        queue: Mailbox | None = conversation.mailbox
        if queue is None:
            queue = conversation.mailbox = Mailbox(key)
            if again:
                queue.suspect = self.suspects.lines_up
                self.suspects.meet(key)
        if not again:
            self.all_is_read()
        job = Job(queue, document, slot, again=again, owner=self._owner)
        # guard: behind-what-is-held -> queue.jobs.append(job)
        (queue.behind if queue.last < queue.top else queue.jobs).append(job)
        if queue.state is KeyState.IDLE or queue.state is None:
            self._place(queue)
        elif queue.jobs and queue.jobs[0].listens:
            self.resume(queue.jobs[0], is_news=True)
        return job

    def put_held(self, held: HeldKey) -> None:
        """Enter a key with documents in `held`, none of them in memory."""
        key = held.channel, held.key
        conversation = self._known.get(_id_of(key))
        queue = conversation.mailbox = Mailbox(key, top=held.top)
        queue.suspect = self.suspects.lines_up
        self.suspects.meet_held(queue.key)
        self._count_held(queue, held.count)
        # If progress was removed by hand, its count starts again while theirs does not.
        self.tracker.held = max(self.tracker.held, held.top + 1)
        self._place(queue)

    # Threads work.

    def next(self, now: float) -> Run | Load | None:
        """Begin the `first` key; None if none may begin."""
        queue = self.first
        if queue is None:
            return None
        if queue.line not in (ReadyLine.SLOW, ReadyLine.SUSPECT):
            is_passing = queue.line is ReadyLine.ANSWER and self._others
            self._passed = self._passed + 1 if is_passing else 0
        suspects = self.suspects
        is_suspect = not suspects.are_through and suspects.begin(queue.key, queue.name)
        if is_suspect and suspects.sought:
            # An earlier process may have decided any of its documents without saving that.
            self.save_each(queue)
        work: Run | Load
        head = queue.head
        if head is None:
            work = Load(queue, most=self._slice_size, begun=now)
        else:
            head.begun = head.begun or now
            head.listens = False
            head.suspect = is_suspect
            # guard: a-wait-ends-with-its-run
            head.wait = None
            work = Run(head)
        queue.running = work
        queue.bypass = False
        self._place(queue)
        return work

    def decided(self, run: Run) -> bool:
        """The run has decided its document; False if it was abandoned before."""
        queue = run.queue
        # guard: late-end-of-a-thread
        if queue.running is not run:
            return False
        queue.running = None
        queue.bypass = False
        self._dirty[queue] = None
        if self.tried:
            self.tried.pop(queue, None)
        self._end(queue)
        while queue.along:
            queue.along -= 1
            self._end(queue)
        self._place(queue)
        self.suspects.end(queue.key, decided=True)
        return True

    def _end(self, queue: Mailbox) -> None:
        """The key's first document is decided."""
        job = queue.jobs.popleft()
        queue.suspect = False
        queue.decided += 1
        self.decided_documents += 1
        if queue.save_each:
            queue.save_each -= 1
        if job.held_n is None:
            self.tracker.finish(job.slot)
        else:
            self.gone.append(job.slot.id)
            self._count_held(queue, -1)
            self.tracker.finish_held(job.slot.id)

    def following(self, job: Job) -> Following:
        """Return the documents directly behind the job, which listens for more from now on."""
        queue = job.queue
        job.listens = True
        documents = [one.document for one in islice(queue.jobs, 1, self._many)]
        is_cut = len(documents) + 1 < len(queue.jobs) or queue.is_stored or bool(queue.behind)
        is_reading = job.again and not self.suspects.all_met
        return Following(documents, self._room(queue), is_cut=is_cut, is_reading=is_reading)

    def take_along(self, job: Job, count: int) -> int:
        """Decide up to this many of the documents behind the job with it; returns their number."""
        queue = job.queue
        there = min(count, self._many - 1, len(queue.jobs) - 1)
        queue.along = min(there, self._room(queue))
        return queue.along

    def _room(self, queue: Mailbox) -> int:
        """How many further documents the key may decide with its first one."""
        # guard: one-by-one-behind-a-suspect -> return self._many - 1
        return 0 if queue.save_each else self._many - 1

    def all_is_read(self) -> None:
        """All documents from before this start are in memory: resume the listening jobs."""
        if self.suspects.all_met:
            return
        self.suspects.close()
        for state in (KeyState.DEFERRED, KeyState.RUNNING):
            for queue in list(self._in[state]):
                if queue.jobs and queue.jobs[0].listens:
                    self.resume(queue.jobs[0], is_news=True)

    def take_slow_place(self, job: Job) -> bool:
        """Whether the run may continue as a slow one; else it begins again, behind waiting ones."""
        run = job.queue.running
        if job.is_slow or not (isinstance(run, Run) and run.job is job):
            return job.is_slow
        has_place = self.slow < self._most_slow and not self._slow
        job.is_slow = True
        run.resumed = run.resumed or not has_place
        return has_place

    def deferred(self, run: Run, wait: Wait) -> bool:
        """The run has not decided its document; False if it was abandoned before."""
        if run.queue.running is not run:
            return False
        run.job.wait = wait
        # guard: news-during-a-run -> is_news = False
        is_news = run.news and run.job.listens
        self._defer(run.queue, None if run.resumed or is_news else run.job)
        return True

    def abandoned(self, run: Run) -> None:
        """Its thread was abandoned: an earlier resume has no effect."""
        run.job.wait = None
        self._defer(run.queue, run.job)

    def _defer(self, queue: Mailbox, waits: Job | Load | None) -> None:
        self.suspects.end(queue.key, decided=False)
        queue.running = None
        queue.waits = waits
        if waits is not None:
            self.tried.setdefault(queue)
        self._place(queue)

    def resume(self, what: Job | Load, *, is_news: bool = False) -> None:
        """Resume the work, or repeat the present run; with `is_news` only while the job listens."""
        queue = what.queue
        if queue.waits is what:
            queue.waits = None
            self._place(queue)
        elif isinstance(queue.running, Run) and queue.running.job is what:
            queue.running.news |= is_news
            queue.running.resumed |= not is_news

    def save_each(self, queue: Mailbox) -> None:
        """Save after each of the next decisions, some of which a predecessor may not have saved."""
        queue.save_each = self._many

    # Reading.

    def loaded(self, load: Load, rows: Sequence[Document]) -> int:
        """Handle rows that `held` returned for the load's range.

        Returns how many rows have vanished from it, removed by others: they are not waited for.
        """
        queue = load.queue
        queue.running = None
        for row in rows:
            slot = Slot(row["_id"], None, finished=True)
            job = Job(queue, row["document"], slot, again=True, owner=self._owner)
            job.held_n = row["n"]
            queue.jobs.append(job)
        queue.last = rows[-1]["n"] if len(rows) == load.most else load.upto
        queue.close_up()
        vanished = 0
        if not queue.is_stored:
            vanished = queue.held - sum(job.held_n is not None for job in queue.jobs)
            self._count_held(queue, -vanished)
        self._place(queue)
        # If `held` has no more documents of the key, no decision is due.
        self.suspects.end(queue.key, decided=queue.is_done)
        return vanished

    def not_read(self, load: Load, wait: Wait) -> None:
        """MongoDB did not return the documents: the key waits until it is resumed."""
        load.wait = wait
        self._defer(load.queue, load)

    # Orders of operators.

    def obey(self, pauses: Pauses) -> None:
        """Begin no job that these pauses cover; resume a deferred one that a drop covers."""
        self.pauses = pauses
        for state in (KeyState.READY, KeyState.UNSAVED, KeyState.PAUSED):
            for queue in list(self._in[state]):
                self._place(queue)
        for queue in list(self._in[KeyState.DEFERRED]) if pauses.drops else ():
            if isinstance(queue.waits, Job) and self.drop_of(queue.waits) is not None:
                self.resume(queue.waits)

    def drop_of(self, job: Job) -> Drop | None:
        """The drop that covers the event of a job, which is in memory."""
        if not self.pauses.drops:
            return None
        channel, key = job.queue.key
        return self.pauses.drop_of(channel, key, accepted_at(job.document))

    def let_pass(self, queue: Mailbox) -> None:
        """Let its first document begin once, even if paused; resumes a deferred one."""
        if isinstance(queue.running, Load):
            # The first document is known only after it is read.
            return
        queue.bypass = True
        if queue.running is not None:
            queue.running.resumed = True
        queue.waits = None
        self._place(queue)

    # Moves to `held`.

    def want_moved(self, counts: Iterable[tuple[Mailbox, int]]) -> None:
        """Note how many documents of each of these keys have to move."""
        self._to_move.update(counts)

    def choose(self, at: datetime) -> None:
        """Make a batch of documents to move, unless one is under way; their keys rest meanwhile."""
        if self._moving:
            return
        size, is_full = 0, False
        while self._to_move and not is_full:
            queue, count = self._to_move.popitem()
            chosen: list[Job] = []
            for job in islice(queue.in_window(), count):
                if job.slot.size > MOST_WRAPPED_BYTES:
                    # After a document that stays the rest of its key stays.
                    break
                size += job.slot.size
                rows = len(self._rows) + len(chosen)
                is_full = rows == self._most_moved or (rows > 0 and size > MOST_MOVED_BYTES)
                if is_full:
                    self._to_move[queue] = count - len(chosen)
                    break
                chosen.append(job)
            if chosen:
                self._moving.append(queue)
                queue.moving = True
                self._place(queue)
            for job in chosen:
                self._move(job, at)
        if not self._rows:
            self._settle()

    def _move(self, job: Job, at: datetime) -> None:
        queue = job.queue
        job.held_n = self.tracker.next_held()
        channel, key = queue.key
        row: Document = {"_id": job.slot.id, "n": job.held_n, "key": key, "channel": channel}
        row |= {"document": job.document, "why": self._why(queue), "since": at}
        self._rows.append(row)
        self._count_held(queue, 1)
        self.tracker.finish(job.slot)

    def _why(self, queue: Mailbox) -> Document:
        if self.is_paused(queue):
            return reason(Why.PAUSED)
        if queue.state is KeyState.DEFERRED:
            return queue.why
        return reason(Why.BEHIND_SLOW_HANDLER)

    def _settle(self) -> None:
        moved, self._moving, self._rows = self._moving, [], []
        for queue in moved:
            queue.settle()
            self._place(queue)

    # Saving.

    def begin_save(self) -> ProgressSnapshot | None:
        """Return the data to save now; None if nothing changed.

        If it may not be durable, `tracker.not_saved` must follow: the next one covers all of it.
        """
        if not (self.tracker.changed or self._rows or self.gone):
            return None
        marks = {queue: queue.decided for queue in self._dirty}
        return self.tracker.snapshot(self._rows, self.gone, marks)

    def saved(self, plan: ProgressSnapshot) -> None:
        """The plan is durable: keys that waited for it may continue."""
        self.tracker.saved(plan)
        del self.gone[: len(plan.gone)]
        if plan.rows:
            self._settle()
        for queue, mark in plan.marks.items():
            queue.saved = mark
            if queue.decided == mark:
                del self._dirty[queue]
            if queue.state is KeyState.UNSAVED or queue.state is KeyState.IDLE:
                self._place(queue)

    # Placing keys.

    def _place(self, queue: Mailbox) -> None:
        """Compute the key's state and put it into that set; an idle, saved key is removed."""
        state, before = self._state_of(queue), queue.state
        if state is not before:
            if before is not None:
                del self._in[before][queue]
            if before is KeyState.READY:
                self._ready[queue.line].pop(queue)
            elif state is KeyState.READY:
                queue.line = queue.line_of_head
                self._ready[queue.line][queue] = None
                if queue.suspect and (queue.name is None or queue.name in self.suspects.found):
                    self._suspects.move_to_end(queue, last=False)
            self._in[state][queue] = None
            queue.state = state
        if state is KeyState.IDLE and queue.decided == queue.saved and not queue.moving:
            del self._in[state][queue]
            self._known.get(_id_of(queue.key)).mailbox = None
            self.tried.pop(queue, None)
            self._to_move.pop(queue, None)
            queue.state = None

    def _state_of(self, queue: Mailbox) -> KeyState:
        if queue.running is not None:
            return KeyState.RUNNING
        if queue.waits is not None:
            return KeyState.DEFERRED
        if queue.is_done:
            return KeyState.IDLE
        # guard: paused-gets-no-thread -> never
        if self.is_paused(queue) and not queue.bypass:
            return KeyState.PAUSED
        # guard: rests-while-it-moves -> never
        if queue.moving:
            return KeyState.UNSAVED
        # guard: each-is-saved -> never
        if queue.save_each and queue.decided > queue.saved:
            return KeyState.UNSAVED
        return KeyState.READY

    @property
    def _slice_size(self) -> int:
        """How many documents of a key to read from `held` at once, within the bound of all keys."""
        return max(1, min(self._many, self._held_bound // max(1, self.held_keys)))

    def _count_held(self, queue: Mailbox, change: int) -> None:
        was = queue.held
        queue.held += change
        self.held_documents += change
        self.held_keys += (queue.held > 0) - (was > 0)
