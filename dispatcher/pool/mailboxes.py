"""All mailboxes: the unfinished documents, their order, and what each mailbox waits for.

No threads and no I/O. Changes are made under `waking`, whose release wakes the threads that have
work then.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from itertools import chain
from threading import Event
from typing import Any

from dispatcher.commit.progress import HeldKey
from dispatcher.commit.tracker import ProgressTracker, Slot
from dispatcher.conversations.conversations import Conversations
from dispatcher.conversations.mailbox import (
    MANY,
    Job,
    KeyState,
    Load,
    Mailbox,
    ReadyLine,
    Run,
    Wait,
)
from dispatcher.pool.lines import ReadyLines
from dispatcher.pool.suspects import CrashSuspects
from dispatcher.pool.threads import Thread
from linedesk.store.control import NO_PAUSES, Drop, Pauses
from linedesk.store.documents import Document
from linedesk.store.queue.usage import accepted_at

# Work without a key, done before any new job, such as one call of the LINE API.
Step = Callable[[], None]
# Of unfinished documents in the window, as BSON.
MOST_BYTES = 64 * 1024 * 1024


def _id_of(key: tuple[Any, Any]) -> Any:
    """The conversation's id; a document that the front desk did not make may have another key."""
    channel, name = key
    return f"{channel}/{name}" if isinstance(channel, str) and isinstance(name, str) else key


class Mailboxes:
    """The mailboxes of all conversations.

    A mailbox is in one state at a time (`KeyState`), which `place` computes from its facts. Every
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
    | `Moves.choose` | all | moving; place: READY becomes UNSAVED |
    | `Moves.saved` | all | marks; moved documents leave memory, except the first; place |

    `tracker` is the window: there is room for one more document while it has fewer than `bound`,
    and the unfinished ones have less than MOST_BYTES. `bound` also limits the documents of `held`
    in memory. Jobs ask the mailboxes by their own methods, on the thread that calls them.
    """

    def __init__(
        self,
        tracker: ProgressTracker,
        *,
        known: Conversations | None = None,
        suspects: CrashSuspects | None = None,
        bound: int = 10_000,
    ) -> None:
        self.tracker = tracker
        self._known = Conversations() if known is None else known
        self.suspects = suspects or CrashSuspects()
        self.bound = bound
        self.most_bytes = MOST_BYTES
        self.lock = self._known.lock
        self.waking = WakingLock(self)
        """The same lock, for a change."""
        self.pauses = NO_PAUSES
        self.states: dict[KeyState, OrderedDict[Mailbox, None]] = {
            state: OrderedDict() for state in KeyState
        }
        """The mailboxes in each state, in the order in which they entered it."""
        self.lines = ReadyLines(self.states[KeyState.RUNNING], self.suspects)
        self.unsaved: dict[Mailbox, None] = {}
        """Those with decisions that are not saved."""
        self.gone: list[Any] = []
        """Ids of decided documents that are still in `held`."""
        self.held_keys = 0
        self.held_documents = 0
        self.taken = 0
        """Documents put in, and documents decided, since the start of the process."""
        self.decided_documents = 0
        self.tried: dict[Mailbox, None] = {}
        """Those whose first document was ever deferred, in the order of their first deferral."""

    # Queries.

    @property
    def save_wanted(self) -> int:
        """2 if someone waits for a save, 1 if there is progress to save, else 0."""
        return 2 if self.states[KeyState.UNSAVED] else int(self.tracker.changed)

    @property
    def has_room(self) -> bool:
        return len(self.tracker) < self.bound and self.tracker.size < self.most_bytes

    @property
    def is_reading(self) -> bool:
        """Whether documents stored before the start of this process are still being read."""
        return not self.suspects.all_met

    def get(self, key: Any) -> Mailbox | None:
        found = self._known.find(_id_of(key))
        return None if found is None else found.mailbox

    def all(self) -> Sequence[Mailbox]:
        return [*chain.from_iterable(self.states.values())]

    def is_paused(self, mailbox: Mailbox) -> bool:
        return bool(self.pauses.rows) and self.pauses.covers(*mailbox.key)

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
        mailbox: Mailbox | None = conversation.mailbox
        if mailbox is None:
            mailbox = conversation.mailbox = Mailbox(key)
            if again:
                mailbox.suspect = self.suspects.lines_up
                self.suspects.meet(key)
        if not again:
            self.all_is_read()
        job = Job(mailbox, document, slot, again=again, owner=self)
        # guard: behind-what-is-held -> mailbox.jobs.append(job)
        (mailbox.behind if mailbox.last < mailbox.top else mailbox.jobs).append(job)
        if mailbox.state is KeyState.IDLE or mailbox.state is None:
            self.place(mailbox)
        elif mailbox.jobs and mailbox.jobs[0].listens:
            self.resume(mailbox.jobs[0], is_news=True)
        return job

    def put_held(self, held: HeldKey) -> None:
        """Enter a mailbox with documents in `held`, none of them in memory."""
        key = held.channel, held.key
        conversation = self._known.get(_id_of(key))
        mailbox = conversation.mailbox = Mailbox(key, top=held.top)
        mailbox.suspect = self.suspects.lines_up
        self.suspects.meet_held(mailbox.key)
        self.count_held(mailbox, held.count)
        # If progress was removed by hand, its count starts again while theirs does not.
        self.tracker.held = max(self.tracker.held, held.top + 1)
        self.place(mailbox)

    # Threads work.

    def next(self, now: float) -> Run | Load | None:
        """Begin the first job, or reading; None if none may begin."""
        mailbox = self.lines.first
        if mailbox is None:
            return None
        self.lines.begin(mailbox)
        suspects = self.suspects
        is_suspect = not suspects.are_through and suspects.begin(mailbox.key, mailbox.name)
        if is_suspect and suspects.sought:
            # An earlier process may have decided any of its documents without saving that.
            mailbox.save_each = MANY
        work: Run | Load
        head = mailbox.head
        if head is None:
            # Those of all mailboxes together stay within the bound.
            most = max(1, min(MANY, self.bound // max(1, self.held_keys)))
            work = Load(mailbox, most=most, begun=now)
        else:
            head.begun = head.begun or now
            head.listens = False
            head.suspect = is_suspect
            head.is_named = is_suspect and suspects.sought
            # guard: a-wait-ends-with-its-run
            head.wait = None
            work = Run(head)
        mailbox.running = work
        mailbox.bypass = False
        self.place(mailbox)
        return work

    def decided(self, run: Run) -> bool:
        """The run has decided its document; False if it was abandoned before."""
        mailbox = run.mailbox
        # guard: late-end-of-a-thread
        if mailbox.running is not run:
            return False
        mailbox.running = None
        mailbox.bypass = False
        self.unsaved[mailbox] = None
        if self.tried:
            self.tried.pop(mailbox, None)
        self._end(mailbox)
        while mailbox.along:
            mailbox.along -= 1
            self._end(mailbox)
        self.place(mailbox)
        self.suspects.end(mailbox.key, decided=True)
        return True

    def _end(self, mailbox: Mailbox) -> None:
        """Its first document is decided."""
        job = mailbox.jobs.popleft()
        mailbox.suspect = False
        mailbox.decided += 1
        self.decided_documents += 1
        if mailbox.save_each:
            mailbox.save_each -= 1
        if job.held_n is None:
            self.tracker.finish(job.slot)
        else:
            self.gone.append(job.slot.id)
            self.count_held(mailbox, -1)
            self.tracker.finish_held(job.slot.id)

    def all_is_read(self) -> None:
        """All documents from before this start are in memory: resume the listening jobs."""
        if not self.is_reading:
            return
        self.suspects.close()
        for state in (KeyState.DEFERRED, KeyState.RUNNING):
            for mailbox in list(self.states[state]):
                if mailbox.jobs and mailbox.jobs[0].listens:
                    self.resume(mailbox.jobs[0], is_news=True)

    def take_slow_place(self, job: Job) -> bool:
        """Whether the run may continue as a slow one; else it begins again, behind waiting ones."""
        run = job.mailbox.running
        if job.is_slow or not (isinstance(run, Run) and run.job is job):
            return job.is_slow
        has_place = self.lines.has_slow_place and not self.lines.lines[ReadyLine.SLOW]
        job.is_slow = True
        run.resumed = run.resumed or not has_place
        return has_place

    def deferred(self, run: Run, wait: Wait) -> bool:
        """The run has not decided its document; False if it was abandoned before."""
        if run.mailbox.running is not run:
            return False
        run.job.wait = wait
        # guard: news-during-a-run -> is_news = False
        is_news = run.news and run.job.listens
        self._defer(run.mailbox, None if run.resumed or is_news else run.job)
        return True

    def abandoned(self, run: Run) -> None:
        """Its thread was abandoned: an earlier resume has no effect."""
        run.job.wait = None
        self._defer(run.mailbox, run.job)

    def _defer(self, mailbox: Mailbox, waits: Job | Load | None) -> None:
        self.suspects.end(mailbox.key, decided=False)
        mailbox.running = None
        mailbox.waits = waits
        if waits is not None:
            self.tried.setdefault(mailbox)
        self.place(mailbox)

    def resume(self, what: Job | Load, *, is_news: bool = False) -> None:
        """Resume the work, or repeat the present run; with `is_news` only while the job listens."""
        mailbox = what.mailbox
        if mailbox.waits is what:
            mailbox.waits = None
            self.place(mailbox)
        elif isinstance(mailbox.running, Run) and mailbox.running.job is what:
            mailbox.running.news |= is_news
            mailbox.running.resumed |= not is_news

    # Reading.

    def loaded(self, load: Load, rows: Sequence[Document]) -> int:
        """Handle rows that `held` returned for the load's range.

        Returns how many rows have vanished from it, removed by others: they are not waited for.
        """
        mailbox = load.mailbox
        mailbox.running = None
        for row in rows:
            slot = Slot(row["_id"], None, finished=True)
            job = Job(mailbox, row["document"], slot, again=True, owner=self)
            job.held_n = row["n"]
            mailbox.jobs.append(job)
        mailbox.last = rows[-1]["n"] if len(rows) == load.most else load.upto
        mailbox.close_up()
        vanished = 0
        if not mailbox.is_stored:
            vanished = mailbox.held - sum(job.held_n is not None for job in mailbox.jobs)
            self.count_held(mailbox, -vanished)
        self.place(mailbox)
        # If `held` has no more documents of it, no decision is due.
        self.suspects.end(mailbox.key, decided=mailbox.is_done)
        return vanished

    def not_read(self, load: Load, wait: Wait) -> None:
        """MongoDB did not return the documents: the mailbox waits until it is resumed."""
        load.wait = wait
        self._defer(load.mailbox, load)

    # Orders of operators.

    def obey(self, pauses: Pauses) -> None:
        """Begin no job that these pauses cover; resume a deferred one that a drop covers."""
        self.pauses = pauses
        for state in (KeyState.READY, KeyState.UNSAVED, KeyState.PAUSED):
            for mailbox in list(self.states[state]):
                self.place(mailbox)
        for mailbox in list(self.states[KeyState.DEFERRED]) if pauses.drops else ():
            if isinstance(mailbox.waits, Job) and self.drop_of(mailbox.waits) is not None:
                self.resume(mailbox.waits)

    def drop_of(self, job: Job) -> Drop | None:
        """The drop that covers the event of a job, which is in memory."""
        if not self.pauses.drops:
            return None
        channel, key = job.mailbox.key
        return self.pauses.drop_of(channel, key, accepted_at(job.document))

    def let_pass(self, mailbox: Mailbox) -> None:
        """Let its first document begin once, even if paused; resumes a deferred one."""
        if isinstance(mailbox.running, Load):
            # The first document is known only after it is read.
            return
        mailbox.bypass = True
        if mailbox.running is not None:
            mailbox.running.resumed = True
        mailbox.waits = None
        self.place(mailbox)

    # Placing.

    def place(self, mailbox: Mailbox) -> None:
        """Compute its state and put it into that set; one that is idle and saved is removed."""
        state, before = self._state_of(mailbox), mailbox.state
        if state is not before:
            if before is not None:
                del self.states[before][mailbox]
            if before is KeyState.READY:
                self.lines.leave(mailbox)
            elif state is KeyState.READY:
                self.lines.enter(mailbox)
            self.states[state][mailbox] = None
            mailbox.state = state
        if state is KeyState.IDLE and mailbox.decided == mailbox.saved and not mailbox.moving:
            del self.states[state][mailbox]
            self._known.get(_id_of(mailbox.key)).mailbox = None
            self.tried.pop(mailbox, None)
            mailbox.state = None

    def _state_of(self, mailbox: Mailbox) -> KeyState:
        if mailbox.running is not None:
            return KeyState.RUNNING
        if mailbox.waits is not None:
            return KeyState.DEFERRED
        if mailbox.is_done:
            return KeyState.IDLE
        # guard: paused-gets-no-thread -> never
        if self.is_paused(mailbox) and not (mailbox.bypass or mailbox.awaits):
            return KeyState.PAUSED
        # guard: rests-while-it-moves -> never
        if mailbox.moving:
            return KeyState.UNSAVED
        # guard: each-is-saved -> never
        if mailbox.save_each and mailbox.decided > mailbox.saved:
            return KeyState.UNSAVED
        return KeyState.READY

    def count_held(self, mailbox: Mailbox, change: int) -> None:
        was = mailbox.held
        mailbox.held += change
        self.held_documents += change
        self.held_keys += (mailbox.held > 0) - (was > 0)


class WakingLock:
    """Its release wakes the threads that have work now: an idle one of the pool, the one that
    commits, and the reader of the feed that waits for room.

    An idle thread that has taken work wakes the next one, as it releases the lock.
    """

    def __init__(self, mailboxes: Mailboxes) -> None:
        self._lock = mailboxes.lock
        self._mailboxes = mailboxes
        self.wake_saver: Callable[[], None] = lambda: None
        """Wakes the thread that commits."""
        self.room = Event()
        """Cleared by the reader before it waits for room."""
        # Under the lock.
        self.steps: deque[Step] = deque()
        self.idle: list[Thread] = []
        self.saver_woken = 0
        """Why the committing thread was woken since it began its last group: see `save_wanted`."""

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        try:
            if self.idle and (self.steps or self._mailboxes.lines.first is not None):
                self.idle.pop().wake.set()
            if (wanted := self._mailboxes.save_wanted) > self.saver_woken:
                self.saver_woken = wanted
                self.wake_saver()
            if not self.room.is_set() and self._mailboxes.has_room:
                self.room.set()
        finally:
            self._lock.release()
