"""The leader's side: the workers, the attempts under way, and their results.

A pool thread takes a place at a worker, sends the job and sleeps until its decision arrives. The
leader never has a job in two places: it has one attempt, named by 128 random bits, and decisions of
any other attempt are dropped. Each second a worker names its attempts. An attempt that is not named
for a while is handed out again, and so are all attempts of a silent worker.
"""

from __future__ import annotations

import logging
import math
import re
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from jobworker.errors import WorkerAway
from jobworker.handler_retry import Failure
from jobworker.latest import Latest
from jobworker.remote.job import (
    CONTRACT,
    LARGE_BYTES,
    MOST_BYTES,
    NOT_UNDERSTOOD,
    address_of,
    needs_too_much_memory,
    read,
    too_much_memory,
)
from jobworker.remote.seen import MOST_WORKER_ASYNC, MOST_WORKER_THREADS, BotVersions, WorkerSeen
from jobworker.remote.values import to_line
from linedesk.runtime.metrics import COUNTER, GAUGE, Figure
from linedesk.runtime.status_row import (
    NEW,
    OTHER_CONTRACT,
    OTHER_VERSION,
    RULES_REFUSED,
    SILENT,
    STOPPING,
    UNACCEPTED,
    WORKING,
)
from linedesk.runtime.thread import BackgroundThread
from linedesk.store.control import Control
from linedesk.store.records.events import EVENT_ID

if TYPE_CHECKING:
    from jobworker.remote.amqp import AmqpBroker

log = logging.getLogger(__name__)

MOST_KEYS = 20_000
MOST_GONE = 1_000
MOST_WORKERS = 1_000
# A worker also names decisions that no leader has confirmed.
MOST_NAMED = 10 * MOST_WORKER_THREADS + MOST_WORKER_ASYNC
# A worker is heard but does not name an attempt: the job or the decision was lost.
UNNAMED_SECONDS = 3.0
# A worker is not heard at all.
SILENT_SECONDS = 10.0
LOOK_SECONDS = 1.0
# How much longer than its worker the leader waits for an overdue handler.
GRACE_SECONDS = 10.0
# After so many deaths of its workers a job gets a worker of its own; later it is given up.
ALONE_FROM, MOST_DEATHS = 2, 5
# How many ended attempts a beat's answers cancel again, since the first time may be lost.
MOST_AGAIN = 20
# As every worker of this release and older ones writes them.
_ATTEMPT, _ADDRESS = re.compile(rb'"attempt":"([0-9a-f]{32})"'), re.compile(rb'"address":"([^"]+)"')

OF_LEADER = (
    Figure("workers", GAUGE, "Worker processes that get jobs."),
    Figure(
        "workers_without_jobs",
        GAUGE,
        "Worker processes that get no jobs: they stop, or have another version or contract.",
    ),
    Figure("worker_threads", GAUGE, "Threads of the workers that get jobs."),
    Figure("worker_jobs_out", GAUGE, "Jobs that workers have."),
    Figure(
        "worker_jobs_lost", COUNTER, "Jobs handed out again, since they or their worker were lost."
    ),
    Figure(
        "worker_decisions_dropped",
        COUNTER,
        "Decisions of attempts that no longer count, and messages that were not understood.",
    ),
    Figure("broker_up", GAUGE, "1 while RabbitMQ is connected and takes messages."),
)


@dataclass(eq=False)
class Attempt:
    """One hand-out of a job: it ends with a decision, as lost, or without further effect."""

    worker: WorkerSeen
    event_id: str
    key: str
    alone: bool
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    named: float = math.inf
    """When its worker last named it; the worker cannot name it before it is sent."""
    over: threading.Event = field(default_factory=threading.Event)
    ended: Callable[[], None] = field(default=lambda: None)
    """Called once it has ended, under the lock of all attempts."""
    decision: Mapping[str, Any] | None = None
    lost: str | None = None
    """Why it has to be handed out again."""

    def result(self) -> Mapping[str, Any]:
        """Wait until it is over, and return its decision. Raises WorkerAway if it is lost."""
        self.over.wait()
        if self.decision is not None:
            return self.decision
        raise WorkerAway(self.lost or "abandoned", worker=self.worker.id)


class Workers:
    """All workers that the leader knows; `places` of `begin` gets the limit of jobs at a time.

    `control` has the versions of the bot that may get jobs; without it all may. At a stop running
    handlers may continue for `stop_seconds`.
    """

    def __init__(
        self,
        connect: Callable[..., AmqpBroker],
        *,
        stop_seconds: float = 5.0,
        control: Control | None = None,
    ) -> None:
        self._watch = BackgroundThread("workers", self._run)
        self._stop_seconds = stop_seconds
        self.epoch = 0
        self._places: Callable[[int], None] = lambda jobs: None
        self.broker = connect(self._arrived, leader=True)
        self._lock = threading.Lock()
        # All below under _lock.
        self._workers: dict[str, WorkerSeen] = {}
        self._gone = Latest[str, None](MOST_GONE)
        self._attempts: dict[str, Attempt] = {}
        # The latest that ended, each with the id of its worker.
        self._ended = Latest[str, str](MOST_KEYS)
        self._warm = Latest[str, str](MOST_KEYS)
        self.versions = BotVersions(control)
        # When a job last asked in vain for a worker of its own.
        self._alone_asked = -math.inf
        self._told_places = -1
        self._stopping_at: float | None = None
        self.lost_total = 0
        self.dropped_total = 0

    # Starting and stopping.

    def begin(self, epoch: int, places: Callable[[int], None]) -> None:
        """Listen for workers; no job is handed out before one is there."""
        self.epoch, self._places = epoch, places
        places(0)
        self._told_places = 0
        self.broker.start()
        self._watch.start()

    def drain(self) -> None:
        """Hand out no more jobs; those under way may continue for a moment."""
        with self._lock:
            if self._stopping_at is None:
                self._stopping_at = time.monotonic() + self._stop_seconds

    def close(self) -> None:
        """End the connection; jobs under way are lost, and the next leader hands them out."""
        with self._lock:
            self._stopping_at = 0.0
            for attempt in list(self._attempts.values()):
                self._end(attempt, lost="dispatcher_stops")
        self._watch.stop()
        self.broker.stop()
        self._watch.join()
        self.broker.join(2.0)

    def _run(self) -> None:
        watch = self._watch
        while not watch.stop_asked.is_set():
            watch.activity.busy()
            self.versions.read_accepted()
            self._look()
            watch.activity.idle()
            watch.stop_asked.wait(LOOK_SECONDS)

    def stalled(self) -> str | None:
        """A text that names a hanging thread; None if there is none."""
        return self._watch.stalled() or self.broker.stalled()

    def status(self) -> str:
        """The state as a text for operators."""
        trouble = self.broker.trouble()
        with self._lock:
            number, jobs, known = len(self._usable()), len(self._attempts), len(self._workers)
        if not number:
            why = "no_worker_usable" if known else "no_worker_connected"
            return (trouble or why).replace("_", " ")
        workers = "1 worker" if number == 1 else f"{number} workers"
        words = f"{workers}, {jobs} jobs out"
        return f"{words}, {trouble.replace('_', ' ')}" if trouble else words

    # Called by a turn.

    def take(
        self,
        *,
        version: str,
        key: str,
        event_id: str,
        died_with: Collection[str],
        is_async: bool = False,
    ) -> Attempt:
        """Return a place for a job at a worker; raises WorkerAway if there is none now.

        `died_with` are the workers that lost it; they get it only if there is no other. After two
        of them have vanished it gets a worker of its own, which is kept for it while it asks again.
        """
        with self._lock:
            if self._stopping_at is not None:
                raise WorkerAway("dispatcher_stops")
            if version != self.versions.in_force:
                raise WorkerAway("worker_replaced")
            alone = self.deaths(died_with) >= ALONE_FROM
            worker = self._best(key, died_with, alone=alone, is_async=is_async)
            if worker is not None:
                attempt = Attempt(worker, event_id, key, alone)
                self._attempts[attempt.id] = attempt
                worker.attempts.add(attempt.id)
                if is_async:
                    worker.awaited.add(attempt.id)
            if alone:
                # Another one that waits asks again soon.
                self._alone_asked = time.monotonic() if worker is None else -math.inf
                self._tell_places()
            if worker is None:
                why = "needs_own_worker" if alone else "no_worker_free"
                raise WorkerAway(why, reserved=alone)
            self._warm[key] = worker.id
            return attempt

    def deaths(self, died_with: Collection[str]) -> int:
        """Return how many of these workers have vanished, and not only lost the job.

        After two of them it has a worker of its own, and after MOST_DEATHS it is given up.
        """
        return sum(one in self._gone for one in died_with)

    def send(self, attempt: Attempt, message: Mapping[str, Any]) -> Failure | None:
        """Send the job; a Failure if it cannot be sent. Raises WorkerAway if the attempt was ended
        meanwhile (`end`): it is not sent, and no worker has lost it.
        """
        try:
            body = to_line(message)
        except (ValueError, TypeError) as error:
            return _unsendable(type(error).__name__)
        if len(body) > 4 * MOST_BYTES:
            return _unsendable(f"{len(body)} bytes")
        if attempt.over.is_set():
            raise WorkerAway(attempt.lost or "abandoned")
        attempt.named = time.monotonic()
        self.broker.send(attempt.worker.address, body, is_urgent=True)
        return None

    def end(self, attempt: Attempt) -> None:
        """Cancel the job's handler if it still runs."""
        with self._changing():
            if self._end(attempt, lost="abandoned"):
                self._abandon(attempt.worker, attempt.id)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each worker, for operators."""
        now = time.monotonic()
        with self._lock:
            return [
                {
                    "name": one.name,
                    "threads": one.threads,
                    "out": len(one.attempts),
                    "bot": one.bot,
                    "release": one.release,
                    "contract": one.contract,
                    "needed": CONTRACT,
                    "refused": self.versions[one.bot].refused,
                    "silentSeconds": round(now - one.heard, 1),
                    "state": self._state_of(one),
                    "jobs": [
                        {EVENT_ID: attempt.event_id, "key": attempt.key, "since": attempt.at}
                        for id_ in one.attempts
                        if (attempt := self._attempts.get(id_)) is not None
                    ],
                }
                for one in sorted(self._workers.values(), key=lambda one: one.name)
            ]

    def figures(self) -> dict[str, float]:
        """Numbers for metrics; none before it leads."""
        if not self.epoch:
            return {}
        with self._lock:
            usable = self._usable()
            return {
                "workers": len(usable),
                "workers_without_jobs": len(self._workers) - len(usable),
                "worker_threads": sum(one.threads for one in usable),
                "worker_jobs_out": len(self._attempts),
                "worker_jobs_lost": self.lost_total,
                "worker_decisions_dropped": self.dropped_total,
                "broker_up": not self.broker.trouble(),
            }

    # Messages.

    def _arrived(self, body: bytes) -> None:
        """On the broker's thread; no message may end it."""
        try:
            message = self._read(body)
            kind = message["type"]
            if kind == "beat":
                self._beat(message)
            elif kind == "hello":
                if (version := self.versions.read(message)) is not None:
                    with self._changing():
                        self.versions.keep(*version)
            elif kind == "decision":
                self._decided(message)
            elif kind == "leaving":
                self._leaving(message)
        except NOT_UNDERSTOOD as error:
            self.dropped_total += 1
            log.warning(
                "message not understood, dropped bytes=%d error=%s", len(body), str(error)[:200]
            )

    def _read(self, body: bytes) -> dict[str, Any]:
        """Return the message; a large one is read only as the decision of an attempt under way."""
        if len(body) <= LARGE_BYTES:
            return read(body)
        if len(body) > MOST_BYTES or (first := _ATTEMPT.search(body)) is None:
            raise ValueError("large, and no decision")
        named = (one[1].decode() for one in _ATTEMPT.finditer(body))
        awaited = next((one for one in named if one in self._attempts), None)
        if awaited is None:
            found = _ADDRESS.search(body, len(body) - 300)
            address = found[1].decode() if found is not None else ""
            return {"type": "decision", "attempt": first[1].decode(), "address": address}
        return too_much_memory(awaited) if needs_too_much_memory(body) else read(body)

    def _beat(self, message: Mapping[str, Any]) -> None:
        now = time.monotonic()
        with self._changing():
            worker = self._seen(WorkerSeen.from_beat(message, now))
            named = _named(message["attempts"]) | _named(message["decided"])
            for id_ in worker.attempts & named:
                self._attempts[id_].named = now
            ended = (one for one in named if self._ended.get(one) == worker.id)
            for id_ in islice(ended, MOST_AGAIN):
                self._abandon(worker, id_)
            state = self._state_of(worker)
            welcome = {"type": "welcome", "epoch": self.epoch, "state": state}
            self.broker.send(worker.address, to_line(welcome))
            if self.versions.has_to_ask(worker.bot, now):
                self.broker.send(worker.address, to_line({"type": "introduce"}))

    def _seen(self, told: WorkerSeen) -> WorkerSeen:
        """Under the lock: return the worker that has described itself."""
        worker = self._workers.get(told.id)
        if worker is not None:
            worker.beat(told)
            return worker
        if len(self._workers) >= MOST_WORKERS:
            raise ValueError(f"more than {MOST_WORKERS} workers")
        self._workers[told.id] = told
        self._gone.pop(told.id, None)
        log.info("worker seen name=%s", told.name)
        return told

    def _decided(self, message: Mapping[str, Any]) -> None:
        # It goes into an answer: of a name that no leader gave, only so much.
        id_ = str(message["attempt"])[:64]
        with self._changing():
            attempt = self._attempts.get(id_)
            if attempt is None:
                self.dropped_total += 1
            else:
                attempt.decision = message
                self._end(attempt)
        told = attempt.worker.address if attempt is not None else message["address"]
        taken = {"type": "taken", "attempt": id_, "epoch": self.epoch}
        is_own = attempt is not None or id_ in self._ended
        self.broker.send(address_of(told), to_line(taken), is_urgent=is_own)

    def _leaving(self, message: Mapping[str, Any]) -> None:
        """A worker has ended in order; its remaining jobs are handed out, and it is no suspect."""
        with self._changing():
            worker = self._workers.pop(str(message["worker"]), None)
            if worker is not None:
                self._lose_all(worker, "worker_ended")

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock; then choose the version in force, and tell how many jobs may run now."""
        with self._lock:
            yield
            self.versions.choose(self._workers.values())
            self._tell_places()

    # Under the lock.

    def _end(self, attempt: Attempt, *, lost: str | None = None) -> bool:
        if self._attempts.pop(attempt.id, None) is None:
            return False
        attempt.worker.attempts.discard(attempt.id)
        attempt.worker.awaited.discard(attempt.id)
        self._ended[attempt.id] = attempt.worker.id
        attempt.lost = lost
        attempt.over.set()
        attempt.ended()
        return True

    def _abandon(self, worker: WorkerSeen, attempt: str) -> None:
        abandon = {"type": "abandon", "attempt": attempt, "epoch": self.epoch}
        self.broker.send(worker.address, to_line(abandon))

    def _lose_all(self, worker: WorkerSeen, why: str) -> None:
        for id_ in list(worker.attempts):
            self.lost_total += 1
            self._end(self._attempts[id_], lost=why)

    def _usable(self) -> list[WorkerSeen]:
        return [one for one in self._workers.values() if self._state_of(one) == WORKING]

    def _state_of(self, worker: WorkerSeen) -> str:
        if worker.contract != CONTRACT:
            return OTHER_CONTRACT
        version = self.versions[worker.bot]
        if version.refused:
            return RULES_REFUSED
        if worker.is_leaving:
            return STOPPING
        if version.bot is None:
            return NEW
        if not self.versions.is_accepted(worker.bot):
            return UNACCEPTED
        if worker.bot != self.versions.in_force:
            return OTHER_VERSION
        # guard: nothing-for-the-silent -> never
        if time.monotonic() - worker.heard > UNNAMED_SECONDS:
            return SILENT
        return WORKING

    def _tell_places(self) -> None:
        places = 0
        if self._stopping_at is None:
            usable = self._usable()
            reserved = self._reserved(usable)
            # A reserved one may have its present jobs, or the lone one.
            # Jobs of async handlers take a thread of the leader's for a moment.
            places = sum(one.most_async for one in usable) + sum(
                min(one.threads, max(1, one.threads - one.free()))
                if one.id in reserved
                else one.threads
                for one in usable
            )
        if places != self._told_places:
            self._told_places = places
            self._places(places)

    def _best(
        self, key: str, lost_by: Collection[str], *, alone: bool, is_async: bool
    ) -> WorkerSeen | None:
        """Return the worker that had the key last, otherwise the one with most free places.

        For a job that runs `alone` an idle one.
        """
        usable = self._usable()
        if alone:
            idle = (one for one in usable if one.free(is_async=is_async) and not one.attempts)
            return min(idle, key=lambda one: one.id, default=None)
        reserved = self._reserved(usable)
        free = [one for one in usable if one.free(is_async=is_async) and one.id not in reserved]
        # guard: another-worker-than-lost-it
        free = [one for one in free if one.id not in lost_by] or free
        warm = self._warm.get(key)
        found = next((one for one in free if one.id == warm), None)
        return found or max(free, key=lambda one: one.free(is_async=is_async), default=None)

    def _reserved(self, usable: list[WorkerSeen]) -> set[str]:
        """Workers reserved for jobs that run alone: while one asks, the least busy worker."""
        found = {one.worker.id for one in self._attempts.values() if one.alone}
        waits = time.monotonic() - self._alone_asked < UNNAMED_SECONDS
        # guard: kept-for-the-suspect -> never
        if waits and usable:
            found.add(min(usable, key=lambda one: (len(one.attempts), one.id)).id)
        return found

    def _look(self) -> None:
        """Give up silent workers and attempts."""
        now = time.monotonic()
        # RabbitMQ reports an alarm only to a connection that sends; without workers there is
        # nothing else to send.
        self.broker.send(self.broker.address, to_line({"type": "alarm?"}))
        up_since = self.broker.up_since()
        with self._changing():
            for worker in list(self._workers.values()):
                # guard: silent-is-lost -> never
                if now - worker.heard > SILENT_SECONDS:
                    self._vanished(worker, now, up_since)
            for attempt in list(self._attempts.values()):
                silence = attempt.worker.heard - attempt.named
                # guard: unnamed-is-lost -> never
                if silence > UNNAMED_SECONDS:
                    self.lost_total += 1
                    self._abandon(attempt.worker, attempt.id)
                    self._end(attempt, lost="worker_lost_it")
            if self._stopping_at is not None and now >= self._stopping_at:
                for attempt in list(self._attempts.values()):
                    self._end(attempt, lost="dispatcher_stops")

    def _vanished(self, worker: WorkerSeen, now: float, up_since: float | None) -> None:
        del self._workers[worker.id]
        log.warning("worker vanished name=%s jobs=%d", worker.name, len(worker.attempts))
        # If this process itself was cut off, silence proves nothing about the worker.
        if up_since is not None and up_since < worker.heard:
            self._gone[worker.id] = None
        self._lose_all(worker, "worker_vanished")


def _named(attempts: object) -> set[str]:
    if not isinstance(attempts, list) or len(attempts) > MOST_NAMED:
        raise ValueError(f"attempts: a list of at most {MOST_NAMED}")
    return {str(one) for one in attempts}


def _unsendable(why: str) -> Failure:
    log.error("job cannot be sent: %s", why)
    return Failure("job_not_sendable", "-", "", lasting=True)
