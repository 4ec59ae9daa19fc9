"""Slow, half-sent and far too many requests at a real front desk process."""

from __future__ import annotations

import asyncio
import itertools
import logging
import select
import socket
import threading
import time
from contextlib import AsyncExitStack, ExitStack, suppress
from functools import partial
from typing import Any

import pytest

from frontdesk.http import LATE, MOST_IN_LINE
from frontdesk.metrics import REASONS
from tests.frontdesk.desk import DeskProcess, read_answer
from tests.frontdesk.inprocess import Line, Running, in_loop, quick, request, running
from tests.waiting import eventually

__all__ = ["quick"]
pytestmark = pytest.mark.usefixtures("quick")


def lines_to(desk: DeskProcess, stack: ExitStack, count: int, first: bytes) -> list[socket.socket]:
    """This many connections that have sent these bytes only."""
    lines = [stack.enter_context(desk.raw()) for _ in range(count)]
    for line in lines:
        line.sendall(first)
    return lines


UNSIGNED = b"POST /callback HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
HALF_BODY = b"POST /callback HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf"


class Stalled(threading.Thread):
    """Connections with half a body each; one that ends is renewed at once. A context manager."""

    def __init__(self, port: int, count: int) -> None:
        super().__init__(name="stalled")
        self._port, self._count = port, count
        self._done = threading.Event()
        self.renewed = 0

    def __enter__(self) -> Stalled:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join()

    def run(self) -> None:
        poll, lines = select.epoll(), dict[int, socket.socket]()
        with ExitStack() as stack:
            for _ in range(self._count):
                self._add(poll, lines)
            while not self._done.is_set():
                for number, _ in poll.poll(0.05):
                    lines.pop(number).close()
                    self.renewed += 1
                    self._add(poll, lines)
            poll.close()
            for line in lines.values():
                stack.enter_context(line)

    def _add(self, poll: select.epoll, lines: dict[int, socket.socket]) -> None:
        line = socket.create_connection(("127.0.0.1", self._port), timeout=10)
        lines[line.fileno()] = line
        with suppress(OSError):
            line.sendall(HALF_BODY)
        poll.register(line, select.EPOLLIN | select.EPOLLHUP)


def has_its_place(desk: DeskProcess) -> None:
    """LINE's test of the connection is answered 200, possibly too late on a busy machine."""
    while (answer := desk.post()).status != 200:
        assert answer.error == LATE


def test_neither_4000_idle_connections_nor_1000_stalled_bodies_cost_line_a_place(
    desk: DeskProcess,
) -> None:
    with ExitStack() as stack:
        [proved] = lines_to(desk, stack, 1, request())
        assert read_answer(proved).status == 200
        # Unsigned, since that is answered much faster than another path; and not all at once, since
        # a busy machine would refuse some.
        for _ in range(10):
            *_, idle = lines_to(desk, stack, 410, UNSIGNED)
            idle.settimeout(60)
            assert read_answer(idle).status == 401
        for _ in range(10):
            has_its_place(desk)
        stalled = stack.enter_context(Stalled(desk.port, 1_000))
        eventually(lambda: stalled.renewed)
        for _ in range(20):
            has_its_place(desk)
        proved.sendall(request())
        assert read_answer(proved).status == 200


# A half-sent request is not ended by its time.
PATIENT: dict[str, Any] = {"late_seconds": 60, "store_seconds": 60.0, "head_seconds": 60.0}


@in_loop
async def test_a_newer_connection_gets_the_place_of_the_oldest_that_proved_nothing() -> None:
    async with running(most_connections=5, **PATIENT) as desk:
        proved, stored = await desk.connect(), await desk.connect()
        assert (await proved.post()).status == 200
        half, idle = await desk.connect(), await desk.connect(source="127.0.0.2")
        half.send(b"POST /call")
        idle.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await idle.answer()).status == 200
        desk.store.free.clear()
        stored.send(request())
        await desk.reach(lambda: desk.server.server_state.tasks)
        stalled = await desk.connect(source="127.0.0.3")
        stalled.send(HALF_BODY)
        await desk.reach(lambda: len(desk.server.server_state.tasks) == 2)
        for number, first in enumerate((idle, half, stalled)):
            # The new one says nothing, and is the last to go.
            newest = await desk.connect(source=f"127.0.0.{number + 4}")
            assert await first.ended()
        assert desk.figures.refused == {**dict.fromkeys(REASONS, 0), "evicted": 3}
        desk.store.free.set()
        assert (await stored.answer()).status == 200
        assert (await proved.post()).status == 200
        assert (await newest.post()).status == 200


@in_loop
async def test_complete_requests_of_strangers_cost_a_proved_sender_no_place() -> None:
    async with running(most_requests=2, **PATIENT) as desk:
        proved, *strangers = [await desk.connect() for _ in range(11)]
        assert (await proved.post()).status == 200
        # All have arrived before the server's side of the loop continues.
        for line in strangers:
            line.send(UNSIGNED)
        assert (await proved.post()).status == 200
        statuses = [(await line.answer()).status for line in strangers]
        assert statuses.count(503) >= 8


async def two(desk: Running) -> list[Line]:
    return [await desk.connect() for _ in range(2)]


@in_loop
async def test_a_stalled_body_and_an_answer_that_is_not_read_make_way_for_a_request() -> None:
    async with running(most_requests=2, **PATIENT) as desk, AsyncExitStack() as stack:
        for transport in desk.server.servers[0].sockets:
            # A connection accepted there has the same one.
            transport.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        deaf = stack.enter_context(socket.socket())
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        await asyncio.get_running_loop().sock_connect(deaf, ("127.0.0.1", desk.port))
        for number in itertools.count(1):
            await asyncio.get_running_loop().sock_sendall(deaf, UNSIGNED * MOST_IN_LINE)
            await desk.reach(partial(answered_or_stuck, desk, number * MOST_IN_LINE))
            if is_stuck(desk):
                break
        stalled = await desk.connect()
        stalled.send(HALF_BODY)
        await desk.reach(lambda: len(desk.server.server_state.tasks) == 2)
        line = await desk.connect()
        assert [(await line.post()).status for _ in range(2)] == [200, 200]
        assert not is_stuck(desk)
        assert desk.figures.refused["evicted"] == 1
        stalled.send(b"x")
        again = await desk.connect()
        again.send(HALF_BODY)
        await desk.reach(lambda: len(desk.server.server_state.tasks) == 2)
        # A connection that has proved itself needs no place of others.
        assert (await (await desk.connect()).post()).status == 200
        assert await stalled.ended()
        refused = {name for name, count in desk.figures.refused.items() if count}
        assert (refused, desk.figures.refused["evicted"]) == ({"signature", "evicted"}, 2)
        # A stop would wait for it.
        again.writer.close()


@in_loop
async def test_few_requests_wait_in_line_so_that_a_client_that_reads_no_answers_fills_no_memory():
    async with running() as desk:
        polite, deaf = await two(desk)
        polite.send(UNSIGNED * (1 + MOST_IN_LINE))
        for _ in range(1 + MOST_IN_LINE):
            assert (await polite.answer()).status == 401
        deaf.send(UNSIGNED * 2_000)
        assert await deaf.ended()
        assert desk.figures.refused["overload"] == 1
        assert (await polite.post()).status == 200


@in_loop
async def test_behind_a_proxy_each_sender_has_to_prove_itself() -> None:
    async with running(most_requests=1, **PATIENT) as desk:
        proxy, other = await desk.connect(), await desk.connect()
        proxy.send(forwarded(request(), "203.0.113.1"))
        assert (await proxy.answer()).status == 200
        proxy.send(forwarded(HALF_BODY, "203.0.113.2"))
        await desk.reach(lambda: desk.server.server_state.tasks)
        other.send(forwarded(request(), "203.0.113.1"))
        assert (await other.answer()).status == 200
        assert await proxy.ended()


def answered_or_stuck(desk: Running, count: int) -> bool:
    done = desk.figures.refused["signature"] == count and not desk.server.server_state.tasks
    return done or is_stuck(desk)


def is_stuck(desk: Running) -> bool:
    """Whether answers wait for a client that reads none."""
    return any(one.flow.write_paused for one in guests(desk))


def guests(desk: Running) -> list[Any]:
    return list(desk.server.server_state.connections)


def forwarded(data: bytes, sender: str) -> bytes:
    header = f"\r\nX-Forwarded-For: 198.51.100.7, {sender}, 127.0.0.1\r\n".encode()
    return data.replace(b"\r\n", header, 1)


def test_a_flood_of_refusals_is_a_line_a_second_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @in_loop
    async def flood() -> None:
        async with running(limits={"tell_ticks": 10}) as desk:
            for data, count in (
                (b"POST /callback HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 100),
                (b"\0\0\0\r\n\r\n", 20),
                (b"GET /x HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2\r\n\r\n", 20),
            ):
                for _ in range(count):
                    line = await desk.connect(source="127.0.0.2")
                    line.send(data)
                    assert (await line.answer()).status in (400, 401, 404)

    caplog.set_level(logging.INFO)
    began = time.monotonic()
    flood()
    told = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert 0 < len(told) <= time.monotonic() - began + 2, told
    assert sum(int(line.split("requests=")[1].split()[0]) for line in told) == 140
    assert "401 signature is missing (" in caplog.text
    assert "127.0.0.2 (" in caplog.text
