"""A fixed pool of named threads that decides documents key by key.

Jobs of one key run one at a time in the order of arrival; different keys run in parallel.
`KeyQueues` records what each key waits for, under the lock of all conversations. After each change
the pool wakes the threads that have work now: an idle thread, the committing thread, the reader.
Steps (work without a key) come before new jobs, and jobs never occupy the last thread. The pool
knows nothing of LINE.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import bson

from dispatcher.commit.held import HeldKey, HeldStore
from dispatcher.commit.tracker import ProgressSnapshot, ProgressTracker
from dispatcher.conversations.conversations import Conversations
from dispatcher.conversations.mailbox import Following, GiveUp, Job, JobResult, Load, Run, Wait
from dispatcher.pool.hold_policy import HELD_AFTER_SECONDS, PAUSED_AFTER_SECONDS, HoldPolicy
from dispatcher.pool.queues import KeyQueues
from dispatcher.pool.suspects import CrashSuspects
from dispatcher.pool.threads import Thread, Threads
from dispatcher.pool.view import PoolView
from linedesk.store.control import NO_PAUSES, RELEASED, Drop, Pauses
from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable
from linedesk.store.records.waits import Why

log = logging.getLogger(__name__)
LOAD_AGAIN_SECONDS = 1.0
# Of unfinished documents in the window, as BSON.
MOST_BYTES = 64 * 1024 * 1024
# At most one in this many threads runs slow handlers.
SLOW_PART = 2
# Work without a key, done before any new job, such as one call of the LINE API.
Step = Callable[[], None]
Later = Callable[[float, Callable[[], None]], None]


class Pool:
    """The pool of threads that the module describes.

    `decide` is the worker's function, `later` calls a function after some seconds. `bound` is the
    limit of documents from the oldest unfinished to the newest one; there is room for one more
    while the unfinished ones have less than MOST_BYTES. An exception of a job or step ends its
    thread and reaches `threading.excepthook`; the process has to stop then. With `held`, documents
    that wait longer than `held_after_seconds` leave the window; paused ones leave it after
    `paused_after_seconds`. `held_keys` are keys that an earlier process left there. `now` is a
    monotonic clock.
    """

    def __init__(
        self,
        decide: Callable[[Job], JobResult | Wait],
        tracker: ProgressTracker,
        *,
        threads: int,
        bound: int,
        later: Later,
        known: Conversations | None = None,
        suspects: CrashSuspects | None = None,
        held: HeldStore | None = None,
        held_keys: Sequence[HeldKey] = (),
        held_after_seconds: float = HELD_AFTER_SECONDS,
        paused_after_seconds: float = PAUSED_AFTER_SECONDS,
        pauses: Pauses = NO_PAUSES,
        wake_saver: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._decide = decide
        known = Conversations() if known is None else known
        self._bound = bound
        self._most_bytes = MOST_BYTES
        self._threads_for_jobs = threads - 1
        self._later = later
        self._held = held
        self._wake_saver = wake_saver
        self._now = now
        self.threads = Threads(threads, self._work)
        """Of these the pool alone abandons any."""
        self.changed = threading.Event()
        """Set when there may be progress to save."""
        self.urgent = threading.Event()
        """Set when a key waits for that save."""
        self._lock = known.lock
        self._room = threading.Condition(self._lock)
        # All below under _lock.
        self._tracker = tracker
        self._queues = KeyQueues(
            tracker,
            known=known,
            owner=self,
            pauses=pauses,
            most_jobs=threads - 1,
            most_slow=max(1, threads // SLOW_PART),
            suspects=suspects,
            held_bound=bound,
        )
        self._policy = HoldPolicy(
            after_seconds=held_after_seconds if held is not None else 0,
            paused_after_seconds=paused_after_seconds,
            bound=bound,
            most_bytes=MOST_BYTES,
        )
        self._steps: deque[Step] = deque()
        self._idle: list[Thread] = []
        self._wait_for_room = 0
        self._stopped = False
        self._scanning = False
        self.view = PoolView(self._queues, self.threads, lock=self._lock)
        for key in held_keys:
            self._queues.put_held(key)

    # The pool's life.

    def start(self) -> None:
        self.threads.start()

    def stop(self) -> None:
        """Begin no new job or step; may be called twice, and before `start`."""
        with self._lock:
            self._stopped = True
            self._room.notify_all()
            idle, self._idle = self._idle, []
        for thread in idle:
            thread.wake.set()

    def abandon_overdue(self, limit_seconds: float) -> list[Thread]:
        """Abandon the threads whose handler exceeds its limit, and replace them.

        `limit_seconds` applies to handlers without a limit of their own. The jobs are deferred, and
        have to be resumed.
        """
        with self._lock:
            lost = self._defer_lost(self.threads.abandon_overdue(limit_seconds))
        # A new thread takes work at once, under the lock.
        self.threads.replace(lost)
        return lost

    def _defer_lost(self, lost: list[Thread]) -> list[Thread]:
        """Under the lock; `Threads.replace` must follow without it."""
        for thread in lost:
            assert isinstance(thread.work, Run), "only a handler is abandoned"
            self._queues.abandoned(thread.work)
        return lost

    @property
    def suspects_are_through(self) -> bool:
        """Whether all events that may have killed an earlier process are decided."""
        with self._lock:
            return self._queues.suspects.are_through

    def end_proof(self) -> None:
        """Others may run beside the suspect that is to be proved."""
        with self._lock:
            self._queues.suspects.end_proof()
            self._signal()

    # Intake.

    def wait_for_room(self, timeout_seconds: float) -> bool:
        """Wait until there is room for another document; False if there still is none."""
        with self._lock:
            if not self._has_room and not self._stopped:
                self._wait_for_room += 1
                self._room.wait(timeout_seconds)
                self._wait_for_room -= 1
            return self._has_room and not self._stopped

    @property
    def _has_room(self) -> bool:
        return len(self._tracker) < self._bound and self._tracker.size < self._most_bytes

    def put(self, document: Document, token: Any, *, again: bool) -> bool:
        """Accept a document; False if it is known already: unfinished or finished."""
        key = (document.get("channel"), document.get("key"))
        if self._scanning and self._is_held(key, document["_id"]):
            return False
        # The encoded size: documents arrive decoded.
        size = len(bson.encode(document))
        with self._lock:
            now = time.monotonic()
            job = self._queues.put(document, token, key=key, size=size, again=again, now=now)
            if job is not None:
                self._signal()
        return job is not None

    def _is_held(self, key: Any, id_: Any) -> bool:
        """Whether a scanned document is in `held`, which the ring may have forgotten."""
        with self._lock:
            queue = self._queues.get(key)
            may_be = queue is not None and queue.held > 0
        return may_be and self._held is not None and self._held.has(id_)

    def put_finished(self, document: Document, token: Any) -> None:
        """Enter a document that needs no decision, such as a heartbeat: it is finished at once."""
        with self._lock:
            slot = self._tracker.take(document["_id"], token)
            if slot is not None:
                self._tracker.finish(slot)
        self._tell_saver(self.changed)

    def standing(self) -> tuple[int, Any]:
        """Return the number of unfinished documents, and the last one before them."""
        with self._lock:
            return len(self._tracker), self._tracker.after

    def move(self, token: Any) -> None:
        """The feed's position is `token`, without new documents before it."""
        with self._lock:
            self._tracker.move(token)
            self._queues.all_is_read()
            self._signal()

    def forget_token(self) -> None:
        """The feed's position is lost (G9)."""
        with self._lock:
            self._tracker.forget_token()
        self._tell_saver(self.changed)

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
        with self._lock:
            self._queues.most_jobs = min(self._threads_for_jobs, jobs)
            self._signal()

    def step(self, step: Step) -> None:
        """Run `step` on a thread before any new job."""
        with self._lock:
            self._steps.append(step)
            self._signal()

    # Called by jobs.

    def resume(self, what: Job | Load) -> None:
        """It may be repeated (see `dispatcher.conversations.mailbox.Job`)."""
        with self._lock:
            self._queues.resume(what)
            self._signal()

    def following(self, job: Job) -> Following:
        """Return the documents behind the job (see `dispatcher.conversations.mailbox.Job`)."""
        with self._lock:
            return self._queues.following(job)

    def take_along(self, job: Job, count: int) -> int:
        """Decide documents behind the job with it (see `dispatcher.conversations.mailbox.Job`)."""
        with self._lock:
            return self._queues.take_along(job, count)

    def take_slow_place(self, job: Job) -> bool:
        """Whether one more slow handler may run (see `dispatcher.conversations.mailbox.Job`)."""
        with self._lock:
            return self._queues.take_slow_place(job)

    # Orders of operators.

    @property
    def pauses(self) -> Pauses:
        return self._queues.pauses

    def obey(self, pauses: Pauses) -> None:
        """Begin no job that these pauses cover; an event that a drop covers is given up."""
        with self._lock:
            self._queues.obey(pauses)
            self._signal()

    def give_up(self, channel: str, key: str, name: str) -> bool:
        """Turn the event into a dead letter if it is the first of its conversation.

        Returns True while that is under way, so the caller has to ask again. A run that has decided
        already continues to its end, and documents that only `held` has are read first. The key may
        be paused.
        """
        with self._lock:
            queue = self._queues.get((channel, key))
            if queue is None or queue.is_done:
                # guard: release-waits-for-all -> return False
                return not self._queues.suspects.all_met
            head = queue.head
            if head is None:
                # The first document is known only after it is read.
                lost = []
            elif head.name != name:
                return not self._queues.suspects.all_met or (head.again and queue.may_have(name))
            else:
                lost = self._defer_lost(self.threads.abandon_at(head))
                _give_up(head, RELEASED, lost[0].stack if lost else "")
            self._queues.let_pass(queue)
            self._signal()
        self.threads.replace(lost)
        return True

    def may_have_dropped(self, drop: Drop) -> bool:
        """Whether events that the drop covers may wait: not all are read, or some are held."""
        with self._lock:
            return not self._queues.suspects.all_met or any(
                queue.held for queue in self._queues.all() if drop.scope.covers(*queue.key)
            )

    # The saver's side.

    @property
    def look_seconds(self) -> float:
        """How often `plan_moves` needs to be called."""
        return self._policy.look_seconds

    def plan_moves(self) -> None:
        """Find the documents that have waited so long that they have to leave the window."""
        now = self._now()
        with self._lock:
            self._queues.want_moved(self._policy.due(self._queues, now))
            wanted = self._queues.has_to_move
        if wanted:
            self._tell_saver(self.changed)

    def begin_save(self) -> ProgressSnapshot | None:
        """Return the data to save and the documents to move to `held`; None if nothing changed."""
        with self._lock:
            self._queues.choose(datetime.now(UTC))
            plan = self._queues.begin_save()
            self._signal()
            return plan

    def saved(self, plan: ProgressSnapshot) -> None:
        """The plan is durable: keys that waited for it may continue."""
        with self._lock:
            self._queues.saved(plan)
            self.urgent.clear()
            self._signal()
            if self._queues.has_to_move:
                self._tell_saver(self.changed)
        if rows := plan.rows:
            keys = {row["key"] for row in rows}
            log.info("documents held documents=%d keys=%d", len(rows), len(keys))

    def not_saved(self) -> None:
        """The save failed or its outcome is unknown: the next one has to cover it as well."""
        with self._lock:
            self._tracker.not_saved()
            self._policy.excuse(self._now())
        # Otherwise a key that waits for the save would wait until another document finishes.
        self._tell_saver(self.changed)

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
            with self._lock:
                if self._stopped or me.is_abandoned:
                    return None
                work = self._choose()
                if work is not None:
                    self._signal()
                    return work
                me.wake.clear()
                self._idle.append(me)
            me.wake.wait()

    def _choose(self) -> Run | Load | Step | None:
        if self._steps:
            return self._steps.popleft()
        work = self._queues.next(time.monotonic())
        if isinstance(work, Run) and (drop := self._queues.drop_of(work.job)) is not None:
            _give_up(work.job, drop.cause)
        return work

    def _run(self, me: Thread, run: Run) -> None:
        me.work = run
        result = self._decide(run.job)
        wait = result if isinstance(result, Wait) else None
        with self._lock:
            queues = self._queues
            ended = (
                queues.deferred(run, result) if isinstance(result, Wait) else queues.decided(run)
            )
            if not ended:
                # It was abandoned: its job was deferred then, and another run may have decided it.
                return
            me.work = None
            # This thread takes the next work itself, and then wakes another one.
            self._tell()
        if wait is not None:
            self._wake_after(run.job, wait)
        else:
            self._tell_saver(self.changed)

    def wait(self, job: Job, wait: Wait) -> None:
        """Note why a job whose handler was abandoned waits, and run it again after that."""
        with self._lock:
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
            with self._lock:
                if what.wait is wait:
                    self._queues.resume(what)
                    self._signal()

        self._later(wait.seconds, wake)

    def _read(self, me: Thread, load: Load) -> None:
        """Read the next documents of a key from `held`; repeated while MongoDB is away."""
        assert self._held is not None, "a key has stored documents only with a store"
        me.work = load
        key = load.queue.key
        try:
            rows = self._held.slice(key, above=load.above, upto=load.upto, most=load.most)
        except StoreUnavailable:
            wait = Wait.because(Why.NOT_READ, LOAD_AGAIN_SECONDS)
            with self._lock:
                me.work = None
                self._queues.not_read(load, wait)
                self._signal()
            self._wake_after(load, wait)
            return
        with self._lock:
            me.work = None
            vanished = self._queues.loaded(load, rows)
            self._signal()
        if vanished > 0:
            log.error("documents vanished from held key=%s documents=%d", key[1], vanished)

    def _tell_saver(self, event: threading.Event) -> None:
        if not event.is_set():
            event.set()
            self._wake_saver()

    # Under the lock.

    def _signal(self) -> None:
        """Wake a thread for new work, last in every change; each that takes work wakes another."""
        if self._idle and (self._steps or self._queues.first is not None):
            self._idle.pop().wake.set()
        self._tell()

    def _tell(self) -> None:
        """Wake the committing thread and the reader if they have work now."""
        if self._queues.save_is_urgent:
            self._tell_saver(self.urgent)
        if self._wait_for_room and self._has_room:
            self._room.notify_all()


def _give_up(job: Job, cause: str, stack: str = "") -> None:
    """Give up the job at its next run, unless it is given up already."""
    if job.given_up_for is None:
        # When it first ran; now, if it never did.
        ago = time.monotonic() - job.begun if job.begun else 0.0
        first_at = datetime.now(UTC) - timedelta(seconds=ago)
        job.given_up_for = GiveUp(cause, job.tries, first_at, stack)
