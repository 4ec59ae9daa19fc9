"""The contract of dispatcher and worker: what the one hands over, and what the other answers.

Each side is written against this module alone, and neither imports the other. Today both live in
one process. What a worker on another machine could not be sent as data yet: `Job` is an object with
methods (`begin_handler`, `resume`), and `Job.memo` holds whatever the worker keeps between two
runs. `JobResult` and `GiveUp` are data; no lock stands here, each side has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Protocol

from linedesk.store.documents import Document


class JobResult(Enum):
    """How one run of a job ended. The values stand in `jobs` and in metrics, so they stay."""

    DONE = "finished"
    """Decided without a write of this run's, so only progress will remember it."""
    RECORDED = "recorded"
    """This job's record has put the event, those taken along and all of `Job.unsaved` into
    `applied`."""
    ALREADY_APPLIED = "applied"
    """Another record was found, with the event and those taken along in `applied`."""
    DEFERRED = "parked"
    """Not decided: `Job.resume` will be called, and until then the key holds no thread."""


class HandlerCall(Protocol):
    """One call of the bot's handler: it returns or it is abandoned, whichever comes first."""

    @property
    def is_abandoned(self) -> bool:
        """Whether it was abandoned, so that another run decides."""
        ...

    def when_abandoned(self, action: Callable[[], object]) -> None:
        """Call this once it is abandoned, at once if it was; it must be quick and take no lock."""
        ...

    def end(self) -> bool:
        """The handler returned; False if it was abandoned before, and then it decides nothing."""
        ...


@dataclass(frozen=True)
class GiveUp:
    """Why a job is given up without another run of its handler."""

    cause: str
    attempts: int
    first_at: datetime
    stack: str = ""
    """Where its handler stood, if it was at work."""


@dataclass(frozen=True)
class Following:
    """What stands directly behind a job in the queue of its key."""

    documents: Sequence[Document]
    """Those in hand, in order."""
    room: int
    """How many of them the job may take along; none where it may take the process down."""
    is_cut: bool
    """Whether more stands behind them that is not given here."""
    is_reading: bool
    """Whether documents that were stored before this process began are still being read."""


class Job(Protocol):
    """One document in hand, as its worker sees it."""

    document: Document
    again: bool
    """Whether a predecessor may have decided it: read before the end of its reign."""
    memo: Any
    """The worker's own notes between two runs of the job; None at first."""
    because: str | None
    """Why it was deferred, in words for a person: set by the worker before it returns DEFERRED."""

    @property
    def given_up_for(self) -> GiveUp | None:
        """Set where the job is to be given up, unless it has been decided already."""
        ...

    def following(self) -> Following:
        """What stands behind it.

        From now on until its handler begins, each further document of its key resumes the job, and
        so does the end of reading what was stored before.
        """
        ...

    def take_along(self, count: int) -> int:
        """Have so many of the documents that follow be decided together with the job.

        Returns how many these are: fewer where some are not in hand any more. How the job ends is
        how all of them end. It holds over a deferral, until another count is told.
        """
        ...

    def take_slow_place(self) -> bool:
        """Whether a handler that may hold its thread for long may begin now.

        At most half of the threads run slow handlers. If it may not, return DEFERRED: the job runs
        again by itself when there is a place for it.
        """
        ...

    def begin_handler(self, limit_seconds: float | None = None) -> HandlerCall:
        """The handler begins, on this thread: from now on it may be found overdue.

        It is overdue after `limit_seconds`, by default after as long as any handler may run.
        """
        ...

    def unsaved(self) -> Sequence[str]:
        """Names of the key's documents that were decided without a record since the last save."""
        ...

    def resume(self) -> None:
        """Run the job again; may be called from any thread, also before it was deferred."""
        ...


class Worker(Protocol):
    """What the dispatcher is handed: it turns documents into decisions."""

    def take_over(self, epoch: int) -> None:
        """Called once, with the lease, before any document is read."""
        ...

    def decide(self, job: Job) -> JobResult:
        """Run one job on the calling thread. Raises nothing but what must stop the process.

        What it returns from a run whose handler was abandoned is thrown away.
        """
        ...

    def did_not_return(self, job: Job, stack: str) -> None:
        """A handler was abandoned where `stack` shows: a failed try, and the job is deferred.

        Must be quick, and call `Job.resume` some time.
        """
        ...

    def has_room(self) -> bool:
        """False while so much waits to be carried out that reading should pause."""
        ...

    def status(self) -> str:
        """What waits to be carried out, in words for a person; quick, from any thread."""
        ...

    def waiting(self) -> Sequence[Mapping[str, Any]]:
        """What is decided and waits to be carried out, a few of those that wait longest.

        Each as `{channel, key, eventId, since, why}`, `why` in words for a person; quick, from any
        thread.
        """
        ...

    def workers(self) -> Sequence[Mapping[str, Any]]:
        """The worker processes that run handlers, for operators; none where threads do."""
        ...

    def broker(self) -> str | None:
        """What stands between this process and the workers' broker; empty where nothing does.

        None where handlers run on threads of this process.
        """
        ...

    def give_up_send(self, channel: str, key: str, effect_id: str) -> bool:
        """Have a send become a dead letter if it is the first that its conversation waits for.

        True as long as that is under way, so it has to be asked again. Quick, from any thread.
        """
        ...

    def stop(self) -> None:
        """Begin nothing new; what is under way ends by itself."""
        ...


Step = Callable[[], None]
"""Work without a key, done before any new job: such as one call of the LINE API."""


class MakeWorker(Protocol):
    """Makes the worker of the pieces that it needs from the dispatcher."""

    def __call__(
        self,
        *,
        step: Callable[[Step], None],
        later: Callable[[float, Callable[[], None]], None],
        lease_is_fresh: Callable[[], bool],
        places: Callable[[int], None],
    ) -> Worker:
        """`step` takes work without a key, `later` calls a function when some seconds are over,
        `places` limits how many jobs may be at work at a time.
        """
        ...
