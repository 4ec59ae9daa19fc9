"""The key queues: the unfinished documents, their order, and what each key waits for.

Pure: no lock, no threads, no I/O and no callbacks. The pool calls one method under its lock and
then derives from the state which threads to wake (`dispatcher.keyed.pool`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from enum import Enum
from itertools import chain, islice
from typing import Any, Protocol

from dispatcher.conversations.conversations import Conversation, Conversations
from dispatcher.keyed.suspects import CrashSuspects
from dispatcher.progress.held import HeldKey
from dispatcher.progress.tracker import ProgressSnapshot, ProgressTracker, Slot
from linedesk.contract import Following, GiveUp, HandlerCall, Wait
from linedesk.store.control import NO_PAUSES, Drop, Pauses
from linedesk.store.documents import Document, name_of, text_of
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


class KeyState(Enum):
    """The state of a key; see `KeyQueues` for the transitions. The first true one applies."""

    RUNNING = "a thread has its first document, or reads its next ones"
    DEFERRED = "its first document was tried and waits for `resume`"
    IDLE = "nothing to decide; kept only until all that it decided is saved"
    PAUSED = "a pause covers it, and its first document was not released"
    UNSAVED = "it decides nothing more before a save"
    READY = "a thread may take it"

    # Enum hashes its name with a Python function, and a state is looked up seven times an event.
    __hash__ = object.__hash__


class ReadyLine(Enum):
    """The line of a ready key; see `KeyQueues.first_ready`."""

    ANSWER = "its first event waits for an answer that is free"
    OTHER = "all others"
    SLOW = "its first event has a slow handler, of which only so many run at a time"
    SUSPECT = "its first event may have killed a process; see `dispatcher.keyed.suspects`"

    __hash__ = object.__hash__


class JobOwner(Protocol):
    """The calls of a job's own methods, from any thread; see `linedesk.contract.Job`."""

    def resume(self, what: QueuedJob) -> None: ...
    def following(self, job: QueuedJob) -> Following: ...
    def take_along(self, job: QueuedJob, count: int) -> int: ...
    def take_slow_place(self, job: QueuedJob) -> bool: ...


class QueuedJob:
    """An unfinished document: its `linedesk.contract.Job`, and its place in queue and tracker."""

    # Class attributes hold the usual values: setting each one would double the cost of a put.
    memo: Any = None
    handling: HandlerCall | None = None
    given_up_for: GiveUp | None = None
    tries = 0
    """How many times its handler was called."""
    suspect = False
    """Whether it may have killed an earlier process (`dispatcher.keyed.suspects`)."""
    is_slow = False
    """Whether its handler may occupy its thread for longer than others."""
    listens = False
    """Whether each further document of its key resumes it."""
    held_n: int | None = None
    """Its `n` in `held`, once it has to be there."""
    begun = 0.0
    """Monotonic seconds of its first run; 0 before."""
    wait: Wait | None = None
    """How its last run ended, if it was deferred."""

    def __init__(
        self,
        queue: KeyQueue,
        document: Document,
        slot: Slot,
        *,
        again: bool,
        owner: JobOwner,
    ) -> None:
        self.queue = queue
        self.document = document
        self.slot = slot
        self.again = again
        self._owner = owner

    def following(self) -> Following:
        return self._owner.following(self)

    def take_along(self, count: int) -> int:
        return self._owner.take_along(self, count)

    def take_slow_place(self) -> bool:
        return self._owner.take_slow_place(self)

    def begin_handler(self, limit_seconds: float | None = None) -> HandlerCall:
        self.tries += 1
        self.listens = False
        self.handling = HandlerCall(limit_seconds)
        return self.handling

    def resume(self) -> None:
        self._owner.resume(self)

    @property
    def is_deferred(self) -> bool:
        """Whether it was tried and waits for `resume`."""
        return self.queue.waits is self

    @property
    def name(self) -> str:
        """The event id, for a log line."""
        return name_of(self.document)


class Run:
    """One run of a job on a thread; an object of its own, so that no run can end another."""

    __slots__ = ("job", "news", "queue", "resumed")

    def __init__(self, job: QueuedJob) -> None:
        self.job = job
        self.queue = job.queue
        self.resumed = False
        """A resume that arrived during the run: the run is repeated as soon as it is deferred."""
        self.news = False
        """The same for a further document; it counts only while the job listens."""

    @property
    def name(self) -> str:
        """The event id, for a log line."""
        return self.job.name


class Load:
    """A thread reads a key's next documents from `held`: the first `most` of a range of `n`."""

    __slots__ = ("above", "begun", "most", "queue", "upto", "wait")

    def __init__(self, queue: KeyQueue, *, most: int, begun: float) -> None:
        self.queue = queue
        self.above = queue.last
        self.upto = queue.top
        self.most = most
        self.begun = begun
        self.wait: Wait | None = None

    @property
    def name(self) -> str:
        """The documents to read, for a log line."""
        return f"held/{self.queue.key[1]}"


class KeyQueue:
    """The documents of one key, in order of arrival.

    `jobs`, then the documents that only `held` has (`n` above `last` up to `top`), then `behind`.
    """

    # Class attributes hold the usual values, as for QueuedJob.
    last = -1
    # How many of its documents `held` has, including those in `jobs`.
    held = 0
    running: Run | Load | None = None
    # The deferred work that waits for its `resume`.
    waits: QueuedJob | Load | None = None
    # Whether documents of it are moving into `held`.
    moving = False
    # Whether its first document may begin although its key is paused.
    bypass = False
    # How many of the documents behind its first one are decided with it; they stay in `jobs`.
    along = 0
    # How many of its next documents wait each for the save of the previous one.
    save_each = 0
    # Whether its first document waits in the line of suspects.
    suspect = False
    # How many it has decided in total, how many of them are saved, and how many at the last check.
    decided = 0
    saved = 0
    looked = 0
    # Its line since it became ready.
    line = ReadyLine.OTHER
    # The set that contains it: written by `KeyQueues._place` only.
    state: KeyState | None = None

    def __init__(self, key: Any, conversation: Conversation, *, top: int = -1) -> None:
        self.key = key
        self.conversation = conversation
        self.jobs: deque[QueuedJob] = deque()
        self.behind: deque[QueuedJob] = deque()
        self.top = top

    @property
    def in_hand(self) -> int:
        """How many of its documents are unfinished and in memory."""
        return len(self.jobs) + len(self.behind)

    @property
    def is_stored(self) -> bool:
        """Whether `held` has documents that come before `behind` and are not in `jobs`."""
        return self.last < self.top

    @property
    def is_done(self) -> bool:
        return not self.jobs and not self.is_stored

    @property
    def head(self) -> QueuedJob | None:
        return self.jobs[0] if self.jobs else None

    @property
    def line_of_head(self) -> ReadyLine:
        """The line of its first event; an event with a reply token waits for a free answer."""
        head = self.head
        if self.suspect:
            return ReadyLine.SUSPECT
        if head is None:
            return ReadyLine.OTHER
        if head.is_slow:
            return ReadyLine.SLOW
        token = text_of(head.document, "event", "replyToken")
        return ReadyLine.OTHER if token is None else ReadyLine.ANSWER

    @property
    def name(self) -> str | None:
        """The name of its first event; None while that has yet to be read."""
        head = self.head
        return None if head is None else head.name

    @property
    def begun(self) -> float:
        """Monotonic seconds when its first document, or its reading, first began; 0 before."""
        if self.jobs:
            return self.jobs[0].begun
        reading = self.running or self.waits
        return reading.begun if isinstance(reading, Load) else 0.0

    @property
    def why(self) -> Document:
        wait = self.waits.wait if self.waits is not None else None
        return wait.why if wait is not None else reason(Why.DEFERRED)

    def in_window(self) -> Iterator[QueuedJob]:
        """The jobs that count in the window, in order: they are at the end of the queue."""
        for jobs in (self.jobs, self.behind):
            yield from (job for job in jobs if job.held_n is None and not job.slot.finished)

    def may_have(self, name: str) -> bool:
        """Whether the event may be among its documents, which are not all read."""
        return self.is_stored or any(
            job.name == name for jobs in (self.jobs, self.behind) for job in jobs
        )

    def settle(self) -> None:
        """The moved documents are durable: only the first, and those decided with it, stay here."""
        self.moving = False
        if self.jobs and not self.is_stored:
            # A thread may have it, or it may be about to be resumed.
            # guard: taken-along-stays-in-hand -> first = [self.jobs.popleft()]
            first = [self.jobs.popleft() for _ in range(1 + self.along)]
            self.jobs, self.behind = deque(first), self.jobs
        while self.behind and (number := self.behind[0].held_n) is not None:
            self.behind.popleft()
            if not self.is_stored:
                self.last = number - 1
            self.top = number
        self.close_up()

    def close_up(self) -> None:
        """Let the documents in `behind` follow once `held` has no more of the key."""
        if self.behind and not self.is_stored:
            self.jobs.extend(self.behind)
            self.behind.clear()


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
        self._known = known or Conversations()
        self._in: dict[KeyState, OrderedDict[KeyQueue, None]] = {
            state: OrderedDict() for state in KeyState
        }
        # The ready keys, by line.
        self._ready: dict[ReadyLine, OrderedDict[KeyQueue, None]] = {
            line: OrderedDict() for line in ReadyLine
        }
        self._answers, self._others, self._slow, self._suspects = self._ready.values()
        # How many keys of the line ANSWER began in a row while others were ready.
        self._passed = 0
        # Keys with decisions that are not saved.
        self._dirty: dict[KeyQueue, None] = {}
        # Ids of decided documents that are still in `held`.
        self.gone: list[Any] = []
        # Documents that have to move to `held`: a number for each key, then the batch under way.
        self._to_move: dict[KeyQueue, int] = {}
        self._moving: list[KeyQueue] = []
        self._rows: list[Document] = []
        self.held_keys = 0
        self.held_documents = 0
        # Documents put in, and documents decided, since the start of the process.
        self.taken = 0
        self.decided_documents = 0
        # Keys whose first document was ever deferred, in the order of their first deferral.
        self.tried: dict[KeyQueue, None] = {}

    # Queries.

    def in_state(self, state: KeyState) -> Iterator[KeyQueue]:
        """The keys in a state, in the order in which they entered it."""
        return iter(self._in[state])

    def count(self, state: KeyState) -> int:
        return len(self._in[state])

    @property
    def first(self) -> KeyQueue | None:
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
    def first_ready(self) -> KeyQueue | None:
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
    def _first_suspect(self) -> KeyQueue | None:
        """The first key in the line of suspects; None if it waits for a slow run to end."""
        queue = next(iter(self._suspects), None)
        is_slow = queue is not None and queue.head is not None and queue.head.is_slow
        return None if is_slow and self.slow >= self._most_slow else queue

    @property
    def slow(self) -> int:
        runs = (queue.running for queue in self._in[KeyState.RUNNING])
        return sum(isinstance(run, Run) and run.job.is_slow for run in runs)

    def ready(self, line: ReadyLine) -> Iterable[KeyQueue]:
        return self._ready[line]

    @property
    def save_is_urgent(self) -> bool:
        """Whether a key waits for a save, or there are more documents to move."""
        return bool(self._in[KeyState.UNSAVED] or self.has_to_move)

    @property
    def has_to_move(self) -> bool:
        """Whether another save has to follow at once."""
        return bool(self._to_move or self._moving)

    def get(self, key: Any) -> KeyQueue | None:
        found = self._known.find(_id_of(key))
        return None if found is None else found.mailbox

    def all(self) -> Sequence[KeyQueue]:
        return [*chain.from_iterable(self._in.values())]

    def is_paused(self, queue: KeyQueue) -> bool:
        return bool(self.pauses.rows) and self.pauses.covers(*queue.key)

    # Documents arrive.

    def put(
        self, document: Document, token: Any, *, key: Any, size: int, again: bool, now: float
    ) -> QueuedJob | None:
        """Accept a document of `size` bytes; None if it is known, unfinished or finished."""
        slot = self.tracker.take(document["_id"], token, size)
        if slot is None:
            return None
        slot.since = now
        self.taken += 1
        conversation = self._known.get(_id_of(key))
        queue: KeyQueue | None = conversation.mailbox
        if queue is None:
            queue = conversation.mailbox = KeyQueue(key, conversation)
            if again:
                queue.suspect = self.suspects.lines_up
                self.suspects.meet(key)
        if not again:
            self.all_is_read()
        job = QueuedJob(queue, document, slot, again=again, owner=self._owner)
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
        queue = conversation.mailbox = KeyQueue(key, conversation, top=held.top)
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

    def _end(self, queue: KeyQueue) -> None:
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

    def following(self, job: QueuedJob) -> Following:
        """Return the documents directly behind the job, which listens for more from now on."""
        queue = job.queue
        job.listens = True
        documents = [one.document for one in islice(queue.jobs, 1, self._many)]
        is_cut = len(documents) + 1 < len(queue.jobs) or queue.is_stored or bool(queue.behind)
        is_reading = job.again and not self.suspects.all_met
        return Following(documents, self._room(queue), is_cut=is_cut, is_reading=is_reading)

    def take_along(self, job: QueuedJob, count: int) -> int:
        """Decide up to this many of the documents behind the job with it; returns their number."""
        queue = job.queue
        there = min(count, self._many - 1, len(queue.jobs) - 1)
        queue.along = min(there, self._room(queue))
        return queue.along

    def _room(self, queue: KeyQueue) -> int:
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

    def take_slow_place(self, job: QueuedJob) -> bool:
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

    def _defer(self, queue: KeyQueue, waits: QueuedJob | Load | None) -> None:
        self.suspects.end(queue.key, decided=False)
        queue.running = None
        queue.waits = waits
        if waits is not None:
            self.tried.setdefault(queue)
        self._place(queue)

    def resume(self, what: QueuedJob | Load, *, is_news: bool = False) -> None:
        """Resume the work, or repeat the present run; with `is_news` only while the job listens."""
        queue = what.queue
        if queue.waits is what:
            queue.waits = None
            self._place(queue)
        elif isinstance(queue.running, Run) and queue.running.job is what:
            queue.running.news |= is_news
            queue.running.resumed |= not is_news

    def save_each(self, queue: KeyQueue) -> None:
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
            job = QueuedJob(queue, row["document"], slot, again=True, owner=self._owner)
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
            if isinstance(queue.waits, QueuedJob) and self.drop_of(queue.waits) is not None:
                self.resume(queue.waits)

    def drop_of(self, job: QueuedJob) -> Drop | None:
        """The drop that covers the event of a job, which is in memory."""
        if not self.pauses.drops:
            return None
        channel, key = job.queue.key
        return self.pauses.drop_of(channel, key, accepted_at(job.document))

    def let_pass(self, queue: KeyQueue) -> None:
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

    def want_moved(self, counts: Iterable[tuple[KeyQueue, int]]) -> None:
        """Note how many documents of each of these keys have to move."""
        self._to_move.update(counts)

    def choose(self, at: datetime) -> None:
        """Make a batch of documents to move, unless one is under way; their keys rest meanwhile."""
        if self._moving:
            return
        size, is_full = 0, False
        while self._to_move and not is_full:
            queue, count = self._to_move.popitem()
            chosen: list[QueuedJob] = []
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

    def _move(self, job: QueuedJob, at: datetime) -> None:
        queue = job.queue
        job.held_n = self.tracker.next_held()
        channel, key = queue.key
        row: Document = {"_id": job.slot.id, "n": job.held_n, "key": key, "channel": channel}
        row |= {"document": job.document, "why": self._why(queue), "since": at}
        self._rows.append(row)
        self._count_held(queue, 1)
        self.tracker.finish(job.slot)

    def _why(self, queue: KeyQueue) -> Document:
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

    def _place(self, queue: KeyQueue) -> None:
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
            queue.conversation.mailbox = None
            self.tried.pop(queue, None)
            self._to_move.pop(queue, None)
            queue.state = None

    def _state_of(self, queue: KeyQueue) -> KeyState:
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

    def _count_held(self, queue: KeyQueue, change: int) -> None:
        was = queue.held
        queue.held += change
        self.held_documents += change
        self.held_keys += (queue.held > 0) - (was > 0)
