"""The feed in memory, and a worker that notes its calls."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from bson.timestamp import Timestamp

from dispatcher.conversations.mailbox import Job, JobResult, Wait
from dispatcher.feed.feed import STEP_SECONDS, FeedItem, PositionLost, RecvqGone
from dispatcher.pool.pool import Pool
from linedesk.store.documents import Document, make_document, name_of
from linedesk.store.records.waits import Why

Decide = Callable[[Job], JobResult | Wait]
WAITS = Wait.because(Why.DEFERRED)


def document(name: str, user: str = "U1") -> Document:
    """A recvq document of one event."""
    event = {"webhookEventId": name, "source": {"type": "user", "userId": user}}
    return make_document(event, channel="main", accept_time=datetime.now(UTC))


class MemoryLog:
    """The source of a MemoryFeed: documents with their times, and how far back its history
    reaches.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._entries: list[tuple[int, Document]] = []
        self._dropped_at: int | None = None
        self._oldest = 0
        self._time = 1

    def insert(self, documents: Sequence[Document]) -> None:
        with self._condition:
            for one in documents:
                self._time += 1
                self._entries.append((self._time, one))
            self._condition.notify_all()

    def drop(self) -> None:
        with self._condition:
            self._time += 1
            self._dropped_at = self._time
            self._condition.notify_all()

    def tick(self) -> None:
        """Let time pass by writes that no feed of recvq delivers."""
        with self._condition:
            self._time += 1
            self._condition.notify_all()

    def forget(self) -> None:
        """As an oplog that has rolled over."""
        with self._condition:
            self._oldest = self._time

    def now(self) -> int:
        with self._condition:
            return self._time

    def reaches(self, after: int) -> bool:
        with self._condition:
            return after >= self._oldest

    def after(self, time: int) -> tuple[Document | None, int]:
        """The next document after a time and its own time, or None and how far there is none."""
        with self._condition:
            for at, found in self._entries:
                if at > time:
                    return found, at
            if self._dropped_at is not None and self._dropped_at > time:
                raise RecvqGone("dropped")
            if self._time == time:
                self._condition.wait(STEP_SECONDS / 5)
            return None, self._time


class MemoryFeed:
    """See `dispatcher.feed.feed.Feed`; its tokens are whole numbers."""

    name = "memory"

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._at: int | None = None

    def open(self, token: Any) -> None:
        if not isinstance(token, int) or not self._log.reaches(token):
            raise PositionLost("no such place")
        self._at = token

    def open_at(self, time: Timestamp) -> None:
        self._at = time.time - 1

    def read(self) -> FeedItem | None:
        assert self._at is not None, "read before open"
        found, at = self._log.after(self._at)
        if found is None:
            # Documents inserted during the scan get a later time.
            return None
        self._at = at
        return FeedItem(found, at, Timestamp(at, 0))

    @property
    def token(self) -> Any:
        return self._at

    def close(self) -> None:
        self._at = None


class RecordingWorker:
    """Notes its decisions; `act` may return another result than DONE."""

    def __init__(self, act: Decide = lambda job: JobResult.DONE) -> None:
        self._act = act
        self._lock = threading.Lock()
        self._log: list[tuple[str, str]] = []
        self._again: dict[str, bool] = {}
        self.epochs: list[int] = []
        self.given_up_on: list[tuple[str, str]] = []
        self.sends_that_wait: list[Document] = []
        self.room = True
        self.asked_for_room = threading.Event()
        self.stopped = threading.Event()
        self.sends_to_give_up: list[tuple[str, str, str]] = []
        self.gives_up_sends = False

    def take_over(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def did_not_return(self, job: Job, stack: str) -> Wait:
        self.given_up_on.append((name_of(job.document), stack))
        return Wait.because(Why.DEFERRED, 0.0)

    def decide(self, job: Job) -> JobResult | Wait:
        verdict = self._act(job)
        if isinstance(verdict, JobResult):
            with self._lock:
                self._log.append((job.document["key"], name_of(job.document)))
                self._again[name_of(job.document)] = job.again
        return verdict

    def has_room(self) -> bool:
        self.asked_for_room.set()
        return self.room

    def status(self) -> str:
        return "nothing waits"

    def waiting(self) -> list[Document]:
        return self.sends_that_wait

    def workers(self) -> list[Document]:
        """There are no worker processes."""
        return []

    def broker(self) -> str | None:
        """Handlers need none."""
        return None

    def give_up_send(self, channel: str, key: str, effect_id: str) -> bool:
        self.sends_to_give_up.append((channel, key, effect_id))
        return self.gives_up_sends

    def finish(self) -> None:
        """Nothing is left behind."""

    def stop(self) -> None:
        self.stopped.set()

    @property
    def decided(self) -> list[str]:
        """Names in the order in which they were decided."""
        with self._lock:
            return [name for _, name in self._log]

    @property
    def by_key(self) -> dict[str, list[str]]:
        found = defaultdict(list)
        with self._lock:
            for key, name in self._log:
                found[key].append(name)
        return found

    @property
    def again(self) -> dict[str, bool]:
        """Of each decided name, whether a predecessor may have decided it."""
        with self._lock:
            return dict(self._again)


class Holder:
    """A `decide` that holds documents of chosen names until they are let go."""

    def __init__(self, *names: str) -> None:
        self._gates = {name: threading.Event() for name in names}
        self._entered = {name: threading.Event() for name in names}

    def __call__(self, job: Job) -> JobResult | Wait:
        name = name_of(job.document)
        if name in self._gates:
            self._entered[name].set()
            assert self._gates[name].wait(30), f"{name} was never let go"
        return JobResult.DONE

    def wait_until_held(self, name: str) -> None:
        assert self._entered[name].wait(15), f"{name} never came"

    def let_go(self, *names: str) -> None:
        for name in names or self._gates:
            self._gates[name].set()


def numbered(count: int, *, keys: int = 1, prefix: str = "e") -> list[Document]:
    """Documents e0, e1, ... dealt out to the keys in turn."""
    return [document(f"{prefix}{n}", user=f"U{n % keys}") for n in range(count)]


def figures_of(pool: Pool, *names: str) -> tuple[Any, ...]:
    """These of a pool's current figures."""
    figures = pool.view.in_hand()
    return tuple(figures[name] for name in names)
