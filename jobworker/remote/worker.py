"""A worker process: takes jobs from the leader, runs handlers, and repeats each decision until the
leader has it.

It has no MongoDB and does not call LINE. A handler that does not return is abandoned as in the
dispatcher: another thread replaces its thread.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from jobworker.async_handlers import Awaited
from jobworker.handler_retry import did_not_return
from jobworker.remote.job import (
    CONTRACT,
    DECIDED,
    LEADERS,
    NOT_UNDERSTOOD,
    Job,
    failed,
    read,
    written,
)
from jobworker.remote.program import ProgramBot, ProgramThread
from jobworker.remote.python_bot import PythonBot
from jobworker.remote.values import to_line
from linedesk.runtime.metrics import COUNTER, HISTOGRAM, Figure, Metrics
from linedesk.runtime.status_row import NEW, SILENT, STOPPING, WORKING
from linedesk.runtime.thread import BackgroundThread
from linedesk.store.records.events import EVENT_ID

if TYPE_CHECKING:
    from jobworker.remote.amqp import AmqpBroker

log = logging.getLogger(__name__)

BEAT_SECONDS = 1.0
# A decision that the leader does not confirm is sent again after this long.
REPEAT_SECONDS = 1.0
# After this long without a leader's message, one with a lower epoch may follow.
LEADER_SILENT_SECONDS = 10.0
# A leader repeats nothing after this time, nor does a worker.
FORGET_SECONDS = 3_600.0

OF_WORKER = (
    Figure("worker_handler_seconds", HISTOGRAM, "How long handlers run in this worker."),
    Figure(
        "worker_failed_handlers",
        COUNTER,
        "Handlers that raised an error, or did not return in time.",
    ),
    Figure(
        "worker_abandoned_threads",
        COUNTER,
        "Threads whose handler did not return in time, or was released.",
    ),
)


@dataclass
class Held:
    """A job that the worker has, until the leader confirms its decision."""

    job: Job
    received: float
    thread: RunnerThread | None = None
    awaited: Awaited | None = None
    """The call of an async handler."""
    began: float | None = None
    decision: bytes | None = None
    sent: float = 0.0

    def is_overdue(self, now: float) -> bool:
        if self.decision is not None or self.began is None or self.awaited is not None:
            return False
        return now - self.began > self.job.limit_seconds


class RunnerThread(threading.Thread):
    """One thread for handlers."""

    def __init__(
        self, number: int, main: Callable[[RunnerThread], None], runner: PythonBot | ProgramThread
    ) -> None:
        super().__init__(name=f"handler-{number:02d}", target=main, args=(self,), daemon=True)
        self.runner = runner
        self.is_abandoned = False

    @property
    def stack(self) -> str:
        frame = sys._current_frames().get(self.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame is not None else ""


class WorkerProcess:
    """Runs jobs on `threads` threads until it is stopped; its own thread sends a beat once a
    second.

    `name` is for operators.
    """

    def __init__(
        self,
        bot: PythonBot | ProgramBot,
        connect: Callable[..., AmqpBroker],
        *,
        threads: int,
        name: str,
        release: str,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._beats = BackgroundThread("beat", self._run)
        self.id = uuid.uuid4().hex
        self.abandoned_total = 0
        self._bot = bot
        self._handlers = bot.handlers if isinstance(bot, PythonBot) else None
        self._name = name
        self._release = release
        self._number = threads
        self._figures = Metrics(OF_WORKER, registry)
        self._figures.set("worker_abandoned_threads", lambda: self.abandoned_total)
        self._began = time.monotonic()
        self._broker = connect(self._arrived, leader=False)
        self._jobs: SimpleQueue[Held | None] = SimpleQueue()
        self._lock = threading.Lock()
        # All below under _lock.
        self._held: dict[str, Held] = {}
        self._threads: list[RunnerThread] = []
        self._lost: list[RunnerThread] = []
        self._made = 0
        self._epoch = 0
        self._is_leaving = False
        self._answered = 0.0
        self._is_refused = ""

    # Starting and stopping.

    def start(self) -> None:
        with self._lock:
            self._threads = [self._make() for _ in range(self._number)]
        for thread in self._threads:
            thread.start()
        if self._handlers is not None:
            self._handlers.start()
        self._broker.start()
        self._beats.start()

    def leave(self, deadline: float) -> bool:
        """Take no more jobs, and finish those under way until the monotonic deadline.

        Returns whether all have ended and the leader has their decisions.
        """
        with self._lock:
            self._is_leaving = True
        self._beat()
        while self._held and time.monotonic() < deadline:
            self._beats.stop_asked.wait(min(0.05, BEAT_SECONDS))
        with self._lock:
            all_ended = not self._held
        self._broker.send(LEADERS, to_line({"type": "leaving", "worker": self.id}))
        for _ in range(self._number):
            self._jobs.put(None)
        self._beats.stop()
        self._beats.join()
        self._broker.stop()
        self._broker.join(2.0)
        if self._handlers is not None:
            self._handlers.close()
        with ThreadPoolExecutor(self._number) as pool:
            for thread in self._threads:
                pool.submit(thread.runner.close)
        return all_ended

    @property
    def is_outdated(self) -> bool:
        """Whether the bot's program differs from the one at the start."""
        return self._bot.is_outdated

    @property
    def has_threads_left(self) -> bool:
        """Whether fewer handlers hang permanently than there are threads."""
        with self._lock:
            self._lost = [one for one in self._lost if one.is_alive()]
            has_threads = len(self._lost) < self._number
        return has_threads and (self._handlers is None or self._handlers.has_places_left)

    def state(self) -> str:
        """The reason for waiting; empty while a leader answers."""
        broker = self._broker.trouble()
        if broker:
            return f"{broker.replace('_', ' ')} {self._broker.why()}".rstrip()
        if self._is_refused:
            return self._is_refused
        heard = time.monotonic() - self._answered < 10 * BEAT_SECONDS
        return "" if self._answered and heard else "waiting for a dispatcher"

    def status(self) -> str:
        """The state as a text for operators."""
        with self._lock:
            at_work = sum(one.decision is None for one in self._held.values())
            words = f"{at_work} of {self._number} threads at work"
        return " · ".join(filter(None, (self.state(), words)))

    def stalled(self) -> str | None:
        """A text that names a hanging thread; None if there is none."""
        return self._beats.stalled() or self._broker.stalled()

    # Messages.

    def _arrived(self, body: bytes) -> None:
        """On the broker's thread; no message may end it."""
        try:
            message = read(body)
            kind = message["type"]
            if kind == "job":
                self._take(message)
            elif kind in ("taken", "abandon"):
                self._abandon(str(message["attempt"]), int(message["epoch"]))
            elif kind == "introduce":
                hello = {"type": "hello", "bot": self._bot.version, "rules": self._bot.rules}
                self._broker.send(LEADERS, to_line(hello))
            elif kind == "welcome":
                self._welcomed(message)
        except NOT_UNDERSTOOD as error:
            log.warning(
                "message not understood, dropped bytes=%d error=%s", len(body), str(error)[:200]
            )

    def _take(self, message: Mapping[str, Any]) -> None:
        job = Job.from_message(message)
        held = Held(job, time.monotonic())
        with self._lock:
            # guard: one-run-an-attempt -> if self._is_leaving or job.epoch < self._epoch:
            if self._is_leaving or job.epoch < self._epoch or job.attempt in self._held:
                return
            self._epoch = job.epoch
            self._held[job.attempt] = held
        awaited = None
        if isinstance(self._bot, PythonBot):
            # Here, since all threads may have plain handlers.
            awaited = self._bot.begin(job, held.received, partial(self._decided, held))
        if awaited is None:
            self._jobs.put(held)
        else:
            self._awaits(held, awaited)

    def _abandon(self, attempt: str, epoch: int) -> None:
        """Forget a job: its decision is taken, or the leader has cancelled it."""
        with self._lock:
            held = self._held.get(attempt)
            if held is None:
                return
            # A replaced leader must not cancel its successor's jobs.
            # guard: a-successors-job-stays -> never
            if epoch < held.job.epoch:
                return
            del self._held[attempt]
            is_replaced = self._replace(held)
        if is_replaced:
            log.warning("handler abandoned, the leader has cancelled it attempt=%s", attempt[:8])

    def _welcomed(self, message: Mapping[str, Any]) -> None:
        epoch, now = int(message["epoch"]), time.monotonic()
        with self._lock:
            # A lower epoch is that of a replaced leader, or of a new database.
            if epoch < self._epoch and now - self._answered < LEADER_SILENT_SECONDS:
                return
            self._epoch, self._answered = epoch, now
            replaced = [id_ for id_, one in self._held.items() if one.job.epoch < epoch]
        # A leader answers only for attempts of its own.
        for id_ in replaced:
            self._abandon(id_, epoch)
        state = str(message.get("state", ""))
        refused = "" if state in (WORKING, STOPPING, SILENT, NEW) else state
        if refused and refused != self._is_refused:
            log.warning("this worker gets no jobs: %s", refused)
        self._is_refused = refused

    # Threads.

    def _make(self) -> RunnerThread:
        self._made += 1
        return RunnerThread(self._made, self._work, self._bot.open())

    def _work(self, me: RunnerThread) -> None:
        while not me.is_abandoned and (held := self._jobs.get()) is not None:
            with self._lock:
                if held.job.attempt not in self._held:
                    continue
                held.thread, held.began = me, time.monotonic()
            decision = me.runner.run(held.job, held.received)
            self._decided(held, decision)

    def _awaits(self, held: Held, awaited: Awaited) -> None:
        with self._lock:
            held.awaited = awaited
            is_cancelled = held.job.attempt not in self._held
        if is_cancelled:
            awaited.handling.abandon()

    def _decided(
        self, held: Held, decision: Mapping[str, Any], *, is_overdue: bool = False
    ) -> bool:
        """Send a job's decision; returns False if it has one, or the leader cancelled it."""
        now = time.monotonic()
        with self._lock:
            if held.job.attempt not in self._held or held.decision is not None:
                return False
            if is_overdue:
                self._replace(held)
            held.decision = written({**decision, "address": self._broker.address})
            held.thread, held.sent = None, now
        self._broker.send(LEADERS, held.decision)
        self._figures.observe("worker_handler_seconds", now - (held.began or held.received))
        self._figures.add("worker_failed_handlers", by=decision["outcome"] != DECIDED)
        return True

    def _replace(self, held: Held) -> bool:
        """Under the lock: replace the thread of a job by a new one; False if it has none."""
        thread, held.thread = held.thread, None
        if held.awaited is not None:
            return held.awaited.handling.abandon()
        if thread is None or thread.is_abandoned:
            return False
        thread.is_abandoned = True
        self.abandoned_total += 1
        thread.runner.abandon()
        fresh = self._make()
        self._threads[self._threads.index(thread)] = fresh
        self._lost.append(thread)
        fresh.start()
        return True

    # Once a second.

    def _run(self) -> None:
        beats = self._beats
        while not beats.stop_asked.is_set():
            beats.activity.busy()
            self._give_up_overdue()
            # guard: repeated-until-taken
            self._repeat()
            self._beat()
            beats.activity.idle()
            beats.stop_asked.wait(BEAT_SECONDS)

    def _give_up_overdue(self) -> None:
        now = time.monotonic()
        with self._lock:
            all_held = list(self._held.values())
        is_blocked = self._handlers is not None and self._handlers.is_blocked()
        for held in all_held:
            if held.awaited is not None and not is_blocked:
                held.awaited.abandon_if_overdue(held.job.limit_seconds, now)
        for held in (one for one in all_held if one.is_overdue(now)):
            thread = held.thread
            stack = thread.stack if thread is not None else ""
            decision = failed(held.job.attempt, did_not_return(stack))
            if self._decided(held, decision, is_overdue=True):
                log.error(
                    "handler did not return, abandoned seconds=%.1f event_id=%s",
                    *(now - (held.began or now), held.job.message.get(EVENT_ID)),
                )

    def _repeat(self) -> None:
        """Send decisions again that no leader has confirmed."""
        if self._broker.trouble():
            return
        now = time.monotonic()
        with self._lock:
            late = [
                one
                for one in self._held.values()
                if one.decision is not None and now - one.sent > REPEAT_SECONDS
            ]
            for held in late:
                held.sent = now
                if now - held.received > FORGET_SECONDS:
                    self._held.pop(held.job.attempt)
        for held in late:
            assert held.decision is not None
            self._broker.send(LEADERS, held.decision)

    def _beat(self) -> None:
        address = self._broker.address
        if not address:
            # No answer could reach it yet.
            return
        with self._lock:
            message = {
                "type": "beat",
                "worker": self.id,
                "name": self._name,
                "address": address,
                "threads": self._number,
                "asyncHandlers": 0 if self._handlers is None else self._handlers.most,
                "contract": CONTRACT,
                "bot": self._bot.version,
                "release": self._release,
                "upSeconds": round(time.monotonic() - self._began, 3),
                "leaving": self._is_leaving,
                "attempts": [id_ for id_, one in self._held.items() if one.decision is None],
                "decided": [id_ for id_, one in self._held.items() if one.decision],
            }
        self._broker.send(LEADERS, to_line(message))
