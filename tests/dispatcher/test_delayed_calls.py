"""Delayed calls are made in order of time, never before it, and none after their stop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from dispatcher.delayed_calls import DelayedCalls


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
