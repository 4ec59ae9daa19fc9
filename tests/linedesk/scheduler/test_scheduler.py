"""A running scheduler: its wake-ups, its waits, and two of them at the same time."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from bson.timestamp import Timestamp
from pymongo.database import Database

from linedesk.scheduler.firing import TimerFiring
from linedesk.scheduler.scheduler import Scheduler, system_now
from linedesk.store import timers
from linedesk.store.collections import MEGABYTE, create_collections
from linedesk.store.errors import RecvqClosed, StoreUnavailable
from linedesk.store.queue.guard import Guard
from tests.dispatcher.faults import failing
from tests.linedesk.scheduler.conftest import NOON, Gate, HandClock, a_row, asleep, rung
from tests.waiting import eventually

Start = Callable[..., Scheduler]
Told = Callable[[str], list[str]]
Found = Database[Any]

DAILY = {"at": "21:00", "tz": "Asia/Tokyo"}  # noon in UTC
DAY = timedelta(days=1)
RANG = "timer:main/U1/tea:1:2026-04-19T12:00:00.000Z"


class Looks:
    """Counts the reads for due timers; each round ends with one that finds none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ended = 0
        fire = TimerFiring.fire

        def counted(firing: TimerFiring, **options: Any) -> int | None:
            settled = fire(firing, **options)
            self.ended += settled is None
            return settled

        monkeypatch.setattr(TimerFiring, "fire", counted)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The change that the listener has received, once it has."""
    found: list[Any] = []
    tell = Scheduler._heard

    def noted(one: Scheduler, run_at: Any, time: Any) -> None:
        tell(one, run_at, time)
        found.append(run_at)

    monkeypatch.setattr(Scheduler, "_heard", noted)
    return found


@pytest.fixture
def quiet(short_limits: dict[str, Any]) -> None:
    """The clock is not read in the meantime, so that only the listener wakes the scheduler."""
    short_limits["clock_seconds"] = 60.0


# Its firing times.


def test_a_timer_fires_when_it_is_due_and_not_before(
    schedule: Start, database: Found, clock: HandClock, looks: Looks, heard: list[Any]
) -> None:
    """And while it waits MongoDB is not asked, whatever the clock does."""
    database.schedule.insert_one(a_row(run_at=NOON + timedelta(seconds=60)))
    one = schedule()
    eventually(lambda: heard and asleep(one))
    before, asked = looks.ended, clock.asked
    clock.move(seconds=59.999)
    eventually(lambda: clock.asked > asked + 3)
    assert looks.ended == before
    assert rung(database) == []
    clock.move(seconds=0.001)
    eventually(lambda: rung(database))
    row = eventually(lambda: database.schedule.find_one({"runAt": None}))
    assert row["endedAt"]


def test_by_the_machines_clock_a_timer_fires_within_milliseconds(
    schedule: Start, database: Found
) -> None:
    """bench/timers.py measures the milliseconds; this test checks that it fires by itself."""
    due = system_now() + timedelta(seconds=0.3)
    due -= timedelta(microseconds=due.microsecond % 1000)
    database.schedule.insert_one(a_row(run_at=due))
    schedule(now=system_now)
    document = eventually(lambda: database.recvq.find_one())
    assert timedelta(0) <= document["acceptTime"] - due < timedelta(seconds=5)


@pytest.mark.parametrize("fails", [False, True])
def test_the_guard_looks_shortly_before_a_timer_is_due(
    schedule: Start, database: Found, clock: HandClock, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """So that no timer waits for it; after a failed check the insert checks again."""
    looks, look = [], Guard.look

    def counted(guard: Guard) -> None:
        looks.append(clock.now)
        if fails and len(looks) == 1:
            raise StoreUnavailable("away")
        look(guard)

    monkeypatch.setattr(Guard, "look", counted)
    clock.move(seconds=-60)
    database.schedule.insert_one(a_row())
    # Even on a slow machine one check serves the timer.
    one, early = schedule(guard_seconds=60.0), NOON - timedelta(seconds=0.05)
    eventually(lambda: asleep(one))
    assert looks == []
    clock.now = early
    eventually(lambda: looks == [early])
    clock.now = NOON
    eventually(lambda: rung(database) == [RANG])
    assert looks == ([early, NOON] if fails else [early])


@pytest.mark.usefixtures("quiet")
def test_a_timer_that_is_set_or_moved_earlier_wakes_it(schedule: Start, database: Found) -> None:
    database.schedule.insert_one(a_row("late", NOON + 2 * DAY))
    one = schedule()
    eventually(lambda: asleep(one))
    database.schedule.insert_one(a_row())
    eventually(lambda: rung(database) == [RANG])
    eventually(lambda: asleep(one))
    database.schedule.update_one({"name": "late"}, {"$set": {"runAt": NOON, "n": 2}})
    eventually(lambda: len(rung(database)) == 2)


@pytest.mark.usefixtures("quiet")
def test_only_an_earlier_timer_wakes_it(
    schedule: Start, database: Found, looks: Looks, heard: list[Any]
) -> None:
    database.schedule.insert_one(a_row("first", NOON + DAY))
    one = schedule()
    eventually(lambda: heard and asleep(one))
    before = looks.ended
    database.schedule.insert_many([a_row(f"{n}", NOON + DAY) for n in range(20)])
    database.schedule.update_one({"name": "3"}, {"$set": {"runAt": None}})
    database.schedule.insert_one(a_row("last", NOON + 2 * DAY))
    eventually(lambda: NOON + 2 * DAY in heard)
    assert asleep(one)
    assert looks.ended == before


@pytest.mark.usefixtures("quiet")
def test_a_timer_that_is_set_while_it_looks_is_not_missed(
    schedule: Start,
    database: Found,
    clock: HandClock,
    monkeypatch: pytest.MonkeyPatch,
    heard: list[Any],
) -> None:
    """Set after the rows were read, and received before the sleep begins."""
    next_at = TimerFiring.next_at
    sets = iter([True])

    def late(firing: TimerFiring, **options: Any) -> Any:
        found = next_at(firing, **options)
        if rung(database) and next(sets, False):
            # Later than the end of the sleep before the round.
            database.schedule.insert_one(a_row("set", NOON + DAY))
            eventually(lambda: NOON + DAY in heard)
        return found

    monkeypatch.setattr(TimerFiring, "next_at", late)
    database.schedule.insert_one(a_row(run_at=NOON))
    clock.move(days=-1)
    one = schedule()
    eventually(lambda: asleep(one))
    clock.move(days=1)
    one.wake()
    eventually(lambda: rung(database) == [RANG])
    eventually(lambda: asleep(one) and one._due_at == NOON + DAY)


def test_daily_timers_continue_after_missed_times(
    schedule: Start, database: Found, clock: HandClock
) -> None:
    database.schedule.insert_one(a_row(every=DAILY))
    clock.move(days=3, hours=1)
    one = schedule()
    eventually(lambda: asleep(one) and rung(database))
    assert database.schedule.find_one()["runAt"] == NOON + 4 * DAY
    clock.move(days=1)
    eventually(lambda: len(rung(database)) == 2)
    assert rung(database) == [RANG, "timer:main/U1/tea:1:2026-04-23T12:00:00.000Z"]


def test_many_timers_due_at_once_fire_in_batches_each_once(
    schedule: Start, database: Found
) -> None:
    rows = [a_row(f"{n}", NOON - timedelta(milliseconds=n), key=f"U{n}") for n in range(1100)]
    database.schedule.insert_many(rows)
    schedule()
    eventually(lambda: not database.schedule.count_documents({"runAt": {"$ne": None}}))
    found = rung(database)
    assert len(found) == len(set(found)) == 1100
    assert [name.split("/")[1] for name in found] == [f"U{n}" for n in reversed(range(1100))]


# The clock.


@pytest.mark.usefixtures("quiet")
def test_a_moved_clock_is_read_at_once_after_a_wake(
    schedule: Start, database: Found, clock: HandClock
) -> None:
    database.schedule.insert_one(a_row(run_at=NOON + DAY))
    one = schedule()
    eventually(lambda: asleep(one))
    clock.move(days=1)
    one.wake()
    eventually(lambda: rung(database))


def test_a_clock_that_is_set_back_makes_it_wait_longer_and_daily_timers_come_back(
    schedule: Start, database: Found, clock: HandClock, told: Told
) -> None:
    database.schedule.insert_many([a_row("daily", every=DAILY), a_row("once", NOON + DAY)])
    clock.move(days=-1)
    one = schedule()
    eventually(lambda: asleep(one))
    clock.move(days=1, hours=1)
    eventually(lambda: len(rung(database)) == 1 and asleep(one))
    # It had been ahead by all of three days, for a moment.
    clock.move(days=2)
    eventually(lambda: len(rung(database)) == 3 and asleep(one))
    clock.move(days=-3)
    eventually(lambda: told("clock was set back"))
    eventually(lambda: database.schedule.find_one({"name": "daily"})["runAt"] == NOON + 2 * DAY)
    eventually(lambda: asleep(one))
    assert len(rung(database)) == 3
    clock.move(days=3)
    eventually(lambda: len(rung(database)) == 4)
    assert len(set(rung(database))) == 4


def test_daily_timers_come_back_also_where_the_clock_was_set_right_while_nothing_ran(
    schedule: Start, database: Found
) -> None:
    row = a_row(every=DAILY, run_at=NOON + 9 * DAY, rang=NOON + DAY)
    database.schedule.insert_one(row)
    schedule()
    eventually(lambda: database.schedule.find_one()["runAt"] == NOON + 2 * DAY)


# Its waits.


def test_a_closed_recvq_is_waited_for_and_said_once(
    schedule: Start, database: Found, told: Told
) -> None:
    asked: list[int] = []
    open_ = threading.Event()

    @contextmanager
    def guarded(size: int) -> Iterator[None]:
        asked.append(size)
        if not open_.is_set():
            raise RecvqClosed("recvq is full: 96% of it is unread")
        yield

    database.schedule.insert_many([a_row(f"{n}") for n in range(10)])
    schedule(inserting=guarded, longest_pause_seconds=0.01, batch_rows=8)
    eventually(lambda: len(asked) > 5)
    assert rung(database) == []
    # Less each time: there may be room for some.
    assert asked[0] == 8 * asked[5]
    assert len(told("timers cannot be fired, trying again")) == 1
    assert told('reason="recvq is full: 96% of it is unread"')
    open_.set()
    eventually(lambda: len(rung(database)) == 10)
    eventually(lambda: told("timers are fired again"))


def test_a_zone_that_cannot_be_read_for_a_moment_is_waited_for(
    schedule: Start, database: Found, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with too many open files: no daily timer is set aside for it."""

    def no_file(name: str) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    database.schedule.insert_one(a_row(every=DAILY))
    with monkeypatch.context() as patched:
        patched.setattr(timers, "ZoneInfo", no_file)
        schedule(longest_pause_seconds=0.01)
        eventually(lambda: told("timers cannot be fired, trying again"))
        assert rung(database) == []
    eventually(lambda: rung(database) == [RANG])
    eventually(lambda: database.schedule.find_one()["runAt"] == NOON + DAY)


def test_nothing_is_inserted_into_a_recvq_that_is_not_as_it_must_be(
    schedule: Start, database: Found, told: Told
) -> None:
    """An insert would create an uncapped one, without the events that have fired."""
    database.recvq.drop()
    database.schedule.insert_one(a_row())
    schedule(longest_pause_seconds=0.05)
    eventually(lambda: told("timers cannot be fired, trying again"))
    assert "recvq" not in database.list_collection_names()
    create_collections(database, capped_bytes=MEGABYTE)
    eventually(lambda: rung(database) == [RANG])


@pytest.mark.usefixtures("quiet")
def test_a_schedule_that_was_dropped_is_listened_to_again(
    schedule: Start, database: Found, heard: list[Any], told: Told
) -> None:
    """And its indexes have to be made again."""
    database.schedule.insert_one(a_row("later", NOON + DAY))
    one = schedule()
    eventually(lambda: heard and asleep(one))
    assert told("schedule has no index") == []
    database.schedule.drop()
    database.schedule.insert_one(a_row())
    eventually(lambda: rung(database) == [RANG])
    eventually(lambda: told('schedule has no index runAt, run "linedesk init"'))


def test_a_server_set_back_by_a_restore_is_read_again(
    schedule: Start, database: Found, told: Told
) -> None:
    database.schedule.insert_one(a_row("later", NOON + DAY))
    one = schedule()
    eventually(lambda: asleep(one))
    one._heard(None, Timestamp(2**31, 1))
    eventually(lambda: told("timers cannot be fired, trying again"))
    # So that the stream is opened again.
    database.schedule.drop()
    eventually(lambda: told("timers are fired again"))


@pytest.mark.usefixtures("quiet")
def test_without_a_change_stream_each_failure_triggers_a_read(
    schedule: Start, database: Found, told: Told
) -> None:
    database.schedule.insert_one(a_row("later", NOON + DAY))
    where = f"{database.name}.schedule"
    with failing(database.client, ["aggregate"], namespace=where, errorCode=50):
        one = schedule(longest_pause_seconds=0.05)
        eventually(lambda: asleep(one))
        eventually(lambda: told("changes of schedule are not received"))
        database.schedule.insert_one(a_row())
        eventually(lambda: rung(database) == [RANG])
        one.stop()
        assert one.join(10)
    assert len(told("changes of schedule are not received")) == 1


# Two of them.


@pytest.mark.parametrize("after", [False, True], ids=["before its insert", "after it"])
def test_two_schedulers_fire_each_timer_once(
    schedule: Start, database: Found, clock: HandClock, after: bool
) -> None:
    """One is frozen with its rows read while the other fires them all."""
    database.schedule.insert_many(
        [a_row(), a_row("daily", every=DAILY), *(a_row(f"{n}") for n in range(20))]
    )
    gate = Gate(after=after)
    schedule(inserting=gate.inserting)
    assert gate.came.wait(20)
    second = schedule()
    eventually(lambda: len(rung(database)) == 22 and asleep(second))
    ended = database.schedule.find_one({"name": "tea"})["endedAt"]
    gate.opened.set()
    clock.move(days=1)
    eventually(lambda: len(rung(database)) == 23)
    assert len(set(rung(database))) == 23
    assert database.schedule.find_one({"name": "tea"})["endedAt"] == ended
    eventually(lambda: database.schedule.find_one({"name": "daily"})["runAt"] == NOON + 2 * DAY)
