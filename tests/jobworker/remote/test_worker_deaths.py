"""An event that kills each worker process that gets it."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from linedesk.operate.dead_letters import explained
from linedesk.setup import children
from tests.fork_server import ROOT, Child, nursery
from tests.jobworker.remote.house import SHORT, House, states
from tests.waiting import eventually

# A real worker beats once a second.
LIMITS = SHORT | {
    "jobworker.remote.leader.UNNAMED_SECONDS": 2.5,
    "jobworker.remote.leader.SILENT_SECONDS": 3.0,
    "jobworker.remote.runner.GRACE_SECONDS": 1.0,
}


class Workers:
    """Two processes of `linedesk worker`; each that dies is started again, as systemd does."""

    def __init__(self, url: str, log: Path) -> None:
        self.deaths: list[int] = []
        self._log = log
        self._environ = {
            **os.environ,
            "AMQP_URL": url,
            "BOT": "tests.jobworker.remote.mortal_bot:bot",
            "WORKER_THREADS": "4",
            "PYTHONPATH": str(ROOT),
        }
        self._children = [self._started() for _ in range(2)]
        self._stop = threading.Event()
        self._keeper = threading.Thread(target=self._look, name="keeper")
        self._keeper.start()

    def _started(self) -> Child:
        with self._log.open("ab") as log:
            return nursery.start(
                *("linedesk", "worker"), env=self._environ, stdout=log.fileno(), stderr=log.fileno()
            )

    def _look(self) -> None:
        while not self._stop.wait(0.05):
            for place, child in enumerate(self._children):
                if (code := child.poll()) is not None:
                    self.deaths.append(code)
                    self._children[place] = self._started()

    def stop(self) -> None:
        self._stop.set()
        self._keeper.join(10)
        for child in self._children:
            children.stop(child, timeout_seconds=15)


@pytest.fixture
def workers(house: House, tmp_path: Path) -> Iterator[Workers]:
    found = Workers(house.node.url, tmp_path / "log")
    yield found
    found.stop()


@pytest.mark.timeout(120)
def test_an_event_that_kills_each_worker_is_a_dead_letter_and_its_neighbours_are_answered(
    house: House, workers: Workers
) -> None:
    poisoned, *others = (house.sim.add_user(str(n)) for n in range(6))
    room = house.leader(limits=LIMITS, threads=10)
    eventually(lambda: [*states(room).values()].count("working") == 2, seconds=30)
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
