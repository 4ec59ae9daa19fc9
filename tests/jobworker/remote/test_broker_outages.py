"""RabbitMQ that is away, frozen or blocking causes delays and no losses."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from jobworker.bot.talk import Talk
from jobworker.remote import amqp
from jobworker.remote.job import LEADERS
from linedesk import Bot
from tests.chaos.proxy import Mode, Proxy
from tests.jobworker.remote.house import House, states, until_working
from tests.jobworker.remote.wire import Gate, Wire
from tests.rabbitmq import RabbitMQ, free_ports
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


def test_a_server_that_takes_connections_and_says_nothing_ends_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Like a frozen RabbitMQ, or a line that passes nothing."""
    monkeypatch.setattr(amqp, "CONNECT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"amqp://127.0.0.1:{server.getsockname()[1]}/"
        broker = amqp.AmqpBroker([url], lambda body: None, leader=False, name="test")
        broker.start()
        try:
            eventually(lambda: "AMQPConnectorStackTimeout" in broker.why())
            assert not any(link.thread.dead for link in broker._links)
        finally:
            broker.stop()
            assert broker.join()


@pytest.mark.parametrize("place", [0, 1])
def test_the_next_node_is_tried_where_one_is_away(house: House, place: int) -> None:
    (closed,) = free_ports(1)
    urls = [house.node.url]
    urls.insert(place, house.node.url.replace(str(house.node.port), str(closed)))
    broker = amqp.AmqpBroker(urls, lambda body: None, leader=True, name="test")
    broker.start()
    try:
        eventually(lambda: broker.up_since())
        assert broker.trouble() == ""
    finally:
        broker.stop()
        assert broker.join()


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


@pytest.mark.parametrize("mode", ["hang", "refuse"])
def test_a_worker_whose_line_is_cut_during_its_handler(house: House, mode: Mode) -> None:
    """Its decision is of an attempt that was handed out again, so it is dropped."""
    user, gate, port = house.sim.add_user("花子"), house.gate(), free_ports(1)[0]
    line = Proxy([(port, house.node.port)])
    try:
        counting, room = Counting(gate), house.leader()
        url = house.node.url.replace(str(house.node.port), str(port))
        cut_off = house.worker(counting.bot, Wire(house.node, url=url), name="cut off")
        until_working(room, "cut off")
        room.says(user, "wait")
        gate.until_reached()
        line.switch(0, mode)
        house.worker(counting.bot, name="other")
        eventually(lambda: house.texts(user) == ["wait"], seconds=SECONDS)
        gate.open()
        line.switch(0, "open")
        until_working(room, "cut off", "other")
        eventually(lambda: not cut_off._held, seconds=SECONDS)
        room.says(user, "a")
        room.until_quiet()
        assert house.texts(user) == ["wait", "a"]
        assert counting.runs == {"wait": 2, "a": 1}
    finally:
        line.switch(0, "open")
        line.stop()


@pytest.mark.parametrize(
    ("short", "enough"),
    [
        ("set_vm_memory_high_watermark absolute 1", "set_vm_memory_high_watermark 0.6"),
        ("set_disk_free_limit 1000000GB", "set_disk_free_limit 1MB"),
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


def test_urgent_messages_have_room_that_others_do_not_take(
    shared_rabbitmq: RabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amqp, "MOST_WAITING", 20)
    arrived: list[bytes] = []
    leader = amqp.AmqpBroker([shared_rabbitmq.url], arrived.append, leader=True, name="test")
    sender = amqp.AmqpBroker([shared_rabbitmq.url], arrived.append, leader=False, name="test")
    leader.start()
    eventually(lambda: leader.up_since())
    for _ in range(100):
        sender.send(LEADERS, b"ordinary")
    sender.send(LEADERS, b"urgent", is_urgent=True)
    sender.start()
    eventually(lambda: len(arrived) == 21)
    assert arrived[0] == b"urgent"
    for broker in (leader, sender):
        broker.stop()
        assert broker.join(10)


def test_messages_sent_before_a_stop_go_out(shared_rabbitmq: RabbitMQ) -> None:
    arrived: list[bytes] = []
    leader = amqp.AmqpBroker([shared_rabbitmq.url], arrived.append, leader=True, name="test")
    worker = amqp.AmqpBroker([shared_rabbitmq.url], arrived.append, leader=False, name="test")
    sent = [str(number).encode() for number in range(300)]
    for broker in (leader, worker):
        broker.start()
        eventually(lambda broker=broker: broker.up_since())
    for body in sent:
        worker.send(LEADERS, body)
    worker.stop()
    assert worker.join(10)
    eventually(lambda: len(arrived) == len(sent))
    assert arrived == sent
    leader.stop()
    assert leader.join(10)
