"""A fixed pool of named threads that decides documents key by key.

Jobs of one key run one at a time in the order of arrival; different keys run in parallel.
`Mailboxes` records what each key waits for, under the lock of all conversations, whose release
wakes the threads that have work then. Steps (work without a key) come before new jobs, and jobs
never occupy the last thread. The pool knows nothing of LINE.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import bson

from dispatcher.commit.progress import HeldStore
from dispatcher.conversations.mailbox import Condemned, Job, JobResult, Load, Run, Wait
from dispatcher.pool.mailboxes import Mailboxes, Step
from dispatcher.pool.threads import Thread, Threads
from dispatcher.pool.view import PoolView
from linedesk.store.control import Drop, Pauses
from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable
from linedesk.store.records.letters import RELEASED, Cause
from linedesk.store.records.waits import Why

log = logging.getLogger(__name__)
LOAD_AGAIN_SECONDS = 1.0
# At most one in this many threads runs slow handlers.
SLOW_PART = 2
Later = Callable[[float, Callable[[], None]], None]


class Pool:
    """The pool of threads that the module describes.

    `decide` is the worker's function, `later` calls a function after some seconds. An exception of
    a job or step ends its thread and reaches `threading.excepthook`; the process has to stop then.
    `held` is needed where documents move there.
    """

    def __init__(
        self,
        decide: Callable[[Job], JobResult | Wait],
        mailboxes: Mailboxes,
        *,
        threads: int,
        later: Later,
        held: HeldStore | None = None,
    ) -> None:
        self._decide = decide
        self._later = later
        self._held = held
        self.threads = Threads(threads, self._work)
        """Of these the pool alone abandons any."""
        self.view = PoolView(mailboxes, self.threads)
        self._lock, self._waking = mailboxes.lock, mailboxes.waking
        # All below under _lock.
        self.mailboxes = mailboxes
        self._tracker = mailboxes.tracker
        mailboxes.lines.most_threads = mailboxes.lines.most_jobs = threads - 1
        mailboxes.lines.most_slow = max(1, threads // SLOW_PART)
        self._stopped = False
        self._scanning = False

    # The pool's life.

    def start(self) -> None:
        self.threads.start()

    def close(self) -> None:
        """Begin no job but those whose handler has run outside the pool."""
        with self._waking:
            self.mailboxes.lines.is_closed = True

    def stop(self) -> None:
        """Begin no new job or step; may be called twice, and before `start`."""
        with self._waking:
            self._stopped = True
            self._waking.room.set()
            idle, self._waking.idle = self._waking.idle, []
        for thread in idle:
            thread.wake.set()

    def abandon_overdue(self, limit_seconds: float) -> list[Thread]:
        """Abandon the threads whose handler exceeds its limit, and replace them.

        `limit_seconds` applies to handlers without a limit of their own. The jobs are deferred, and
        have to be resumed.
        """
        with self._waking:
            lost = self._defer_lost(self.threads.abandon_overdue(limit_seconds))
        # A new thread takes work at once, under the lock.
        self.threads.replace(lost)
        return lost

    def _defer_lost(self, lost: list[Thread]) -> list[Thread]:
        """Under the lock; `Threads.replace` must follow without it."""
        for thread in lost:
            assert isinstance(thread.work, Run), "only a handler is abandoned"
            self.mailboxes.abandoned(thread.work)
        return lost

    @property
    def suspects_are_through(self) -> bool:
        """Whether all events that may have killed an earlier process are decided."""
        with self._lock:
            return self.mailboxes.suspects.are_through

    def end_proof(self) -> None:
        """Others may run beside the suspect that is to be proved."""
        with self._waking:
            self.mailboxes.suspects.end_proof()

    # Intake.

    def wait_for_room(self, timeout_seconds: float) -> bool:
        """Wait until there is room for another document; False if there still is none."""
        with self._lock:
            if self._stopped or self.mailboxes.has_room:
                return not self._stopped
            self._waking.room.clear()
        self._waking.room.wait(timeout_seconds)
        with self._lock:
            return self.mailboxes.has_room and not self._stopped

    def put(self, document: Document, token: Any, *, again: bool) -> bool:
        """Accept a document; False if it is known already: unfinished or finished."""
        key = (document.get("channel"), document.get("key"))
        if self._scanning and self._is_held(key, document["_id"]):
            return False
        # The encoded size: documents arrive decoded.
        size = len(bson.encode(document))
        with self._waking:
            now = time.monotonic()
            job = self.mailboxes.put(document, token, key=key, size=size, again=again, now=now)
        return job is not None

    def _is_held(self, key: Any, id_: Any) -> bool:
        """Whether a scanned document is in `held`, which the ring may have forgotten."""
        with self._lock:
            mailbox = self.mailboxes.get(key)
            may_be = mailbox is not None and mailbox.held > 0
        return may_be and self._held is not None and self._held.has(id_)

    def put_finished(self, document: Document, token: Any) -> None:
        """Enter a document that needs no decision, such as a heartbeat: it is finished at once."""
        with self._waking:
            slot = self._tracker.take(document["_id"], token)
            if slot is not None:
                self._tracker.finish(slot)

    def standing(self) -> tuple[int, Any]:
        """Return the number of unfinished documents, and the last one before them."""
        with self._lock:
            return len(self._tracker), self._tracker.after

    def move(self, token: Any) -> None:
        """The feed's position is `token`, without new documents before it."""
        with self._waking:
            self._tracker.move(token)
            self.mailboxes.all_is_read()

    def forget_token(self) -> None:
        """The feed's position is lost (G9)."""
        with self._waking:
            self._tracker.forget_token()

    def begin_scan(self) -> Any:
        """Return where a scan begins; it does not take known documents again."""
        with self._lock:
            self._scanning = True
            # guard: scan-begins-in-one-step -> return self._tracker.after
            return self._tracker.begin_scan()

    def end_scan(self) -> None:
        with self._lock:
            self._scanning = False
            self._tracker.end_scan()

    def allow(self, jobs: int) -> None:
        """Limit the number of jobs at a time; the number of threads limits it, too."""
        with self._waking:
            lines = self.mailboxes.lines
            lines.most_jobs = min(lines.most_threads, jobs)

    def step(self, step: Step) -> None:
        """Run `step` on a thread before any new job."""
        with self._waking:
            self._waking.steps.append(step)

    # Orders of operators.

    @property
    def pauses(self) -> Pauses:
        return self.mailboxes.pauses

    def obey(self, pauses: Pauses) -> None:
        """Begin no job that these pauses cover; an event that a drop covers is given up."""
        with self._waking:
            self.mailboxes.obey(pauses)

    def give_up(self, channel: str, key: str, name: str) -> bool:
        """Turn the event into a dead letter if it is the first of its conversation.

        Returns True while that is under way, so the caller has to ask again. A run that has decided
        already continues to its end, and documents that only `held` has are read first. The key may
        be paused.
        """
        with self._waking:
            mailbox = self.mailboxes.get((channel, key))
            if mailbox is None or mailbox.is_done:
                # guard: release-waits-for-all -> return False
                return self.mailboxes.is_reading
            head = mailbox.head
            if head is None:
                # The first document is known only after it is read.
                lost = []
            elif head.name != name:
                return self.mailboxes.is_reading or (head.again and mailbox.may_have(name))
            else:
                lost = self._defer_lost(self.threads.abandon_at(head))
                _give_up(head, RELEASED, lost[0].stack if lost else "")
            self.mailboxes.let_pass(mailbox)
        self.threads.replace(lost)
        return True

    def may_have_dropped(self, drop: Drop) -> bool:
        """Whether events that the drop covers may wait: not all are read, or some are held."""
        with self._lock:
            return self.mailboxes.is_reading or any(
                mailbox.held for mailbox in self.mailboxes.all() if drop.scope.covers(*mailbox.key)
            )

    # The threads' side.

    def _work(self, me: Thread) -> None:
        while (work := self._next(me)) is not None:
            me.since = time.monotonic()
            if isinstance(work, Run):
                self._run(me, work)
            elif isinstance(work, Load):
                self._read(me, work)
            else:
                work()
            me.since = None

    def _next(self, me: Thread) -> Run | Load | Step | None:
        """Return the next work, sleeping until there is some; None once the pool has stopped."""
        while True:
            with self._waking:
                if self._stopped or me.is_abandoned:
                    return None
                work = self._choose()
                if work is not None:
                    return work
                me.wake.clear()
                self._waking.idle.append(me)
            me.wake.wait()

    def _choose(self) -> Run | Load | Step | None:
        if self._waking.steps:
            return self._waking.steps.popleft()
        work = self.mailboxes.next(time.monotonic())
        if isinstance(work, Run) and (drop := self.mailboxes.drop_of(work.job)) is not None:
            _give_up(work.job, drop.cause)
        return work

    def _run(self, me: Thread, run: Run) -> None:
        me.work = run
        result = self._decide(run.job)
        wait = result if isinstance(result, Wait) else None
        # This thread takes the next work itself, and wakes the threads that have work by that.
        with self._lock:
            mailboxes = self.mailboxes
            ended = mailboxes.decided(run) if wait is None else mailboxes.deferred(run, wait)
            if not ended:
                # It was abandoned: its job was deferred then, and another run may have decided it.
                return
            me.work = None
        if wait is not None:
            self._wake_after(run.job, wait)

    def wait(self, job: Job, wait: Wait) -> None:
        """Note why a job whose handler was abandoned waits, and run it again after that."""
        with self._waking:
            # guard: no-wait-for-the-released
            if not job.is_deferred:
                # It was released meanwhile.
                return
            job.wait = wait
        self._wake_after(job, wait)

    def _wake_after(self, what: Job | Load, wait: Wait) -> None:
        if wait.seconds is None:
            return

        def wake() -> None:
            # A run that has begun meanwhile has ended this wait.
            with self._waking:
                if what.wait is wait:
                    self.mailboxes.resume(what)

        self._later(wait.seconds, wake)

    def _read(self, me: Thread, load: Load) -> None:
        """Read the next documents of a key from `held`; repeated while MongoDB is away."""
        assert self._held is not None, "a key has stored documents only with a store"
        me.work = load
        key = load.mailbox.key
        try:
            rows = self._held.slice(key, above=load.above, upto=load.upto, most=load.most)
        except StoreUnavailable:
            wait = Wait.because(Why.NOT_READ, LOAD_AGAIN_SECONDS)
            with self._waking:
                me.work = None
                self.mailboxes.not_read(load, wait)
            self._wake_after(load, wait)
            return
        with self._waking:
            me.work = None
            vanished = self.mailboxes.loaded(load, rows)
        if vanished > 0:
            log.error("documents vanished from held key=%s documents=%d", key[1], vanished)


def _give_up(job: Job, cause: Cause, stack: str = "") -> None:
    """Give up the job at its next run, unless it is given up already."""
    if job.given_up_for is None:
        # When it first ran; now, if it never did.
        ago = time.monotonic() - job.begun if job.begun else 0.0
        first_at = datetime.now(UTC) - timedelta(seconds=ago)
        job.given_up_for = Condemned(cause, job.tries, first_at, stack)
