"""One firing, step by step: a crash or a freeze in between loses and doubles nothing."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS
from pymongo.write_concern import WriteConcern

from dispatcher import timers as firing
from dispatcher.metrics import TimerMetrics
from dispatcher.timers import TimerFiring
from linedesk.setup.collections import create_collections
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable
from tests.dispatcher.conftest import Told
from tests.dispatcher.timers.conftest import DAILY, DAY, NOON, RANG, HandClock, a_row, rung
from tests.linedesk.store.lagging import LaggingSet
from tests.rows import Db


class Died(Exception):
    """The process is gone."""


class Open:
    """A guard of a recvq that has room; `inserting` is around each insert."""

    def __init__(self, inserting: Any) -> None:
        self.inserting = inserting

    def look_when_due(self) -> None: ...


def timer_firing(database: Db, clock: HandClock, inserting: Any = None) -> TimerFiring:
    guard: Any = Open(inserting or (lambda size: nullcontext()))
    return TimerFiring(database, guard, now=clock, figures=TimerMetrics())


def row(database: Db, id_: str = "main/U1/tea") -> Document:
    found: Document | None = database["schedule"].find_one({"_id": id_})
    assert found is not None
    return found


def test_a_fired_timer_is_ended_by_the_clock_that_removes_it(
    database: Db, clock: HandClock
) -> None:
    database["schedule"].insert_one(a_row())
    one = timer_firing(database, clock)
    assert one.fire() == 1
    assert one.fire() is None
    assert one.next_at() is None
    assert rung(database) == [RANG]
    assert row(database)["runAt"] is None
    # The server's clock, which also removes it: the hand clock is in another year.
    assert abs(row(database)["endedAt"] - NOON) > DAY


@pytest.mark.parametrize("every", [None, DAILY])
def test_a_crash_between_the_insert_and_the_update_fires_once(
    database: Db, clock: HandClock, every: Any
) -> None:
    @contextmanager
    def dying(size: int) -> Iterator[None]:
        yield
        raise Died

    database["schedule"].insert_one(a_row(every=every))
    with pytest.raises(Died):
        timer_firing(database, clock, dying).fire()
    assert row(database)["runAt"] == NOON

    clock.move(minutes=1)
    assert timer_firing(database, clock).fire() == 1
    assert rung(database) == [RANG]
    assert row(database)["runAt"] == (NOON + DAY if every else None)


def test_rows_that_were_read_by_a_process_that_froze_since_are_read_again(
    database: Db, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the meantime they fired, and recvq was overwritten: nothing else would prevent a second
    firing.
    """
    boot = [0.0]

    @contextmanager
    def freezing(size: int) -> Iterator[None]:
        assert timer_firing(database, clock).fire() == 1
        database["recvq"].drop()
        boot[0] += 3600
        yield

    monkeypatch.setattr(firing, "boottime", lambda: boot[0])
    database["schedule"].insert_one(a_row())
    frozen = timer_firing(database, clock, freezing)
    with pytest.raises(StoreUnavailable, match="too long ago"):
        frozen.fire()
    assert rung(database) == []
    assert frozen.fire() is None


@pytest.mark.parametrize(
    "meanwhile",
    [
        {"n": 2, "runAt": NOON + DAY},
        {"n": 2, "runAt": NOON},
        {"n": 2, "runAt": None},
        {"n": 1, "runAt": NOON + DAY},
    ],
    ids=["moved", "set anew for the same time", "cancelled", "rung elsewhere"],
)
@pytest.mark.parametrize("after", [False, True], ids=["before the insert", "after it"])
def test_a_row_that_was_changed_meanwhile_stays_as_it_is(
    database: Db, clock: HandClock, meanwhile: Document, after: bool
) -> None:
    """The late event is in recvq: its job ends, since its row has a higher `n` by then."""

    def change() -> None:
        database["schedule"].update_one({}, {"$set": meanwhile})

    @contextmanager
    def freezing(size: int) -> Iterator[None]:
        if not after:
            change()
        yield
        if after:
            change()

    database["schedule"].insert_one(a_row(every=DAILY))
    assert timer_firing(database, clock, freezing).fire() == 0
    assert row(database).items() >= meanwhile.items()
    assert rung(database) == [RANG]
    assert "rang" not in row(database)


def test_broken_rows_are_said_once_and_are_in_nobodys_way(
    database: Db, clock: HandClock, told: Told
) -> None:
    database["schedule"].insert_many(
        [
            a_row("no-data", data=None),
            a_row("no-zone", every={"at": "07:30", "tz": "Mars"}),
            a_row("long-ago", DatetimeMS(-(10**15))),
            {"_id": {"by": "hand"}, "runAt": NOON},
            a_row(),
        ]
    )
    one = timer_firing(database, clock)
    assert one.fire() == 5
    assert one.fire() is None
    assert rung(database) == [RANG]
    assert len(told("timer is invalid and was set aside")) == 4
    aside = row(database, "main/U1/no-data")
    assert (aside["runAt"], aside["setAside"]) == (None, "data is no object")
    # The row waits for a person, not for its removal.
    assert "endedAt" not in aside


def test_a_document_that_mongodb_rejects_is_set_aside_and_the_others_fire(
    database: Db, clock: HandClock, told: Told
) -> None:
    deep: Document = {}
    for _ in range(178):
        deep = {"in": deep}
    database["schedule"].insert_many([a_row("deep", data=deep), a_row()])
    one = timer_firing(database, clock)
    assert one.fire() == 1
    assert one.fire() == 1
    assert one.fire() is None
    assert told("set aside") == [
        'timer is invalid and was set aside id=main/U1/deep reason="MongoDB does not take its '
        'document"'
    ]
    assert rung(database) == [RANG]


def test_a_batch_is_bounded_in_rows_and_bytes_and_goes_by_due_time(
    database: Db, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatcher.timers.BATCH_BYTES", 2500)
    text = {"text": "x" * 1000}
    rows = [a_row(f"{n}", NOON - timedelta(seconds=n), data=text) for n in range(9)]
    database["schedule"].insert_many(rows)
    one = timer_firing(database, clock)
    assert one.fire(most=2) == 2
    assert [one.fire() for _ in range(3)] == [3, 3, 1]
    assert [name.split("/")[2].split(":")[0] for name in rung(database)] == list("876543210")


def test_daily_timers_fired_by_a_clock_ahead_return_to_their_regular_time(
    database: Db, clock: HandClock, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatcher.timers.BATCH_ROWS", 2)
    clock.move(hours=-6)
    right = clock.now
    dailies = [a_row(f"daily-{n}", every=DAILY) for n in range(3)]
    others = [
        a_row("once", NOON + 9 * DAY),
        a_row("broken", NOON + 9 * DAY, every={"at": "25:00", "tz": "Mars"}),
        a_row("never rang", NOON + 3 * DAY, every=DAILY),
        a_row("beyond", DatetimeMS(10**15), every=DAILY),
        a_row("cancelled", None, every=DAILY),
    ]
    database["schedule"].insert_many(dailies + others)
    one = timer_firing(database, clock)
    clock.move(days=3)
    assert one.fire() == 3
    assert row(database, "main/U1/daily-0")["runAt"] == NOON + 3 * DAY

    clock.now = right
    one.bring_back(stop=threading.Event())
    # It has fired for today, by the clock that was ahead.
    assert {row(database, one["_id"])["runAt"] for one in dailies} == {NOON + DAY}
    assert row(database, "main/U1/once")["runAt"] == NOON + 9 * DAY
    assert row(database, "main/U1/broken")["runAt"] == NOON + 9 * DAY
    assert row(database, "main/U1/never rang")["runAt"] == NOON
    assert row(database, "main/U1/cancelled")["runAt"] is None
    assert len(told("daily timers moved to their regular time")) == 2

    one.bring_back(stop=threading.Event())
    assert len(told("daily timers moved to their regular time")) == 2
    clock.now = NOON
    one.fire()
    clock.now = NOON + DAY
    one.fire()
    times = [name.partition("daily-0:1:")[2] for name in rung(database) if "daily-0" in name]
    assert times == ["2026-04-19T12:00:00.000Z", "2026-04-20T12:00:00.000Z"]


def test_a_row_is_read_before_a_lagging_majority_shows_it(
    lagging: LaggingSet, clock: HandClock
) -> None:
    """A majority read of a new primary may lack it, and the timer would be late."""
    database = lagging.client["timers_seen"]
    create_collections(database, capped_bytes=MEGABYTE)
    one = timer_firing(database, clock)
    fired_rows: list[int | None] = []
    with lagging.held_back():
        unsure = database["schedule"].with_options(write_concern=WriteConcern(w=1))
        unsure.insert_one(a_row())
        assert one.next_at() == NOON
        reader = threading.Thread(target=lambda: fired_rows.append(one.fire()))
        reader.start()
    reader.join(20)
    assert fired_rows == [1]
