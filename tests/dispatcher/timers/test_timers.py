"""The thread that fires timers: its wake-ups, its waits, and two of them at the same time."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
from pymongo.errors import DuplicateKeyError

from dispatcher.timers import READ_SECONDS, TimerFiring, Timers
from linedesk.setup.collections import create_collections
from linedesk.store.collections import MEGABYTE
from linedesk.store.errors import RecvqClosed
from tests.dispatcher.conftest import Told
from tests.dispatcher.timers.conftest import (
    DAILY,
    DAY,
    NOON,
    RANG,
    Gate,
    HandClock,
    a_row,
    asleep,
    rung,
)
from tests.rows import Db
from tests.waiting import eventually

Start = Callable[..., Timers]


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
def quiet(short_limits: dict[str, Any]) -> None:
    """The clock is not read in the meantime, so that only a report wakes it."""
    short_limits["clock_seconds"] = 60.0


def test_a_timer_fires_when_it_is_due_and_not_before(
    schedule: Start, database: Db, clock: HandClock, looks: Looks
) -> None:
    """And while it waits MongoDB is not asked, whatever the clock does."""
    database.schedule.insert_one(a_row(run_at=NOON + timedelta(seconds=60)))
    one = schedule()
    eventually(lambda: asleep(one))
    before, asked = looks.ended, clock.asked
    clock.move(seconds=59.999)
    eventually(lambda: clock.asked > asked + 3)
    assert looks.ended == before
    assert rung(database) == []
    clock.move(seconds=0.001)
    eventually(lambda: rung(database))
    row = eventually(lambda: database.schedule.find_one({"runAt": None}))
    assert row["endedAt"]


@pytest.mark.usefixtures("quiet")
def test_a_row_that_its_own_process_sets_fires_at_once(schedule: Start, database: Db) -> None:
    """As the jobworker's step reports it (`tests/jobworker/test_races.py`)."""
    database.schedule.insert_one(a_row("late", NOON + 2 * DAY))
    one = schedule()
    eventually(lambda: asleep(one))
    database.schedule.insert_one(a_row())
    one.set(NOON)
    eventually(lambda: rung(database) == [RANG])
    eventually(lambda: asleep(one))
    database.schedule.update_one({"name": "late"}, {"$set": {"runAt": NOON, "n": 2}})
    one.set(NOON)
    eventually(lambda: len(rung(database)) == 2)


@pytest.mark.usefixtures("quiet")
def test_a_row_typed_by_hand_fires_after_the_next_read(
    schedule: Start, database: Db, looks: Looks
) -> None:
    """Also in an empty `schedule`: the read comes every ten seconds, here sooner."""
    assert READ_SECONDS == 10.0
    one = schedule(clock_seconds=0.02, read_seconds=0.1)
    eventually(lambda: looks.ended > 2)
    database.schedule.insert_one(a_row())
    eventually(lambda: rung(database) == [RANG])
    assert one.stalled() is None


@pytest.mark.usefixtures("quiet")
def test_a_timer_that_is_set_while_it_looks_is_not_missed(
    schedule: Start, database: Db, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set after the rows were read, and reported before the sleep begins."""
    next_at = TimerFiring.next_at
    sets = iter([True])

    def late(firing: TimerFiring) -> Any:
        found = next_at(firing)
        if rung(database) and next(sets, False):
            database.schedule.insert_one(a_row("set", NOON + DAY))
            one.set(NOON + DAY)
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
    schedule: Start, database: Db, clock: HandClock
) -> None:
    database.schedule.insert_one(a_row(every=DAILY))
    clock.move(days=3, hours=1)
    one = schedule()
    eventually(lambda: asleep(one) and rung(database))
    assert database.schedule.find_one()["runAt"] == NOON + 4 * DAY
    clock.move(days=1)
    eventually(lambda: len(rung(database)) == 2)
    assert rung(database) == [RANG, "timer:main/U1/tea:1:2026-04-23T12:00:00.000Z"]


def test_a_clock_that_is_set_back_makes_it_wait_longer_and_daily_timers_come_back(
    schedule: Start, database: Db, clock: HandClock, told: Told
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


def test_a_closed_recvq_is_waited_for_and_said_once(
    schedule: Start, database: Db, told: Told
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
    assert len(told("MongoDB cannot be used")) == 1
    assert told("timers not fired, trying again error=recvq is full: 96% of it is unread")
    open_.set()
    eventually(lambda: len(rung(database)) == 10)
    eventually(lambda: told("MongoDB can be used again"))


def test_nothing_is_inserted_into_a_recvq_that_is_not_as_it_must_be(
    schedule: Start, database: Db, told: Told
) -> None:
    """An insert would create an uncapped one, without the events that have fired."""
    database.recvq.drop()
    database.schedule.insert_one(a_row())
    schedule(longest_pause_seconds=0.05)
    eventually(lambda: told("timers not fired, trying again"))
    assert "recvq" not in database.list_collection_names()
    create_collections(database, capped_bytes=MEGABYTE)
    eventually(lambda: rung(database) == [RANG])


def test_without_the_lease_nothing_fires(
    schedule: Start, database: Db, clock: HandClock, told: Told
) -> None:
    leads = threading.Event()
    database.schedule.insert_one(a_row())
    one = schedule(leads=leads.is_set, longest_pause_seconds=0.01)
    eventually(
        lambda: told("MongoDB cannot be used: timers not fired, trying again error=the lease")
    )
    assert rung(database) == []
    leads.set()
    eventually(lambda: rung(database) == [RANG] and told("MongoDB can be used again"))
    leads.clear()
    database.schedule.insert_one(a_row("late"))
    one.set(NOON)
    eventually(
        lambda: (
            len(told("MongoDB cannot be used: timers not fired, trying again error=the lease")) == 2
        )
    )
    assert rung(database) == [RANG]


@pytest.mark.parametrize("after", [False, True], ids=["before its insert", "after it"])
def test_two_leaders_fire_each_timer_once(
    schedule: Start, database: Db, clock: HandClock, after: bool
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


class EarlierScheduler:
    """The row operations of `linedesk scheduler` of an earlier release, one step at a time."""

    def __init__(self, database: Db, now: datetime) -> None:
        self._database = database
        self._now = now
        self._rows: list[dict[str, Any]] = []

    def read(self) -> None:
        due = self._database.schedule.find({"runAt": {"$lte": self._now}})
        self._rows = list(due.sort("runAt", 1).limit(500))

    def insert(self) -> None:
        for row in self._rows:
            at = row["runAt"]
            event = {"type": "timer", "mode": "active", "timestamp": int(at.timestamp() * 1000)}
            timer = {"id": row["_id"]} | {
                name: row[name] for name in ("name", "n", "runAt", "data")
            }
            name = f"timer:{row['_id']}:{row['n']}:{at:%Y-%m-%dT%H:%M:%S}.000Z"
            with suppress(DuplicateKeyError):
                self._database.recvq.insert_one(
                    {
                        "eventId": name,
                        "channel": row["channel"],
                        "key": row["key"],
                        "acceptTime": self._now,
                        "event": {**event, "timer": timer | {"id": row["_id"]}},
                    }
                )

    def move_on(self) -> None:
        for row in self._rows:
            as_read = {name: row[name] for name in ("_id", "n", "runAt")}
            ended = {"$set": {"runAt": None}, "$currentDate": {"endedAt": True}}
            next_at = {"$set": {"runAt": row["runAt"] + DAY, "rang": row["runAt"]}}
            self._database.schedule.update_one(as_read, next_at if row["every"] else ended)


@pytest.mark.parametrize("before", range(4))
def test_beside_a_scheduler_of_an_earlier_release_each_timer_fires_once(
    schedule: Start, database: Db, clock: HandClock, before: int
) -> None:
    """The leader fires them all after each of its steps: read, insert, move on."""
    database.schedule.insert_many([a_row(), a_row("daily", every=DAILY)])
    earlier = EarlierScheduler(database, NOON)
    steps = [earlier.read, earlier.insert, earlier.move_on]
    for step in steps[:before]:
        step()
    one = schedule()
    eventually(lambda: asleep(one) and one._due_at == NOON + DAY)
    for step in steps[before:]:
        step()
    assert len(rung(database)) == len(set(rung(database))) == 2
    assert database.schedule.find_one({"name": "tea"})["runAt"] is None
    assert database.schedule.find_one({"name": "daily"})["runAt"] == NOON + DAY
    clock.move(days=1)
    eventually(lambda: len(rung(database)) == 3)
