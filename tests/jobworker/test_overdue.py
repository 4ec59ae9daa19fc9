"""One timer for all: it reports the items that have not ended in time, and no others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobworker.overdue import Overdue


class Clock:
    """A clock that a test turns; functions passed to `later` are called when they are due."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.most = 0

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        self.timers.append((self.now + seconds, function))
        self.most = max(self.most, len(self.timers))

    def turn(self, seconds: float) -> None:
        """Time passes; timers fire in their order."""
        until = self.now + seconds
        while self.timers and (first := min(self.timers, key=lambda one: one[0]))[0] <= until:
            self.timers.remove(first)
            self.now = first[0]
            first[1]()
        self.now = until


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def overdue(clock: Clock, told: list[str]) -> Overdue[str]:
    return Overdue(1.0, told.append, later=clock.later, monotonic=lambda: clock.now)


def test_an_item_that_has_not_ended_is_reported_in_time(
    overdue: Overdue[str], clock: Clock, told: list[str]
) -> None:
    overdue.begin("a")
    clock.turn(0.6)
    overdue.begin("b")
    clock.turn(0.3)
    assert told == []
    clock.turn(0.2)
    assert told == ["a"]
    clock.turn(0.6)
    assert told == ["a", "b"]
    clock.turn(10)
    assert (told, clock.timers) == (["a", "b"], [])


def test_an_item_that_has_ended_is_not_reported(
    overdue: Overdue[str], clock: Clock, told: list[str]
) -> None:
    overdue.begin("a")
    overdue.begin("b")
    overdue.end("a")
    overdue.end("a")
    clock.turn(5)
    assert told == ["b"]
    overdue.end("b")


def test_however_many_begin_there_is_one_timer(
    overdue: Overdue[str], clock: Clock, told: list[str]
) -> None:
    for number in range(5_000):
        overdue.begin(f"{number}")
        clock.turn(0.001)
        if number % 100:
            overdue.end(f"{number}")
    clock.turn(2)
    assert told == [f"{number}" for number in range(0, 5_000, 100)]
    assert clock.most == 1


def test_a_new_item_is_timed_after_all_have_ended(
    overdue: Overdue[str], clock: Clock, told: list[str]
) -> None:
    overdue.begin("a")
    overdue.end("a")
    clock.turn(3)
    overdue.begin("b")
    clock.turn(0.9)
    assert told == []
    clock.turn(0.2)
    assert told == ["b"]


def test_a_reported_item_may_begin_another(clock: Clock) -> None:
    """The clock's thread calls it without the lock."""
    told: list[str] = []

    def again(one: str) -> None:
        told.append(one)
        if len(told) < 3:
            overdue.begin(f"{one}+")

    overdue = Overdue[str](1.0, again, later=clock.later, monotonic=lambda: clock.now)
    overdue.begin("a")
    clock.turn(10)
    assert told == ["a", "a+", "a++"]
