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
