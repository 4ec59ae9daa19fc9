"""A timer for all friends, by a worker that reads orders: each gets it once, whatever dies."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from dispatcher.control import ControlReader
from linedesk import Bot
from linedesk.operate.acts import Acts, OperatorControl
from linedesk.operate.dead_letters import explained
from linedesk.store.control import TimerOrder, now_stored
from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable
from linedesk.store.records.letters import under_replay
from linedesk.store.timers import make_timer_document
from linesim import Sim
from tests.jobworker.worker_harness import Room, Rooms
from tests.rows import Db

MONDAYS = {"runAt": None, "every": {"at": "月 12:00", "tz": "Asia/Tokyo"}, "data": {}}
ALICE, BOB = "main/U1", "main/U2"


def a_bot() -> Bot:
    bot = Bot()
    bot.timer("news")(lambda event, talk: talk.push("ニュース"))
    return bot


@pytest.fixture
def friends(database: Db) -> list[str]:
    """Two users that get timers, and others that do not."""

    def put(key: str, **more: Any) -> None:
        row = {"channel": "main", "key": key, "n": 3, "applied": [], "outbox": {}, "data": {}}
        database.conversations.insert_one({"_id": f"main/{key}", **row, **more})

    put("U1", kind="user", friend=True)
    put("U2", kind="user")
    put("U3", kind="user", friend=False)
    put("C1", kind="group")
    return [ALICE, BOB]


def reader(desk: Room, database: Db) -> ControlReader:
    lease: Any = SimpleNamespace(is_fresh=lambda: True)
    return ControlReader(OperatorControl(database), desk.pool, desk.desk, lease)


def ordered(database: Db, name: str = "news", timer: Document = MONDAYS) -> TimerOrder:
    order = TimerOrder(name, timer, "taro", now_stored())
    return OperatorControl(database).order_timers(order)


def carried_out(database: Db, order: TimerOrder, looks: ControlReader) -> Any:
    for _ in range(10):
        looks.look()
        if came := OperatorControl(database).outcome_of(order):
            return came
    raise AssertionError("not carried out")


def rows(database: Db) -> dict[str, int]:
    return {row["_id"]: row["n"] for row in database.schedule.find({"runAt": {"$ne": None}})}


def fire_starts(desk: Room, database: Db) -> None:
    for row in database.schedule.find({"name": {"$regex": "^~start"}, "runAt": {"$ne": None}}):
        desk.put_document(make_timer_document(row, accept_time=datetime.now(UTC)))
        database.schedule.update_one({"_id": row["_id"]}, {"$set": {"runAt": None}})
    desk.until_quiet()


def test_each_user_who_has_not_blocked_the_bot_gets_the_timer(
    database: Db, room: Rooms, friends: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobworker.timer_orders.MOST_AT_ONCE", 1)
    desk = room(a_bot())
    order = ordered(database)
    came = carried_out(database, order, reader(desk, database))
    assert came == {"code": "timers_set", "count": 2}
    desk.until_quiet()
    assert rows(database) == {f"{id_}/news": 4 for id_ in friends}
    row = database.schedule.find_one({"key": "U1"})
    assert (row["every"], row["source"]) == (MONDAYS["every"], {"type": "user", "userId": "U1"})
    local = row["runAt"].astimezone(UTC) + timedelta(hours=9)
    assert (local.weekday(), local.hour) == (0, 12)


def test_a_successor_goes_on_and_sets_no_timer_twice(
    database: Db, room: Rooms, friends: list[str]
) -> None:
    """The first one dies after its records, before it notes them in the order."""
    first = room(a_bot())
    order = ordered(database)
    assert first.desk.timer_orders.step(order) == friends
    first.until_quiet()
    moved = database.schedule.find_one_and_update({"key": "U1"}, {"$set": {"runAt": None}})
    second = room(a_bot(), epoch=2)
    assert carried_out(database, order, reader(second, database))["count"] == 2
    second.until_quiet()
    # One that was cancelled meanwhile stays so.
    assert rows(database) == {f"{BOB}/news": 4}
    assert (moved["n"], second.conversation("U1")["n"]) == (4, 4)


@pytest.mark.parametrize("is_written", [True, False])
def test_a_record_of_unknown_outcome_is_carried_out_once(
    database: Db, room: Rooms, friends: list[str], monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    desk = room(a_bot())
    store, failures = desk.desk.outbox.sender.outcomes.conversations, iter([True, True])
    real, find = store.recorded, store._find

    def recorded(recording: Any, **more: Any) -> Any:
        if is_written and next(failures, False):
            raise StoreUnavailable("MongoDB did not confirm in time")
        return real(recording, **more)

    def found(id_: str, wanted: Any) -> Document:
        """Each conversation is changed by an event meanwhile."""
        is_old = not is_written and wanted == {"n": 1} and next(failures, False)
        return {"n": 2} if is_old else find(id_, wanted)

    monkeypatch.setattr(store, "recorded", recorded)
    monkeypatch.setattr(store, "_find", found)
    looks, order = reader(desk, database), ordered(database)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            looks.look()
    assert carried_out(database, order, looks)["count"] == 2
    desk.until_quiet()
    assert rows(database) == {f"{id_}/news": 4 for id_ in friends}


def test_an_order_without_a_handler_and_an_incomplete_one_set_nothing(
    database: Db, room: Rooms, friends: list[str]
) -> None:
    looks, order = reader(room(a_bot()), database), ordered(database, "nwes")
    broken = {"act": "timers", "name": "x", "by": "", "at": now_stored(), "last": "", "count": 0}
    for timer in ({}, {"every": None, "runAt": "soon"}, {"every": {"at": "25:00", "tz": "UTC"}}):
        database.control.insert_one({"_id": "timers/x", "timer": timer, **broken})
        assert OperatorControl(database).orders().timers == (order,)
        database.control.delete_one({"_id": "timers/x"})
    assert carried_out(database, order, looks) == {"code": "no_timer_handler", "count": 0}
    assert rows(database) == {}


def test_start_timers_runs_once_in_each_conversation(
    database: Db, room: Rooms, sim: Sim, friends: list[str]
) -> None:
    bot, ran = a_bot(), list[str]()

    @bot.start_timers("monday-news")
    def start(event: Any, talk: Any) -> None:
        ran.append(talk.key)
        talk.every("月 12:00", "news")

    def start_with(desk: Room) -> None:
        looks = reader(desk, database)
        for _ in range(4):
            looks.look()
        desk.until_quiet()
        fire_starts(desk, database)

    start_with(room(bot))
    assert sorted(ran) == ["U1", "U2"]
    assert sorted(rows(database)) == [f"{id_}/news" for id_ in friends]
    # Another dispatcher; and one on an imported database, which has no orders.
    start_with(room(bot, epoch=2))
    database.control.delete_many({})
    start_with(room(bot, epoch=3))
    assert sorted(ran) == ["U1", "U2"]
    assert database.deadletters.count_documents({}) == 0


def test_an_older_release_in_between_costs_no_start(
    database: Db, room: Rooms, friends: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its timers become dead letters, the rest of the order waits, and other orders do not."""
    monkeypatch.setattr("jobworker.timer_orders.MOST_AT_ONCE", 1)
    new, ran = a_bot(), list[str]()
    new.start_timers("2027")(lambda event, talk: ran.append(talk.key))
    bots = [new, a_bot(), new]
    for epoch, looks in enumerate((2, 4, 4), 1):
        desk = room(bots[epoch - 1], epoch=epoch)
        if epoch == 2:
            other = ordered(database, "お知らせ")
        for _ in range(looks):
            reader(desk, database).look()
        desk.until_quiet()
        if epoch > 1:
            fire_starts(desk, database)
    assert OperatorControl(database).outcome_of(other) == {"code": "no_timer_handler", "count": 0}
    assert [explained(one) for one in desk.letters()] == ["handler: NoTimerHandler"]
    Acts(database, by="taro", via="command").replay(desk.letters()[0]["_id"])
    # Before it are the documents of other tests.
    *_, replay = (one for one in database.recvq.find() if under_replay(one) is not None)
    desk.put_document(replay)
    desk.until_quiet()
    assert sorted(ran) == ["U1", "U2"]
