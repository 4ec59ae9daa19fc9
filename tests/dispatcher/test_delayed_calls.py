"""Delayed calls are made in order of time, never before it, and none after their stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from dispatcher.delayed_calls import DelayedCalls
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
def calls(hand: Hand, nothing_left: None) -> Iterator[DelayedCalls]:
    calls = DelayedCalls(monotonic=hand)
    yield calls
    calls.stop()
    assert calls.join(5)


def test_functions_are_called_in_the_order_of_their_times(calls: DelayedCalls) -> None:
    called: list[str] = []
    done = threading.Event()
    for seconds, name in ((-1.0, "second"), (-2.0, "first"), (-1.0, "third"), (0.0, "fourth")):
        calls.later(seconds, partial(called.append, name))
    calls.later(0.0, done.set)
    calls.start()
    assert done.wait(5)
    assert called == ["first", "second", "third", "fourth"]


def test_nothing_is_called_before_its_time(calls: DelayedCalls, hand: Hand) -> None:
    early, late = threading.Event(), threading.Event()
    calls.later(10.0, late.set)
    calls.start()
    calls.later(0.0, early.set)
    assert early.wait(5)
    assert not late.is_set()
    hand.time += 10.0
    # The thread reads the time again when a call is added that is due before all others.
    calls.later(-1.0, early.set)
    assert late.wait(5)


def test_an_earlier_call_is_not_kept_waiting_by_a_later_one(nothing_left: None) -> None:
    calls = DelayedCalls()
    calls.start()
    soon = threading.Event()
    calls.later(3600.0, lambda: None)
    calls.later(0.01, soon.set)
    assert soon.wait(5)
    calls.stop()
    assert calls.join(5)


def test_a_function_may_ask_for_another_call(calls: DelayedCalls) -> None:
    done = threading.Event()
    calls.later(0.0, lambda: calls.later(0.0, done.set))
    calls.start()
    assert done.wait(5)


def test_the_same_function_is_called_as_often_as_it_was_left(calls: DelayedCalls) -> None:
    called: list[int] = []
    function: Callable[[], None] = lambda: called.append(1)  # noqa: E731
    for _ in range(3):
        calls.later(0.0, function)
    calls.start()
    eventually(lambda: len(called) == 3)


def test_functions_left_at_the_stop_are_never_called(calls: DelayedCalls, hand: Hand) -> None:
    called = threading.Event()
    calls.start()
    calls.later(10.0, called.set)
    calls.stop()
    assert calls.join(5)
    assert calls.join(0)
    hand.time += 20.0
    calls.later(0.0, called.set)
    assert not called.is_set()


def test_hundreds_left_by_many_threads_are_all_called_once(calls: DelayedCalls) -> None:
    called: list[int] = []
    calls.start()

    def leave(first: int) -> None:
        for number in range(first, first + 50):
            calls.later(-1.0, partial(called.append, number))

    threads = [threading.Thread(target=leave, args=(n * 50,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: len(called) == 400)
    assert sorted(called) == list(range(400))
