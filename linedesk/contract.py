"""The contract of dispatcher and worker: the jobs that one hands over, and the results of the
other.

Each side uses only this module and does not import the other. Both run in one process. Two parts
could not be sent to another machine as data: `Job` is an object with methods (`begin_handler`,
`resume`), and `Job.memo` holds the worker's own state between two runs. `JobResult` and `GiveUp`
are data. `HandlerCall` has the one lock that both sides use.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Protocol

from dispatcher.conversations.conversations import Conversations
from linedesk.store.committer import Committer
from linedesk.store.documents import Document
from linedesk.store.records.waits import Why, reason


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
        no lock.
        """
        self._action = action
        if self.is_abandoned:
            action()

    @property
    def is_over(self) -> bool:
        """Whether it has returned or was abandoned."""
        return self._claim.locked()


@dataclass(frozen=True)
class GiveUp:
    """Why a job is given up without another run of its handler."""

    cause: str
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


class Job(Protocol):
    """One document under way, for its worker."""

    document: Document
    again: bool
    """Whether a predecessor may have decided it: it was stored before the end of that leader's
    time.
    """
    memo: Any
    """The worker's own notes between two runs of the job; None at first."""

    @property
    def given_up_for(self) -> GiveUp | None:
        """Set if the job is to be given up, unless it was decided already."""

    def following(self) -> Following:
        """The documents behind it.

        From this call until its handler begins, each further document of its key resumes the job.
        So does the end of reading documents stored before the start.
        """

    def take_along(self, count: int) -> int:
        """Decide the next `count` documents together with the job.

        Returns their number: fewer if some are no longer under way. They end with the same result
        as the job. The count stays valid over a deferral, until another one is set.
        """

    def take_slow_place(self) -> bool:
        """Whether a handler that may occupy its thread for long may begin now.

        At most half of the threads run slow handlers. If it may not, return a Wait: the job runs
        again by itself when a place is free.
        """

    def begin_handler(self, limit_seconds: float | None = None) -> HandlerCall:
        """The handler begins here; it is overdue after this limit, else that of all handlers."""

    def resume(self) -> None:
        """Run the job again; may be called from any thread, also before it was deferred."""


class Worker(Protocol):
    """Turns documents into decisions; the dispatcher calls it."""

    def take_over(self, epoch: int) -> None:
        """Called once, with the lease, before any document is read."""

    def decide(self, job: Job) -> JobResult | Wait:
        """Run one job on the calling thread. Raises only errors that must stop the process.

        The result of a run whose handler was abandoned is ignored.
        """

    def did_not_return(self, job: Job, stack: str) -> Wait:
        """Report an abandoned handler with its `stack`: a failed try. Must be quick."""

    def has_room(self) -> bool:
        """False while so many effects wait that reading should pause."""

    def status(self) -> str:
        """The waiting effects, in a text for operators; quick and thread-safe."""

    def waiting(self) -> Sequence[Mapping[str, Any]]:
        """Effects that wait longest: `{channel, key, eventId, since, why}`; quick, thread-safe."""

    def workers(self) -> Sequence[Mapping[str, Any]]:
        """The worker processes that run handlers, for operators; empty if threads run them."""

    def broker(self) -> str | None:
        """The broker's problem, empty without one; None where threads run the handlers."""

    def give_up_send(self, channel: str, key: str, effect_id: str) -> bool:
        """Turn a send into a dead letter if it is the first of its conversation's outbox.

        True while that is under way, so the caller asks again. Quick and thread-safe.
        """

    def stop(self) -> None:
        """Begin no new work; work under way ends by itself."""

    def finish(self) -> None:
        """Write what the work left behind, after its threads have ended and while this process
        still has the lease. Raises nothing.
        """


Step = Callable[[], None]
"""Work without a key, done before any new job, such as one call of the LINE API."""


class MakeWorker(Protocol):
    """Makes the worker from the dispatcher's functions."""

    def __call__(
        self,
        *,
        committer: Committer,
        known: Conversations,
        step: Callable[[Step], None],
        later: Callable[[float, Callable[[], None]], None],
        lease_is_fresh: Callable[[], bool],
        places: Callable[[int], None],
    ) -> Worker:
        """`committer` makes its durable writes, `known` has the conversations. `step` accepts work
        without a key, `later` calls a function after some seconds, and `places` limits the number
        of jobs that run at a time.
        """
