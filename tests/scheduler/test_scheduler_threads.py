"""What owns a thread ends the same way: stopped before, twice, or from many sides."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pymongo.database import Database

from scheduler.doorbell import Doorbell
from scheduler.scheduler import Scheduler
from tests.waiting import eventually

Life = Doorbell | Scheduler
Make = Callable[[Database[Any]], Life]


def a_doorbell(database: Database[Any]) -> Life:
    return Doorbell(database["schedule"], lambda run_at, time: None)


def a_scheduler(database: Database[Any]) -> Life:
    return Scheduler(database, database)


MAKERS: pytest.MarkDecorator = pytest.mark.parametrize("make", [a_doorbell, a_scheduler])


@pytest.fixture(autouse=True)
def _no_thread_may_die(monkeypatch: pytest.MonkeyPatch, nothing_left: None) -> None:
    """An error on a thread would end it, and hide what it should have shown."""

    def fail(args: threading.ExceptHookArgs) -> None:
        pytest.fail(f"a thread died: {args.exc_value!r}")

    monkeypatch.setattr(threading, "excepthook", fail)


@MAKERS
def test_it_ends_when_stopped(make: Make, database: Database[Any]) -> None:
    life = make(database)
    before = threading.active_count()
    life.start()
    for _ in range(2):
        life.stop()
        assert life.join(5)
    eventually(lambda: threading.active_count() <= before)


@MAKERS
def test_a_stop_before_the_start_is_not_lost(make: Make, database: Database[Any]) -> None:
    life = make(database)
    life.stop()
    assert life.join(5)
    life.start()
    assert life.join(5)


@MAKERS
def test_it_may_be_stopped_from_many_sides_while_it_starts(
    make: Make, database: Database[Any]
) -> None:
    life = make(database)
    together = threading.Barrier(6)

    def meet(action: Callable[[], object]) -> None:
        together.wait(10)
        action()

    actions = [life.start, *[life.stop] * 5]
    threads = [threading.Thread(target=meet, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(15)
        assert not thread.is_alive()
    assert life.join(5)
