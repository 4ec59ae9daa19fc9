"""A worker that notes its calls."""

import threading
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from dispatcher.conversations.mailbox import Job, JobResult, Wait
from dispatcher.pool.pool import Pool
from linedesk.store.documents import Document, make_document, name_of
from linedesk.store.records.waits import Why

Decide = Callable[[Job], JobResult | Wait]
WAITS = Wait.because(Why.DEFERRED)


def document(name: str, user: str = "U1") -> Document:
    """A recvq document of one event."""
    event = {"webhookEventId": name, "source": {"type": "user", "userId": user}}
    return make_document(event, channel="main", accept_time=datetime.now(UTC))


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
        # The dispatcher asks it for the bot's `start_timers`.
        self.timer_orders = SimpleNamespace(starts=tuple)

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

    def watch_async(self, limit_seconds: float) -> bool:
        return True

    def await_handlers(self, deadline: float, is_at_work: Any) -> list[str]:
        return []

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
