"""The server's reports to the service manager, and the order of its stop."""

import asyncio
import json
from typing import Any

import pytest

from tests.frontdesk.inprocess import TOKEN, in_loop, quick, request, running

__all__ = ["quick"]
pytestmark = pytest.mark.usefixtures("quick")


@in_loop
async def test_while_a_thread_hangs_it_says_so_instead_of_being_alive() -> None:
    async with running() as desk:
        desk.store.hanging = "a call of MongoDB hangs"
        await desk.reach(lambda: desk.service.says("unwell", "a call of MongoDB hangs · "))
        told = len(desk.service.told)
        await desk.reach(lambda: len(desk.service.told) > told)
        assert {word for word, _ in desk.service.told[told:]} == {"unwell"}
        desk.store.hanging = None
        await desk.reach(lambda: desk.service.says("alive", ""))


@in_loop
async def test_only_this_machine_or_the_token_gets_the_details_of_readiness() -> None:
    async with running() as desk:

        async def asked(*headers: str, source: str = "127.0.0.1") -> Any:
            line = await desk.connect(source=source)
            head = "\r\n".join(["GET /readyz HTTP/1.1", "Host: x", *headers])
            line.send(f"{head}\r\n\r\n".encode())
            answer = await line.answer()
            return answer.status, json.loads(answer.body)

        # An address that counts as another machine's: not the one that is asked.
        stranger, token = "127.0.0.2", f"Authorization: Bearer {TOKEN}"
        desk.store.spool, desk.store.no_spool = {"documents": 1}, "it is full"
        details = {"status": "ready", "spool": {"documents": 1}, "warning": "no spool: it is full"}
        assert await asked() == (200, details)
        assert await asked(token, source=stranger) == (200, details)
        for headers, source in (
            ([], stranger),
            (["Authorization: Bearer "], stranger),
            (["Authorization: Bearer wrong"], stranger),
            ([token.replace("Bearer", "Basic")], stranger),
            (["X-Forwarded-For: 127.0.0.1"], stranger),
            # By a proxy anybody asks.
            (["X-Forwarded-For: 203.0.113.7"], "127.0.0.1"),
            (["X-Forwarded-For: 127.0.0.1"], "127.0.0.1"),
            (["Forwarded: for=127.0.0.1"], "127.0.0.1"),
        ):
            assert await asked(*headers, source=source) == (200, {"status": "ready"})
        desk.store.unavailable = "MongoDB does not answer; the spool is full"
        assert await asked() == (503, {"error": desk.store.unavailable})
        assert await asked(source=stranger) == (503, {"error": "not ready"})


@in_loop
async def test_without_a_successor_a_stop_does_not_wait_for_idle_clients() -> None:
    async with running(limits={"linger_seconds": 1000.0}, lingers=False) as desk:
        idle = await desk.connect()
        await idle.post()
        await asyncio.wait_for(desk.stop(), 30)


@in_loop
async def test_a_stop_still_takes_connections_and_gives_everybody_a_last_answer() -> None:
    async with running(limits={"linger_seconds": 10.0}) as desk:
        idle = await desk.connect()
        assert "connection" not in (await idle.post()).headers
        waiting = await desk.connect()
        desk.store.free.clear()
        waiting.send(request() * 3)
        await desk.reach(lambda: desk.server.server_state.tasks)
        stop = asyncio.create_task(desk.stop())
        await desk.reach(lambda: desk.service.says("stopping", ""))
        late = await desk.connect()
        late.send(request())
        await desk.reach(lambda: len(desk.server.server_state.tasks) == 2)
        desk.store.free.set()
        for _ in range(2):
            assert "connection" not in (await waiting.answer()).headers
        for line in (waiting, late):
            answer = await line.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert not stop.done()
        answer = await idle.post()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        await stop
        assert desk.store.stored == 6


@in_loop
async def test_neither_the_silent_nor_the_half_nor_the_deaf_hold_up_the_end() -> None:
    limits = {"silent_seconds": 0.1, "drain_seconds": 0.1}
    async with running(limits=limits) as desk:
        silent, half_head, half_body, idle, deaf = [await desk.connect() for _ in range(5)]
        assert (await idle.post()).status == 200
        half_head.send(request()[:20])
        half_body.send(request()[:-1])
        desk.store.free.clear()
        deaf.send(request())
        await desk.reach(lambda: len(desk.server.server_state.tasks) == 2)
        async with asyncio.timeout(2):
            await desk.stop()
        for line in (silent, half_head, half_body, idle, deaf):
            assert await line.ended()
        assert desk.store.closed
