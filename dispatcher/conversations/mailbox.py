"""The mailbox of a conversation: its unfinished documents in order, each a job for a worker.

A worker runs one job at a time of a mailbox. It returns how the run ended: a `JobResult` if the
event is decided, otherwise a `Wait`. Pure, but for the one lock of a `HandlerCall`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from itertools import islice
from typing import Any, Protocol

from dispatcher.commit.tracker import Slot
from linedesk.store.documents import Document, name_of, text_of
from linedesk.store.records.letters import Cause
from linedesk.store.records.waits import Why, reason

# Of one mailbox: the documents that a job sees behind it, those that are read from `held` at once,
# and the most that it may have in a crowded window.
MANY = 100


class JobResult(Enum):
    """How one run of a job ended. The values are in `jobs` and in metrics: do not change them."""

    DONE = "finished"
    """Decided without a write in this run, so only progress has it."""
    RECORDED = "recorded"
    """The record of this job has added the event and the ones taken along to `applied`."""
    ALREADY_APPLIED = "applied"
    """An earlier record was found with the event and the ones taken along in `applied`."""


@dataclass(frozen=True)
class Wait:
    """A job is not decided, and runs again later. Until then its key occupies no thread."""

    why: Document
    """The reason with its values (`linedesk.store.records.waits`)."""
    seconds: float | None = None
    """When the dispatcher runs it again; None if the worker calls `Job.resume`."""

    @classmethod
    def because(cls, why: Why, seconds: float | None = None, **values: Any) -> Wait:
        return cls(reason(why, seconds, **values), seconds)


class HandlerCall:
    """A call of the bot's handler, which ends once; None is the limit of all handlers."""

    __slots__ = ("_action", "_claim", "is_abandoned", "limit_seconds", "since")

    def __init__(self, limit_seconds: float | None = None) -> None:
        self.since = time.monotonic()
        self.limit_seconds = limit_seconds
        self.is_abandoned = False
        """Whether it was abandoned; another run then decides."""
        self._action: Callable[[], object] | None = None
        # Acquired once and never released: only one of the two ends succeeds.
        self._claim = threading.Lock()

    def end(self) -> bool:
        """Report that the handler returned; False if it was abandoned before: then it decides
        nothing.
        """
        return self._claim.acquire(blocking=False)

    def abandon(self) -> bool:
        """Abandon the call; False if it has returned."""
        # guard: one-end-of-a-handler
        if not self._claim.acquire(blocking=False):
            return False
        self.is_abandoned = True
        if self._action is not None:
            self._action()
        return True

    def when_abandoned(self, action: Callable[[], object]) -> None:
        """Call `action` once it is abandoned, or at once, possibly twice; it must be quick and take
        no lock of the dispatcher's.
        """
        self._action = action
        if self.is_abandoned:
            action()

    def is_overdue(self, limit_seconds: float, now: float) -> bool:
        """Whether it has exceeded its own limit, or else this one."""
        own = self.limit_seconds
        return now - self.since > (limit_seconds if own is None else own)

    @property
    def is_over(self) -> bool:
        """Whether it has returned or was abandoned."""
        return self._claim.locked()


@dataclass(frozen=True)
class Condemned:
    """Why a job is given up without another run of its handler."""

    cause: Cause
    attempts: int
    first_at: datetime
    stack: str = ""
    """The stack of its handler, if it was running."""


@dataclass(frozen=True)
class Following:
    """The documents directly behind a job in the queue of its key."""

    documents: Sequence[Document]
    """The documents read so far, in order."""
    room: int
    """The number of them that the job may take along; 0 if the job may crash the process."""
    is_cut: bool
    """Whether there are more documents behind them."""
    is_reading: bool
    """Whether documents stored before the start of this process are still being read."""


class KeyState(Enum):
    """The state of a mailbox (see `dispatcher.pool.mailboxes`). The first true one applies."""

    RUNNING = "a thread has its first document, or reads its next ones"
    DEFERRED = "its first document was tried and waits for `resume`"
    IDLE = "nothing to decide; kept only until all that it decided is saved"
    PAUSED = "a pause covers it, and its first document was not released"
    UNSAVED = "it decides nothing more before a save"
    READY = "a thread may take it"

    # Enum hashes its name with a Python function, and a state is looked up seven times an event.
    __hash__ = object.__hash__


class ReadyLine(Enum):
    """The line of a ready key; see `dispatcher.pool.lines.ReadyLines`."""

    ANSWER = "its first event waits for an answer that is free"
    OTHER = "all others"
    SLOW = "its first event has a slow handler, of which only so many run at a time"
    SUSPECT = "its first event may have killed a process; see `dispatcher.pool.suspects`"
    ENDED = "the handler of its first event has run outside the pool"

    __hash__ = object.__hash__


class JobOwner(Protocol):
    """All mailboxes, for a job (`dispatcher.pool.mailboxes.Mailboxes`); asked under their lock."""

    @property
    def lock(self) -> AbstractContextManager[object]: ...
    @property
    def waking(self) -> AbstractContextManager[object]: ...
    @property
    def is_reading(self) -> bool: ...
    def resume(self, what: Job) -> None: ...
    def take_slow_place(self, job: Job) -> bool: ...


class Job:
    """An unfinished document under way, with its place in mailbox and tracker."""

    # Class attributes hold the usual values: setting each one would double the cost of a put.
    memo: Any = None
    """The worker's own notes between two runs of the job."""
    handling: HandlerCall | None = None
    given_up_for: Condemned | None = None
    """Set if the job is to be given up, unless it was decided already."""
    tries = 0
    """How many times its handler was called."""
    suspect = False
    """Whether it may have killed an earlier process (`dispatcher.pool.suspects`)."""
    awaits = False
    """Whether its handler runs outside the pool, or has ended there and is not decided yet."""
    is_named = False
    """Whether it is named durably while its run lasts, which its handler has to end within."""
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
        mailbox: Mailbox,
        document: Document,
        slot: Slot,
        *,
        again: bool,
        owner: JobOwner,
    ) -> None:
        self.mailbox = mailbox
        self.document = document
        self.slot = slot
        self.again = again
        """Whether a predecessor may have decided it: it was stored before the end of that leader's
        time.
        """
        self._owner = owner

    def following(self) -> Following:
        """The documents behind it.

        From this call until its handler begins, each further document of its key resumes the job.
        So does the end of reading documents stored before the start.
        """
        with self._owner.lock:
            self.listens = True
            return self.mailbox.following(is_reading=self.again and self._owner.is_reading)

    def behind(self) -> Sequence[Document]:
        """The documents behind it that are in memory; unlike `following` this leaves no mark."""
        with self._owner.lock:
            return [one.document for one in islice(self.mailbox.jobs, 1, MANY)]

    def take_along(self, count: int) -> int:
        """Decide the next `count` documents together with the job.

        Returns their number: fewer if some are no longer under way. They end with the same result
        as the job. The count stays valid over a deferral, until another one is set.
        """
        with self._owner.lock:
            return self.mailbox.take_along(count)

    def take_slow_place(self) -> bool:
        """Whether a handler that may occupy its thread for long may begin now.

        At most half of the threads run slow handlers. If it may not, return a Wait: the job runs
        again by itself when a place is free.
        """
        with self._owner.lock:
            return self._owner.take_slow_place(self)

    def begin_handler(self, limit_seconds: float | None = None) -> HandlerCall:
        """The handler begins here; it is overdue after this limit, else that of all handlers."""
        self.tries += 1
        self.listens = False
        self.handling = HandlerCall(limit_seconds)
        return self.handling

    def resume(self) -> None:
        """Run the job again; may be called from any thread, also before it was deferred."""
        with self._owner.waking:
            self._owner.resume(self)

    @property
    def is_deferred(self) -> bool:
        """Whether it was tried and waits for `resume`."""
        return self.mailbox.waits is self

    @property
    def name(self) -> str:
        """The event id, for a log line."""
        return name_of(self.document)


class Run:
    """One run of a job on a thread; an object of its own, so that no run can end another."""

    __slots__ = ("job", "mailbox", "news", "resumed")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.mailbox = job.mailbox
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

    __slots__ = ("above", "begun", "mailbox", "most", "upto", "wait")

    def __init__(self, mailbox: Mailbox, *, most: int, begun: float) -> None:
        self.mailbox = mailbox
        self.above = mailbox.last
        self.upto = mailbox.top
        self.most = most
        self.begun = begun
        self.wait: Wait | None = None

    @property
    def name(self) -> str:
        """The documents to read, for a log line."""
        return f"held/{self.mailbox.key[1]}"


class Mailbox:
    """The documents of one key, in order of arrival.

    `jobs`, then the documents that only `held` has (`n` above `last` up to `top`), then `behind`.
    """

    # Class attributes hold the usual values, as for Job.
    last = -1
    # How many of its documents `held` has, including those in `jobs`.
    held = 0
    running: Run | Load | None = None
    # The deferred work that waits for its `resume`.
    waits: Job | Load | None = None
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
    # The set that contains it: written by `Mailboxes.place` only.
    state: KeyState | None = None

    def __init__(self, key: Any, *, top: int = -1) -> None:
        self.key = key
        self.jobs: deque[Job] = deque()
        self.behind: deque[Job] = deque()
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
    def head(self) -> Job | None:
        return self.jobs[0] if self.jobs else None

    @property
    def awaits(self) -> bool:
        """Whether the handler of its first event runs outside the pool, or has ended there."""
        return bool(self.jobs) and self.jobs[0].awaits

    @property
    def line_of_head(self) -> ReadyLine:
        """The line of its first event; an event with a reply token waits for a free answer."""
        head = self.head
        if self.awaits:
            return ReadyLine.ENDED
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

    def in_window(self) -> Iterator[Job]:
        """The jobs that count in the window, in order: they are at the end of the queue."""
        for jobs in (self.jobs, self.behind):
            yield from (job for job in jobs if job.held_n is None and not job.slot.finished)

    @property
    def room(self) -> int:
        """How many further documents may be decided with its first one."""
        # guard: one-by-one-behind-a-suspect -> return MANY - 1
        return 0 if self.save_each else MANY - 1

    def following(self, *, is_reading: bool) -> Following:
        """The documents behind its first one."""
        documents = [one.document for one in islice(self.jobs, 1, MANY)]
        is_cut = len(documents) + 1 < len(self.jobs) or self.is_stored or bool(self.behind)
        return Following(documents, self.room, is_cut=is_cut, is_reading=is_reading)

    def take_along(self, count: int) -> int:
        """Decide up to this many of the documents behind the first one with it; their number."""
        self.along = min(count, len(self.jobs) - 1, self.room)
        return self.along

    def may_have(self, name: str) -> bool:
        """Whether the event may be among its documents, which are not all read."""
        return self.is_stored or any(
            job.name == name for jobs in (self.jobs, self.behind) for job in jobs
        )

    def end_move(self) -> None:
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
