"""Everything that owns a thread ends the same way: stopped before, twice, or from many sides."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from bson.timestamp import Timestamp
from pymongo.database import Database

from dispatcher.clock import Clock
from dispatcher.control import Obedience
from dispatcher.figures import Figures
from dispatcher.heartbeat import Heartbeat
from dispatcher.history import History
from dispatcher.lease import Lease
from dispatcher.ledger import Ledger
from dispatcher.pool import Pool
from dispatcher.progress import Progress
from dispatcher.reader import Reader
from dispatcher.saver import Saver
from dispatcher.sounder import Sounder
from linedesk.simclock import SimClock
from recvq.control import Control
from recvq.documents import Document
from recvq.figures import Snapshot
from recvq.restore import Keeper, Neighbours
from recvq.status import StatusRow
from tests.dispatcher.fakes import MemoryFeed, MemoryLog, RecordingWorker
from tests.waiting import eventually


@dataclass
class Life:
    """One owner of threads, with what starts and ends it."""

    start: Callable[[], object]
    stop: Callable[[], object]
    join: Callable[[], object]


def pool() -> Pool:
    return Pool(
        lambda task: "finished",
        Ledger(),
        threads=4,
        bound=100,
        load=lambda ids: {},
        later=lambda seconds, function: None,
    )


def of_clock(database: Database[Document]) -> Life:
    clock = Clock()
    return Life(clock.start, clock.stop, lambda: clock.join(5))


def of_pool(database: Database[Document]) -> Life:
    one = pool()
    return Life(one.start, one.stop, lambda: not one.join(time.monotonic() + 5))


def a_saver(database: Database[Document]) -> tuple[Pool, Saver]:
    progress = Progress(database["progress"], feed="memory", epoch=1)
    progress.take_over()
    one = pool()
    return one, Saver(one, progress)


def of_saver(database: Database[Document]) -> Life:
    _, saver = a_saver(database)
    return Life(saver.start, saver.stop, lambda: saver.join(5))


def of_reader(database: Database[Document]) -> Life:
    one, saver = a_saver(database)
    reader = Reader(
        MemoryFeed(MemoryLog()),
        History(database["recvq"]),
        one,
        saver,
        token=1,
        reign_began=Timestamp(1, 1),
        has_room=lambda: True,
        keeper=Keeper(database),
        heartbeat=Heartbeat(database["recvq"], lambda: None),
    )
    return Life(reader.start, reader.stop, lambda: reader.join(5))


def of_lease(database: Database[Document]) -> Life:
    lease = Lease(database, owner="elsewhere/1/1")
    assert lease.try_acquire()
    return Life(lease.keep, lease.release, lambda: True)


def of_obedience(database: Database[Document]) -> Life:
    lease = Lease(database, owner="elsewhere/1/1")
    one = Obedience(Control(database), pool().ordered, RecordingWorker(), lease)
    return Life(one.start, one.stop, lambda: one.join(5))


def of_sounder(database: Database[Document]) -> Life:
    one = Sounder(database, pool().view, Figures(leads=lambda: True), Neighbours(database))
    return Life(one.start, one.stop, lambda: one.join(5))


def of_row(database: Database[Document]) -> Life:
    one = StatusRow(database, "dispatcher", snapshot=Snapshot, tell=dict)
    return Life(one.start, one.stop, lambda: one.join(5))


def of_simclock(database: Database[Document]) -> Life:
    clock = SimClock("http://127.0.0.1:1/sim/clock")
    return Life(clock.start, clock.stop, lambda: clock.join(5))


MAKERS: pytest.MarkDecorator = pytest.mark.parametrize(
    "make",
    [
        of_clock,
        of_pool,
        of_saver,
        of_reader,
        of_lease,
        of_obedience,
        of_sounder,
        of_row,
        of_simclock,
    ],
    ids=lambda make: make.__name__[3:],
)
Make = Callable[[Database[Document]], Life]


@pytest.fixture(autouse=True)
def _no_thread_may_die(monkeypatch: pytest.MonkeyPatch, nothing_left: None) -> None:
    """An error on a thread would end it, and hide what it should have shown."""

    def fail(args: threading.ExceptHookArgs) -> None:
        pytest.fail(f"a thread died: {args.exc_value!r}")

    monkeypatch.setattr(threading, "excepthook", fail)


@MAKERS
def test_it_ends_when_stopped(make: Make, database: Database[Document]) -> None:
    life = make(database)
    before = threading.active_count()
    life.start()
    life.stop()
    assert life.join()
    eventually(lambda: threading.active_count() <= before)


@MAKERS
def test_a_stop_before_the_start_is_not_lost(make: Make, database: Database[Document]) -> None:
    life = make(database)
    life.stop()
    assert life.join()
    life.start()
    assert life.join()


@MAKERS
def test_it_may_be_stopped_and_joined_twice(make: Make, database: Database[Document]) -> None:
    life = make(database)
    life.start()
    for _ in range(2):
        life.stop()
        assert life.join()


@MAKERS
def test_it_may_be_stopped_from_many_sides_while_it_starts(
    make: Make, database: Database[Document]
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
    assert life.join()
