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
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from jobworker.bot.bot import Bot
from jobworker.errors import WorkerAway
from jobworker.handler_retry import Failure
from jobworker.remote.broker import MOST_BYTES, Broker, MakeBroker
from jobworker.remote.job import (
    CONTRACT,
    LARGE_BYTES,
    NOT_UNDERSTOOD,
    address_of,
    needs_too_much_memory,
    read,
    too_much_memory,
)
from jobworker.remote.rules import bot_of
from jobworker.remote.values import to_line
from linedesk.runtime.status_row import NEW, SILENT, STOPPING, UNACCEPTED, WORKING
from linedesk.runtime.thread import BackgroundThread
from linedesk.store.control import Control
from linedesk.store.errors import QueueError
from linedesk.store.records.events import EVENT_ID

log = logging.getLogger(__name__)

MOST_KEYS = 20_000
MOST_GONE = 1_000
MOST_WORKERS = 1_000
MOST_WORKER_THREADS = 1_000
MOST_CONTRACT = 1_000
# A worker also names decisions that no leader has confirmed.
MOST_NAMED = 10 * MOST_WORKER_THREADS
# How many ended attempts a beat's answers cancel again, since the first time may be lost.
MOST_AGAIN = 20
# As every worker of this release and older ones writes them.
_ATTEMPT, _ADDRESS = re.compile(rb'"attempt":"([0-9a-f]{32})"'), re.compile(rb'"address":"([^"]+)"')


@dataclass(frozen=True)
class LeaderLimits:
    """How long a leader waits for messages of a worker, in seconds."""

    unnamed_seconds: float = 3.0
    """A worker is heard but does not name an attempt: the job or the decision was lost."""
    silent_seconds: float = 10.0
    """A worker is not heard at all."""
    look_seconds: float = 1.0
    grace_seconds: float = 10.0
    """How much longer than its worker the leader waits for an overdue handler."""
    stop_seconds: float = 5.0
    """How long running handlers may continue when the leader stops."""
    alone_from: int = 2
    """After so many deaths of its workers a job gets a worker of its own."""
    most_deaths: int = 5


LIMITS = LeaderLimits()


@dataclass
class WorkerSeen:
    """A worker process, as it describes itself; `id` is new with each start."""

    id: str
    name: str
    address: str
    threads: int
    contract: int
    bot: str
    release: str
    began: float
    """Monotonic time at which it started, by this machine's clock."""
    heard: float
    """Monotonic time of its last message."""
    attempts: set[str] = field(default_factory=set)
    strangers: int = 0
    """Attempts that it names and that are no longer this leader's."""
    is_leaving: bool = False

    @property
    def free(self) -> int:
        """How many jobs it can take."""
        return max(0, self.threads - len(self.attempts) - self.strangers)


class Attempt:
    """One hand-out of a job: it ends with a decision, as lost, or without further effect."""

    def __init__(self, worker: WorkerSeen, event_id: str, key: str, *, alone: bool) -> None:
        began = time.monotonic()
        self.id = secrets.token_hex(16)
        self.worker = worker
        self.event_id = event_id
        self.key = key
        self.began = began
        self.named = math.inf
        """When its worker last named it; the worker cannot name it before it is sent."""
        self.at = datetime.now(UTC)
        self.alone = alone
        self.over = threading.Event()
        self.decision: Mapping[str, Any] | None = None
        self.lost: str | None = None
        """Why it has to be handed out again."""


class Workers:
    """All workers that the leader knows; `places` of `begin` gets the limit of jobs at a time.

    `control` has the versions of the bot that may get jobs; without it all may.
    """

    def __init__(
        self,
        connect: MakeBroker,
        *,
        limits: LeaderLimits = LIMITS,
        control: Control | None = None,
    ) -> None:
        self._control = control
        # None until it has been read; empty until a first version is in force.
        self._accepted: set[str] | None = None
        self._watch = BackgroundThread("workers", self._run)
        self.limits = limits
        self.epoch = 0
        self._places: Callable[[int], None] = lambda jobs: None
        self._broker: Broker = connect(self._arrived, leader=True)
        self._lock = threading.Lock()
        # All below under _lock.
        self._workers: dict[str, WorkerSeen] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._attempts: dict[str, Attempt] = {}
        # The latest that ended, each with the id of its worker.
        self._ended: OrderedDict[str, str] = OrderedDict()
        self._warm: OrderedDict[str, str] = OrderedDict()
        self._bots: dict[str, Bot] = {}
        self._asked: dict[str, float] = {}
        self._refused: dict[str, str] = {}
        self._version = ""
        # Jobs that wait for a worker of their own, and since when one may be idle.
        self._alone: dict[str, float] = {}
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
        self._broker.start()
        self._watch.start()

    def drain(self) -> None:
        """Hand out no more jobs; those under way may continue for a moment."""
        with self._lock:
            if self._stopping_at is None:
                self._stopping_at = time.monotonic() + self.limits.stop_seconds

    def close(self) -> None:
        """End the connection; jobs under way are lost, and the next leader hands them out."""
        with self._lock:
            self._stopping_at = 0.0
            for attempt in list(self._attempts.values()):
                self._end(attempt, lost="the leader stops")
        self._watch.stop()
        self._broker.stop()
        self._watch.join()
        self._broker.join(2.0)

    def _run(self) -> None:
        watch = self._watch
        while not watch.stop_asked.is_set():
            watch.activity.busy()
            self._read_accepted()
            self._look()
            watch.activity.idle()
            watch.stop_asked.wait(self.limits.look_seconds)

    def _read_accepted(self) -> None:
        """Read the accepted versions. The first one ever needs no operator."""
        if self._control is None:
            return
        # MongoDB is away: the versions of before count.
        with suppress(QueueError):
            if self._accepted == set() and self._version:
                self._control.accept_bot(self._version, by="dispatcher")
            # A read right after an election may be older than the one before.
            self._accepted = (self._accepted or set()) | self._control.bots()

    def _is_accepted(self, version: str) -> bool:
        if self._control is None or self._accepted is None:
            return self._control is None
        return not self._accepted or version in self._accepted

    def stalled(self) -> str | None:
        """A text that names a hanging thread; None if there is none."""
        return self._watch.stalled() or self._broker.stalled()

    def status(self) -> str:
        """The state as a text for operators."""
        with self._lock:
            usable = self._usable()
            workers = "1 worker" if len(usable) == 1 else f"{len(usable)} workers"
            words = f"{workers}, {len(self._attempts)} jobs out"
        if not usable:
            return self.none_words()
        return ", ".join(filter(None, (words, self.broker())))

    def none_words(self) -> str:
        """Why no worker gets jobs."""
        words = "no worker can take jobs" if self._workers else "no worker is connected"
        return self.broker() or words

    # Called by a turn.

    def bot(self) -> Bot | None:
        """The rules in force; None until a worker has sent some."""
        return self._bots.get(self._version)

    def others(self) -> list[Bot]:
        """The rules of other versions that workers have."""
        found = list(self._bots.items())
        return [bot for one, bot in found if one != self._version and self._is_accepted(one)]

    def take(
        self,
        *,
        version: str,
        key: str,
        event_id: str,
        died_with: set[str],
    ) -> Attempt:
        """Return a place for a job at a worker; raises WorkerAway if there is none now.

        `died_with` are the workers that lost it; they get it only if there is no other. After two
        of them have vanished it gets a worker of its own, which is kept for it while it asks again.
        """
        with self._lock:
            if self._stopping_at is not None:
                raise WorkerAway("the dispatcher stops")
            if version != self._version:
                raise WorkerAway("its worker has been replaced by one of another version")
            alone = self._deaths(died_with) >= self.limits.alone_from
            worker = self._idle(event_id) if alone else self._best(key, died_with)
            if worker is None:
                if alone:
                    self._tell_places()
                words = "waits for a worker of its own" if alone else "no worker is free"
                raise WorkerAway(words, reserved=alone)
            attempt = Attempt(worker, event_id, key, alone=alone)
            self._attempts[attempt.id] = attempt
            worker.attempts.add(attempt.id)
            if self._alone or alone:
                self._tell_places()
            self._warm[key] = worker.id
            self._warm.move_to_end(key)
            if len(self._warm) > MOST_KEYS:
                self._warm.popitem(last=False)
            return attempt

    def condemned_by(self, died_with: set[str]) -> int:
        """Return how many workers a job took down, once no more get it; 0 while it may run.

        All but the first two of them had no other job.
        """
        with self._lock:
            deaths = self._deaths(died_with)
            return deaths if deaths >= self.limits.most_deaths else 0

    def run(self, attempt: Attempt, message: Mapping[str, Any]) -> Mapping[str, Any] | Failure:
        """Send the job and wait for its decision; a Failure if it cannot be sent. Raises WorkerAway
        if it is lost.

        Also raises WorkerAway if the attempt was ended meanwhile (`end`). An attempt that ends
        before it is sent is not sent, and no worker has lost it.
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
        self._broker.send(attempt.worker.address, body, is_urgent=True)
        attempt.over.wait()
        if attempt.decision is not None:
            return attempt.decision
        raise WorkerAway(attempt.lost or "abandoned", worker=attempt.worker.id)

    def end(self, attempt: Attempt) -> None:
        """Cancel the job's handler if it still runs."""
        with self._lock:
            if self._end(attempt, lost="abandoned"):
                self._abandon(attempt.worker, attempt.id)
                self._tell_places()

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
                    "silentSeconds": round(now - one.heard, 1),
                    "state": self._state_of(one),
                    "jobs": [
                        {
                            EVENT_ID: attempt.event_id,
                            "key": attempt.key,
                            "since": attempt.at,
                        }
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
                "broker_up": not self.broker(),
            }

    def broker(self) -> str:
        """The trouble between this process and the broker; empty if there is none."""
        return self._broker.state().words

    # Messages.

    def _arrived(self, body: bytes) -> None:
        """On the broker's thread; no message may end it."""
        try:
            message = self._read(body)
            kind = message["type"]
            if kind == "beat":
                self._beat(message)
            elif kind == "hello":
                self._hello(message)
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
        with self._lock:
            worker = self._known(message, now)
            if worker is None:
                return
            at_work = _named(message["attempts"])
            named = at_work | _named(message["decided"])
            for id_ in worker.attempts & named:
                self._attempts[id_].named = now
            ended = (one for one in named if self._ended.get(one) == worker.id)
            for id_ in islice(ended, MOST_AGAIN):
                self._abandon(worker, id_)
            worker.strangers = len(at_work - worker.attempts)
            state = self._state_of(worker)
            welcome = {"type": "welcome", "epoch": self.epoch, "state": state}
            self._broker.send(worker.address, to_line(welcome))
            version = worker.bot
            if version not in self._bots and version not in self._refused:
                self._ask(worker, now)
            self._choose_version()
            self._tell_places()

    def _known(self, message: Mapping[str, Any], now: float) -> WorkerSeen | None:
        id_ = str(message["worker"])[:64]
        threads, contract = int(message["threads"]), int(message["contract"])
        if not 0 <= threads <= MOST_WORKER_THREADS:
            raise ValueError(f"threads: 0 to {MOST_WORKER_THREADS}, not {threads}")
        if not 0 <= contract <= MOST_CONTRACT:
            raise ValueError(f"contract: 0 to {MOST_CONTRACT}")
        if id_ not in self._workers and len(self._workers) >= MOST_WORKERS:
            raise ValueError(f"more than {MOST_WORKERS} workers")
        worker = self._workers.get(id_)
        if worker is None:
            began = now - max(0.0, float(message["upSeconds"]))
            worker = WorkerSeen(id_, "", "", 0, 0, "", "", began=began, heard=now)
        worker.name = _text(message["name"], 100)
        worker.address = address_of(message["address"])
        worker.threads = threads
        worker.contract = contract
        worker.bot = _text(message["bot"], 100)
        worker.release = _text(message["release"], 40)
        worker.is_leaving = message.get("leaving") is True
        worker.heard = now
        if id_ not in self._workers:
            self._workers[id_] = worker
            self._gone.pop(id_, None)
            log.info("worker seen name=%s", worker.name)
        return worker

    def _hello(self, message: Mapping[str, Any]) -> None:
        """Accept a worker's rules, which it was asked for."""
        version = _text(message["bot"], 100)
        # guard: rules-as-asked -> never
        if version not in self._asked or version in self._bots:
            return
        try:
            bot = bot_of(message["rules"], version)
        except (ValueError, KeyError, TypeError) as error:
            why = _text(error, 200)
            with self._lock:
                self._refused[version] = why
            log.error("rules of a worker's bot refused bot=%s error=%s", version, why)  # noqa: TRY400
            return
        with self._lock:
            self._bots[version] = bot
            self._refused.pop(version, None)
            self._choose_version()
            self._tell_places()

    def _decided(self, message: Mapping[str, Any]) -> None:
        # It goes into an answer: of a name that no leader gave, only so much.
        id_ = str(message["attempt"])[:64]
        with self._lock:
            attempt = self._attempts.get(id_)
            if attempt is None:
                self.dropped_total += 1
            else:
                attempt.decision = message
                self._end(attempt)
                self._tell_places()
        told = attempt.worker.address if attempt is not None else message["address"]
        taken = {"type": "taken", "attempt": id_, "epoch": self.epoch}
        is_own = attempt is not None or id_ in self._ended
        self._broker.send(address_of(told), to_line(taken), is_urgent=is_own)

    def _leaving(self, message: Mapping[str, Any]) -> None:
        """A worker has ended in order; its remaining jobs are handed out, and it is no suspect."""
        with self._lock:
            worker = self._workers.pop(str(message["worker"]), None)
            if worker is not None:
                self._lose_all(worker, "its worker has ended")
            self._choose_version()
            self._tell_places()

    # Under the lock.

    def _end(self, attempt: Attempt, *, lost: str | None = None) -> bool:
        if self._attempts.pop(attempt.id, None) is None:
            return False
        attempt.worker.attempts.discard(attempt.id)
        self._ended[attempt.id] = attempt.worker.id
        if len(self._ended) > MOST_KEYS:
            self._ended.popitem(last=False)
        attempt.lost = lost
        attempt.over.set()
        return True

    def _abandon(self, worker: WorkerSeen, attempt: str) -> None:
        abandon = {"type": "abandon", "attempt": attempt, "epoch": self.epoch}
        self._broker.send(worker.address, to_line(abandon))

    def _lose_all(self, worker: WorkerSeen, why: str) -> None:
        for id_ in list(worker.attempts):
            self.lost_total += 1
            self._end(self._attempts[id_], lost=why)

    def _ask(self, worker: WorkerSeen, now: float) -> None:
        """Ask a worker for its rules; repeated after a second."""
        if now - self._asked.get(worker.bot, float("-inf")) >= self.limits.look_seconds:
            self._asked[worker.bot] = now
            self._broker.send(worker.address, to_line({"type": "introduce"}))

    def _usable(self) -> list[WorkerSeen]:
        return [one for one in self._workers.values() if self._state_of(one) == WORKING]

    def _state_of(self, worker: WorkerSeen) -> str:
        if worker.contract != CONTRACT:
            return f"speaks contract {worker.contract}, needed is {CONTRACT}"
        if worker.bot in self._refused:
            return f"rules refused: {self._refused[worker.bot]}"
        if worker.is_leaving:
            return STOPPING
        if worker.bot not in self._bots:
            return NEW
        if not self._is_accepted(worker.bot):
            return UNACCEPTED
        if not self._version or worker.bot != self._version:
            return "another version of the bot is in force"
        # guard: nothing-for-the-silent -> never
        if time.monotonic() - worker.heard > self.limits.unnamed_seconds:
            return SILENT
        return WORKING

    def _choose_version(self) -> None:
        """Choose the version with the most threads; of several, the one started last."""
        known = {self._version, *(one.bot for one in self._workers.values())}
        for versions in (self._asked, self._refused, self._bots):
            for gone in versions.keys() - known:
                del versions[gone]
        threads: Counter[str] = Counter()
        latest: dict[str, float] = {}
        for one in self._workers.values():
            is_fit = one.contract == CONTRACT and one.bot in self._bots and not one.is_leaving
            if is_fit and self._is_accepted(one.bot):
                threads[one.bot] += one.threads
                latest[one.bot] = max(latest.get(one.bot, one.began), one.began)
        if not threads:
            return
        version = max(threads, key=lambda one: (threads[one], latest[one]))
        if version != self._version:
            log.info("bot version in force bot=%s before=%s", version, self._version or "-")
            self._version = version

    def _tell_places(self) -> None:
        places = 0
        if self._stopping_at is None:
            usable = self._usable()
            reserved = self._reserved(usable)
            places = sum(_places(one, is_reserved=one.id in reserved) for one in usable)
        if places != self._told_places:
            self._told_places = places
            self._places(places)

    def _best(self, key: str, lost_by: set[str]) -> WorkerSeen | None:
        """Return the worker that had the key last, otherwise the one with most free places."""
        usable = self._usable()
        reserved = self._reserved(usable)
        free = [one for one in usable if one.free and one.id not in reserved]
        # guard: another-worker-than-lost-it
        free = [one for one in free if one.id not in lost_by] or free
        warm = self._warm.get(key)
        found = next((one for one in free if one.id == warm), None)
        return found or max(free, key=lambda one: one.free, default=None)

    def _reserved(self, usable: list[WorkerSeen]) -> set[str]:
        """Workers reserved for jobs that run alone: while one waits, the least busy worker."""
        found = {one.worker.id for one in self._attempts.values() if one.alone}
        # guard: kept-for-the-suspect -> never
        if self._alone and usable:
            found.add(min(usable, key=lambda one: (len(one.attempts), one.id)).id)
        return found

    def _idle(self, event_id: str) -> WorkerSeen | None:
        idle = self._idle_ones()
        if not idle:
            self._alone[event_id] = time.monotonic()
            return None
        self._alone.pop(event_id, None)
        return min(idle, key=lambda one: one.id)

    def _idle_ones(self) -> list[WorkerSeen]:
        return [one for one in self._usable() if one.free and not one.attempts]

    def _deaths(self, died_with: set[str]) -> int:
        return sum(one in self._gone for one in died_with)

    def _look(self) -> None:
        """Give up silent workers and attempts."""
        now = time.monotonic()
        # RabbitMQ reports an alarm only to a connection that sends; without workers there is
        # nothing else to send.
        self._broker.send(self._broker.address, to_line({"type": "alarm?"}))
        up_since = self._broker.state().up_since
        with self._lock:
            for worker in list(self._workers.values()):
                # guard: silent-is-lost -> never
                if now - worker.heard > self.limits.silent_seconds:
                    self._vanished(worker, now, up_since)
            for attempt in list(self._attempts.values()):
                silence = attempt.worker.heard - attempt.named
                # guard: unnamed-is-lost -> never
                if silence > self.limits.unnamed_seconds:
                    self.lost_total += 1
                    self._abandon(attempt.worker, attempt.id)
                    self._end(attempt, lost="its worker does not have it")
            if self._stopping_at is not None and now >= self._stopping_at:
                for attempt in list(self._attempts.values()):
                    self._end(attempt, lost="the dispatcher stops")
            self._choose_version()
            for event_id, since in list(self._alone.items()):
                if not self._idle_ones():
                    self._alone[event_id] = now
                elif now - since > self.limits.unnamed_seconds:
                    # It was paused or released in the meantime.
                    del self._alone[event_id]
            self._tell_places()

    def _vanished(self, worker: WorkerSeen, now: float, up_since: float | None) -> None:
        del self._workers[worker.id]
        log.warning("worker vanished name=%s jobs=%d", worker.name, len(worker.attempts))
        # If this process itself was cut off, silence proves nothing about the worker.
        if up_since is not None and up_since < worker.heard:
            self._gone[worker.id] = None
            if len(self._gone) > MOST_GONE:
                self._gone.popitem(last=False)
        self._lose_all(worker, "its worker has vanished")


def _places(worker: WorkerSeen, *, is_reserved: bool) -> int:
    """Return how many jobs a worker may have; for a reserved one its present jobs, or the
    lone one.
    """
    most = max(0, worker.threads - worker.strangers)
    return min(most, max(1, len(worker.attempts))) if is_reserved else most


def _named(attempts: object) -> set[str]:
    if not isinstance(attempts, list) or len(attempts) > MOST_NAMED:
        raise ValueError(f"attempts: a list of at most {MOST_NAMED}")
    return {str(one) for one in attempts}


def _text(value: object, most: int) -> str:
    """Return one line that `status` can store and show, whatever the value was."""
    return "".join(one if one.isprintable() else "?" for one in str(value)[:most])


def _unsendable(why: str) -> Failure:
    return Failure(f"job cannot be sent: {why}", "-", "", lasting=True)
