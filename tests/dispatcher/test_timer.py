"""The clock calls in order of time, never before it, and nothing after its stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from dispatcher.timer import Timer
from tests.waiting import eventually


class Hand:
    """A monotonic time that moves only by hand."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def clock(hand: Hand, nothing_left: None) -> Iterator[Timer]:
    clock = Timer(monotonic=hand)
    yield clock
    clock.stop()
    assert clock.join(5)


def test_functions_are_called_in_the_order_of_their_times(clock: Timer) -> None:
    called: list[str] = []
    done = threading.Event()
    for seconds, name in ((-1.0, "second"), (-2.0, "first"), (-1.0, "third"), (0.0, "fourth")):
        clock.later(seconds, partial(called.append, name))
    clock.later(0.0, done.set)
    clock.start()
    assert done.wait(5)
    assert called == ["first", "second", "third", "fourth"]


def test_nothing_is_called_before_its_time(clock: Timer, hand: Hand) -> None:
    early, late = threading.Event(), threading.Event()
    clock.later(10.0, late.set)
    clock.start()
    clock.later(0.0, early.set)
    assert early.wait(5)
    assert not late.is_set()
    hand.time += 10.0
    # The clock looks at the time again when something comes that is due before all else.
    clock.later(-1.0, early.set)
    assert late.wait(5)


def test_an_earlier_call_is_not_kept_waiting_by_a_later_one(nothing_left: None) -> None:
    clock = Timer()
    clock.start()
    soon = threading.Event()
    clock.later(3600.0, lambda: None)
    clock.later(0.01, soon.set)
    assert soon.wait(5)
    clock.stop()
    assert clock.join(5)


def test_a_function_may_ask_for_another_call(clock: Timer) -> None:
    done = threading.Event()
    clock.later(0.0, lambda: clock.later(0.0, done.set))
    clock.start()
    assert done.wait(5)


def test_the_same_function_is_called_as_often_as_it_was_left(clock: Timer) -> None:
    calls: list[int] = []
    function: Callable[[], None] = lambda: calls.append(1)  # noqa: E731
    for _ in range(3):
        clock.later(0.0, function)
    clock.start()
    eventually(lambda: len(calls) == 3)


def test_what_is_left_at_the_stop_is_never_called(clock: Timer, hand: Hand) -> None:
    called = threading.Event()
    clock.start()
    clock.later(10.0, called.set)
    clock.stop()
    assert clock.join(5)
    assert clock.join(0)
    hand.time += 20.0
    clock.later(0.0, called.set)
    assert not called.is_set()


def test_hundreds_left_by_many_threads_are_all_called_once(clock: Timer) -> None:
    calls: list[int] = []
    clock.start()

    def leave(first: int) -> None:
        for number in range(first, first + 50):
            clock.later(-1.0, partial(calls.append, number))

    threads = [threading.Thread(target=leave, args=(n * 50,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: len(calls) == 400)
    assert sorted(calls) == list(range(400))
