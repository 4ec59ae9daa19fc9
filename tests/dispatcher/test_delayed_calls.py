"""Delayed calls are made in order of time, never before it, and none after their stop."""

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from dispatcher.delayed_calls import DelayedCalls
from tests.waiting import Now


@pytest.fixture
def calls(now: Now, nothing_left: None) -> Iterator[DelayedCalls]:
    calls = DelayedCalls(monotonic=now)
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


def test_nothing_is_called_before_its_time(calls: DelayedCalls, now: Now) -> None:
    early, late = threading.Event(), threading.Event()
    calls.later(10.0, late.set)
    calls.start()
    calls.later(0.0, early.set)
    assert early.wait(5)
    assert not late.is_set()
    now.seconds += 10.0
    # The thread reads the time again when a call is added that is due before all others.
    calls.later(-1.0, early.set)
    assert late.wait(5)


def test_functions_left_at_the_stop_are_never_called(calls: DelayedCalls, now: Now) -> None:
    called = threading.Event()
    calls.start()
    calls.later(10.0, called.set)
    calls.stop()
    assert calls.join(5)
    assert calls.join(0)
    now.seconds += 20.0
    calls.later(0.0, called.set)
    assert not called.is_set()
