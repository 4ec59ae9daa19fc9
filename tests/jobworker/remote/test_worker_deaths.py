"""Worker processes that are killed, and events that kill each process that gets them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from linedesk.operate.dead_letters import explained
from linedesk.setup import children
from tests.fork_server import ROOT, Child, nursery
from tests.jobworker.remote.house import SHORT, House, states
from tests.jobworker.worker_harness import Room
from tests.waiting import eventually

# A real worker beats once a second.
LIMITS = SHORT | {
    "jobworker.remote.leader.UNNAMED_SECONDS": 2.5,
    "jobworker.remote.leader.SILENT_SECONDS": 3.0,
    "jobworker.remote.runner.GRACE_SECONDS": 1.0,
}


class Workers:
    """Processes of `linedesk worker`; `keep` has each that dies started again, as systemd does."""

    def __init__(self, url: str, folder: Path) -> None:
        self.folder = folder
        self.deaths: list[int] = []
        self._environ = {
            **os.environ,
            "AMQP_URL": url,
            "BOT": "tests.jobworker.remote.mortal_bot:bot",
            "WORKER_THREADS": "4",
            "MORTAL_BOT": str(folder),
            "PYTHONPATH": str(ROOT),
        }
        self._children: list[Child] = []
        self._stop = threading.Event()
        self._keeper: threading.Thread | None = None

    def start(self) -> Child:
        number = len(self._children) + len(self.deaths)
        with (self.folder / f"worker-{number}.log").open("wb") as log:
            child = nursery.start(
                *("linedesk", "worker"), env=self._environ, stdout=log.fileno(), stderr=log.fileno()
            )
        self._children.append(child)
        return child

    def keep(self, number: int) -> None:
        for _ in range(number):
            self.start()
        self._keeper = threading.Thread(target=self._look, name="keeper")
        self._keeper.start()

    def _look(self) -> None:
        while not self._stop.wait(0.05):
            for child in list(self._children):
                if (code := child.poll()) is not None:
                    self._children.remove(child)
                    self.deaths.append(code)
                    self.start()

    def stop(self) -> None:
        self._stop.set()
        if self._keeper is not None:
            self._keeper.join(10)
        (self.folder / "go").touch()
        for child in self._children:
            child.send_signal(signal.SIGCONT)
            children.stop(child, timeout_seconds=15)

    def runs(self, text: str) -> list[int]:
        """The process of each run of the handler with this text."""
        with suppress(FileNotFoundError):
            rows = (self.folder / "runs").read_text().splitlines()
            return [int(pid) for pid, said in map(str.split, rows) if said == text]
        return []


@pytest.fixture
def workers(house: House, tmp_path: Path) -> Iterator[Workers]:
    with ExitStack() as stack:
        found = Workers(house.node.url, tmp_path)
        stack.callback(found.stop)
        yield found


def until_there(room: Room, number: int) -> None:
    eventually(lambda: [*states(room).values()].count("working") == number, seconds=30)


FROZEN = pytest.param(signal.SIGSTOP, marks=pytest.mark.long)


@pytest.mark.parametrize("end", [signal.SIGKILL, FROZEN])
def test_a_worker_that_is_killed_or_frozen_during_its_handler(
    house: House, workers: Workers, end: signal.Signals
) -> None:
    user, other = (house.sim.add_user(name) for name in "甲乙")
    room = house.leader(limits=LIMITS)
    first = workers.start()
    until_there(room, 1)
    room.says(user, "wait")
    eventually(lambda: workers.runs("wait"))
    first.send_signal(end)
    (workers.folder / "go").touch()
    workers.start()
    room.says(other, "a")
    room.says(user, "b")
    room.until_quiet(seconds=30)
    assert house.texts(user) == ["wait", "b"]
    assert house.texts(other) == ["a"]
    assert len(workers.runs("wait")) == 2
    # One that wakes repeats its decision, which has no effect.
    first.send_signal(signal.SIGCONT)
    until_there(room, 2 if end is signal.SIGSTOP else 1)
    room.says(user, "c")
    room.until_quiet(seconds=30)
    assert house.texts(user) == ["wait", "b", "c"]


@pytest.mark.timeout(120)
def test_an_event_that_kills_each_worker_is_a_dead_letter_and_its_neighbours_are_answered(
    house: House, workers: Workers
) -> None:
    poisoned, *others = (house.sim.add_user(str(n)) for n in range(6))
    room = house.leader(limits=LIMITS, threads=10)
    workers.keep(2)
    until_there(room, 2)
    document = room.says(poisoned, "die")
    room.says(poisoned, "after")
    for text in "ab":
        for user in others:
            room.says(user, text)
    eventually(room.letters, seconds=90)
    room.until_quiet(seconds=30)
    (letter,) = room.letters()
    assert letter["_id"] == document["eventId"]
    assert explained(letter) == "handler: took its worker down again and again"
    assert workers.deaths == [9] * 5
    for user in others:
        assert house.texts(user) == ["a", "b"]
    assert house.texts(poisoned) == ["申し訳ありません。", "after"]
