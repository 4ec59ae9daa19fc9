"""Guesses at the password: how many an attacker gets, and how long a person waits meanwhile."""

from __future__ import annotations

import asyncio
import logging
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from linedesk.console.web.auth import (
    MOST_WAITING,
    MOST_WAITING_OF_A_LANE,
    OF_A_LANE,
    OF_EVERYBODY,
    Doorkeeper,
    Lane,
    Turns,
    network_of,
)
from linedesk.console.web.gatekeeping import Gatekeeper, Names
from linedesk.runtime.metrics import Refusals

PASSWORD, TOKEN = "correct-horse-battery", "token-for-scripts-1"
Scene = Callable[[Turns], Coroutine[Any, Any, None]]


class Skipping(selectors.DefaultSelector):
    """Skips what a loop would wait for, and tells how much that was."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if not found:
            assert timeout is not None, "it waits for ever"
            self.skipped += max(0.0, timeout)
        return found


class Loop(asyncio.SelectorEventLoop):
    """A loop whose clock moves only by what is waited for."""

    def __init__(self) -> None:
        self._skipping = Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.skipped


def play(scene: Scene) -> None:
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(scene(Turns()))


def now() -> float:
    return asyncio.get_running_loop().time()


class Attacker:
    """Guesses all the time, each address on so many connections."""

    def __init__(self, turns: Turns, lanes: list[Lane], *, at_once: int) -> None:
        self._turns = turns
        self.guesses = self.refused = 0
        self._tasks = [asyncio.create_task(self._guess(one)) for one in lanes * at_once]

    async def _guess(self, lane: Lane) -> None:
        while True:
            if await self._turns.take(lane):
                self.guesses += 1
            else:
                self.refused += 1
                await asyncio.sleep(1)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()


def addresses(count: int) -> list[Lane]:
    return [Lane(f"192.0.2.{number}") for number in range(count)]


async def waited(turns: Turns, lane: Lane) -> float:
    """How many seconds a person waits until his password is looked at."""
    began = now()
    assert await turns.take(lane)
    turns.give_back(lane)
    return now() - began


def test_one_address_gets_few_guesses_and_holds_up_no_other() -> None:
    async def scene(turns: Turns) -> None:
        attacker = Attacker(turns, addresses(1), at_once=100)
        await asyncio.sleep(20)
        assert attacker.guesses <= OF_A_LANE.burst + 20 / OF_A_LANE.seconds
        assert attacker.refused > 1_000
        assert await waited(turns, Lane("198.51.100.1")) == 0
        attacker.stop()

    play(scene)


@pytest.mark.parametrize("count", [20, 100])
def test_many_addresses_get_no_more_guesses_than_the_limit_of_all(count: int) -> None:
    async def scene(turns: Turns) -> None:
        attacker = Attacker(turns, addresses(count), at_once=2)
        await asyncio.sleep(20)
        assert attacker.guesses <= OF_EVERYBODY.burst + 20 / OF_EVERYBODY.seconds
        attacker.stop()

    play(scene)


def test_addresses_that_were_tried_lately_come_after_one_that_was_not() -> None:
    async def scene(turns: Turns) -> None:
        attacker = Attacker(turns, addresses(45), at_once=1)
        await asyncio.sleep(30)
        assert await waited(turns, Lane("198.51.100.1")) <= OF_EVERYBODY.seconds
        attacker.stop()

    play(scene)


def test_a_browser_that_has_logged_in_before_waits_for_no_crowd() -> None:
    async def scene(turns: Turns) -> None:
        attacker = Attacker(turns, addresses(100), at_once=1)
        await asyncio.sleep(5)
        for number in range(10):
            person = Lane(f"browser {number}", known=True)
            assert await waited(turns, person) <= OF_EVERYBODY.seconds
        attacker.stop()

    play(scene)


def test_a_visitor_with_the_address_of_a_patient_attacker_waits_in_the_same_queue() -> None:
    async def scene(turns: Turns) -> None:
        attacker = Attacker(turns, addresses(1), at_once=MOST_WAITING_OF_A_LANE - 1)
        await asyncio.sleep(60)
        longest = MOST_WAITING_OF_A_LANE * OF_A_LANE.seconds
        assert await waited(turns, *addresses(1)) <= longest
        attacker.stop()

    play(scene)


def test_the_crowd_is_bounded_and_nothing_is_kept_of_it() -> None:
    async def scene(turns: Turns) -> None:
        attacker = Attacker(turns, addresses(200), at_once=1)
        await asyncio.sleep(10)
        assert 0 < len(turns._waiting) <= MOST_WAITING
        attacker.stop()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert turns._waiting == []
        await asyncio.sleep(600)
        await waited(turns, Lane("198.51.100.1"))
        assert len(turns._used) <= 2

    play(scene)


def test_right_passwords_cost_no_turns() -> None:
    async def scene(turns: Turns) -> None:
        for _ in range(100):
            assert await waited(turns, *addresses(1)) == 0

    play(scene)


def test_a_browser_is_known_by_its_cookie_until_the_password_changes() -> None:
    cookie = Doorkeeper(password=PASSWORD).new_browser()
    doorkeeper = Doorkeeper(password=PASSWORD)
    lane = doorkeeper.lane("192.0.2.1", cookie)
    assert lane.known
    assert PASSWORD not in cookie
    assert doorkeeper.lane("192.0.2.2", cookie) == lane
    for forged in ("", ".", "x", "x.", f"x{cookie}", f"{cookie}0", "é.é"):
        assert doorkeeper.lane("192.0.2.1", forged) == Lane("192.0.2.1")
    assert not Doorkeeper(password=f"{PASSWORD}2").lane("192.0.2.1", cookie).known


def test_without_a_password_no_cookie_of_a_browser_counts() -> None:
    doorkeeper = Doorkeeper(token=TOKEN)
    assert doorkeeper.lane("192.0.2.1", Doorkeeper().new_browser()) == Lane("192.0.2.1")


def test_a_network_that_has_shown_the_token_waits_for_no_crowd() -> None:
    async def scene(turns: Turns) -> None:
        doorkeeper = Doorkeeper(token=TOKEN)
        gate = Gatekeeper(shown, Names(), doorkeeper, turns, Refusals(logging.getLogger()))

        async def ask(token: str) -> int:
            answers.clear()
            headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode())]
            scope = {"type": "http", "method": "GET", "path": "/", "headers": headers}
            await gate({**scope, "client": ("198.51.100.1", 1)}, never, keep)
            return int(answers[0]["status"])

        assert await ask(TOKEN) == 200
        attacker = Attacker(turns, addresses(100), at_once=2)
        await asyncio.sleep(60)
        assert [await ask(TOKEN) for _ in range(20)] == [200] * 20
        attacker.stop()

    answers = list[Any]()

    async def shown(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse("")(scope, receive, send)

    async def never() -> Any:
        raise AssertionError

    async def keep(message: Any) -> None:
        answers.append(message)

    play(scene)


def test_one_persons_addresses_count_as_one() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1")
    assert network_of("2001:db8::1") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1") == "192.0.2.1"
    assert network_of("127.0.0.1") == network_of("127.7.7.7") == network_of("::1")
