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


@pytest.mark.long
@pytest.mark.parametrize("outage", ["frozen", "killed"])
def test_a_frozen_or_missing_rabbitmq_delays_and_loses_nothing(house: House, outage: str) -> None:
    users = [house.sim.add_user(str(n)) for n in range(4)]
    gate = house.gate()
    counting, room = Counting(gate), house.leader()
    worker = house.worker(counting.bot)
    until_working(room, "box/1")
    room.says(users[0], "wait")
    gate.until_reached()
    with out_of_order(house.node, outage):
        for text in "ab":
            for user in users:
                room.says(user, text)
        # Until the worker is given up, and the handler has ended without effect.
        eventually(lambda: not room.desk.workers(), seconds=SECONDS)
        gate.open()
        assert house.texts(users[1]) == []
    room.until_quiet(seconds=SECONDS)
    assert house.texts(users[0]) == ["wait", "a", "b"]
    for user in users[1:]:
        assert house.texts(user) == ["a", "b"]
    assert room.letters() == []
    eventually(lambda: not worker._held)


@contextmanager
def out_of_order(node: RabbitMQ, outage: str) -> Iterator[None]:
    if outage == "frozen":
        node.freeze()
        try:
            yield
        finally:
            node.thaw()
    else:
        node.kill()
        try:
            yield
        finally:
            node.start()


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
    users = [house.sim.add_user(str(n)) for n in range(3)]
    gate = house.gate()
    counting, room = Counting(gate), house.leader()
    worker = house.worker(counting.bot)
    until_working(room, "box/1")
    room.says(users[0], "wait")
    gate.until_reached()
    house.node.control(*short.split())
    try:
        eventually(lambda: not room.desk.workers(), seconds=SECONDS)
        gate.open()
        for text in "ab":
            for user in users:
                room.says(user, text)
        eventually(lambda: "broker blocked" in worker.state())
        eventually(lambda: "broker blocked" in room.desk.status())
        eventually(lambda: room.desk.broker() == "broker_blocked")
        assert "no worker is connected" not in room.desk.status()
        assert worker.stalled() is None
        assert house.texts(users[1]) == []
    finally:
        house.node.control(*enough.split())
    room.until_quiet(seconds=SECONDS)
    assert house.texts(users[0]) == ["wait", "a", "b"]
    for user in users[1:]:
        assert house.texts(user) == ["a", "b"]
    assert states(room) == {"box/1": "working"}
    assert room.letters() == []
