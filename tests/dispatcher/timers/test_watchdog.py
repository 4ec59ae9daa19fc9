"""The progress of the thread that fires timers, and its status."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from dispatcher.timers import LOOK_SECONDS, TimerFiring, Timers
from linedesk.runtime.liveness import ThreadActivity
from tests.dispatcher.timers.conftest import HandClock
from tests.waiting import eventually

Schedule = Callable[..., Timers]


def test_a_thread_that_hangs_is_a_stall(
    schedule: Schedule, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, begun = threading.Event(), threading.Event()

    def hang(*_: Any, **__: Any) -> None:
        begun.set()
        assert ends.wait(30)

    one = schedule()
    eventually(lambda: one.status() == "0 timers fired")
    monkeypatch.setattr(one.activity, "limit_seconds", 0.05)
    monkeypatch.setattr(TimerFiring, "fire", hang)
    one.set(clock.now)
    assert begun.wait(15)
    eventually(lambda: one.stalled() == "the thread timers hangs")
    ends.set()


def test_many_batches_one_after_the_other_are_no_stall(
    schedule: Schedule, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = schedule()
    eventually(lambda: one.status() == "0 timers fired")
    now, seen = [0.0], []

    def ring(firing: TimerFiring, **_: Any) -> int | None:
        now[0] += 100.0
        seen.append(one.activity.stalled())
        return 1 if len(seen) < 10 else None

    activity = ThreadActivity("timers", limit_seconds=LOOK_SECONDS, monotonic=lambda: now[0])
    monkeypatch.setattr(one, "activity", activity)
    monkeypatch.setattr(TimerFiring, "fire", ring)
    one.set(clock.now)
    eventually(lambda: len(seen) >= 10)
    assert set(seen) == {None}
