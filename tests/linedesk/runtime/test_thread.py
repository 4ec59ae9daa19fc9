"""A background thread: its start and its end."""

import threading

import pytest

from linedesk.runtime.thread import BackgroundThread
from tests.waiting import eventually


def test_a_stop_before_the_start_is_not_lost_and_one_that_was_stopped_stays_stopped() -> None:
    thread = BackgroundThread("quiet", lambda: thread.stop_asked.wait(10) and None)
    thread.stop()
    assert thread.join(5)
    thread.start()
    assert thread.join(5)
    assert not thread.dead


def test_one_that_has_ended_by_itself_is_dead_and_one_that_hangs_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: errors.append(str(args.exc_value)))

    def fail() -> None:
        raise ValueError("doomed")

    thread = BackgroundThread("doomed", fail)
    thread.start()
    assert thread.join(5)
    assert (thread.dead, errors) == (True, ["doomed"])
    slow = BackgroundThread("slow", lambda: None, limit_seconds=0.0)
    assert slow.stalled() is None
    slow.activity.busy()
    assert eventually(slow.stalled) == "the thread slow hangs"
