"""RabbitMQ that is away, frozen or blocking causes delays and no losses."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from jobworker.bot.talk import Talk
from linedesk import Bot
from tests.jobworker.remote.house import House, states, until_working
from tests.jobworker.remote.wire import Gate
from tests.rabbitmq import RabbitMQ
from tests.waiting import eventually

SECONDS = 60.0


class Counting:
    """A bot that repeats each text; the text "wait" waits for the gate first."""

    def __init__(self, gate: Gate) -> None:
        self.runs: Counter[str] = Counter()
        self.bot = Bot()
        lock = threading.Lock()

        @self.bot.default()
        def handler(event: Any, talk: Talk) -> None:
            text = str(talk.raw["message"]["text"])
            with lock:
                self.runs[text] += 1
            if text == "wait" and self.runs[text] == 1:
                gate.wait()
            talk.reply(text)


class Waiting:
    """Users of whom one waits for a handler's end, and the others come meanwhile."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.users = [house.sim.add_user(str(n)) for n in range(4)]
        self.gate = house.gate()
        self.room = house.leader()
        self.worker = house.worker(Counting(self.gate).bot)
        until_working(self.room, "box/1")
        self.room.says(self.users[0], "wait")
        self.gate.until_reached()

    def say(self) -> None:
        for text in "ab":
            for user in self.users:
                self.room.says(user, text)

    def until_given_up(self) -> None:
        """Until the worker is, and the handler has ended without effect."""
        eventually(lambda: not self.room.desk.workers(), seconds=SECONDS)
        self.gate.open()

    def check(self) -> None:
        """Nothing is lost or doubled, and all is in order."""
        self.room.until_quiet(seconds=SECONDS)
        assert self.house.texts(self.users[0]) == ["wait", "a", "b"]
        for user in self.users[1:]:
            assert self.house.texts(user) == ["a", "b"]
        assert self.room.letters() == []


@pytest.mark.long
@pytest.mark.parametrize("outage", ["frozen", "killed"])
def test_a_frozen_or_missing_rabbitmq_delays_and_loses_nothing(house: House, outage: str) -> None:
    waiting = Waiting(house)
    with out_of_order(house.node, outage):
        waiting.say()
        waiting.until_given_up()
        assert house.texts(waiting.users[1]) == []
    waiting.check()
    eventually(lambda: not waiting.worker._held)


@contextmanager
def out_of_order(node: RabbitMQ, outage: str) -> Iterator[None]:
    begin, end = (node.freeze, node.thaw) if outage == "frozen" else (node.kill, node.start)
    begin()
    try:
        yield
    finally:
        end()


@pytest.mark.parametrize(
    ("short", "enough"),
    [
        ("set_vm_memory_high_watermark absolute 1", "set_vm_memory_high_watermark 0.6"),
        pytest.param(
            *("set_disk_free_limit 1000000GB", "set_disk_free_limit 1MB"), marks=pytest.mark.long
        ),
    ],
)
def test_while_rabbitmq_is_short_of_memory_or_disk_everything_waits_and_says_so(
    house: House, short: str, enough: str
) -> None:
    waiting = Waiting(house)
    room, worker = waiting.room, waiting.worker
    house.node.control(*short.split())
    try:
        waiting.until_given_up()
        waiting.say()
        eventually(lambda: "broker blocked" in worker.state())
        eventually(lambda: "broker blocked" in room.desk.status())
        eventually(lambda: room.desk.broker() == "broker_blocked")
        assert "no worker is connected" not in room.desk.status()
        assert worker.stalled() is None
        assert house.texts(waiting.users[1]) == []
    finally:
        house.node.control(*enough.split())
    waiting.check()
    assert states(room) == {"box/1": "working"}
