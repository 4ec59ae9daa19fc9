"""Timers that a bot sets, moves and cancels: recorded, carried out, heard while they count."""

import logging
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobworker.bot.talk import Talk
from jobworker.bot.timers import MOST_SECONDS, Timers, checked_name
from jobworker.record.dead_letters import is_sound
from jobworker.record.schedule import Schedule
from linedesk import Bot, BotError, TimerEvent
from linedesk.operate.dead_letters import Replays, effect_again, event_again, explained, replay_name
from linedesk.store.documents import SCHEDULE, Document
from linedesk.store.timers import make_timer_document
from linesim import Sim
from tests.jobworker.worker_harness import CHANNEL, Room, Rooms
from tests.rows import Db
from tests.waiting import eventually

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
WAIT_SECONDS = 15.0


@pytest.fixture
def timers() -> Timers:
    event = {"source": {"type": "user", "userId": "U1"}}
    return Timers({"eventId": "E1", "channel": "main", "key": "U1", "event": event}, member=None)


def test_of_one_name_the_last_counts_and_all_are_in_the_order_of_deciding(timers: Timers) -> None:
    timers.after(1, "egg", {}, now=NOW)
    timers.cancel("rice")
    timers.after(2, "rice", {}, now=NOW)
    timers.cancel("egg")
    timers.after(3, "egg", {}, now=NOW)
    effects = list(timers.effects())
    assert [one["name"] for one in effects] == ["rice", "egg"]
    assert [one["runAt"] - NOW for one in effects] == [timedelta(seconds=s) for s in (2, 3)]


MOMENTS = [datetime(2026, 1, 1), NOW.date(), None, datetime.max.replace(tzinfo=UTC)]


@pytest.mark.parametrize(
    ("way", "args", "more"),
    [
        *(
            ("after", [seconds, "egg", {}], {"now": NOW})
            for seconds in (-0.001, MOST_SECONDS + 1, 10**400, float("nan"), True, "1", None)
        ),
        *(("at", [moment, "egg", {}], {}) for moment in MOMENTS),
        *(
            ("every", [at, "egg", {}], {"tz": tz, "now": NOW})
            for at, tz in [("24:00", "UTC"), (730, "UTC"), ("7:30", "Mars"), ("7:30", None)]
        ),
    ],
)
def test_a_timer_that_cannot_be_is_refused(timers: Timers, way: str, args: Any, more: Any) -> None:
    with pytest.raises(BotError) as caught:
        getattr(timers, way)(*args, **more)
    assert caught.value.reason == "invalid timer"
    assert not list(timers.effects())


@pytest.mark.parametrize("name", ["", "x" * 101, "a/b", "~state", 1, None])
def test_a_name_that_cannot_be_is_refused(name: Any) -> None:
    with pytest.raises(BotError) as caught:
        checked_name(name)
    assert caught.value.reason == "invalid timer"


class Kitchen:
    """A bot that follows its messages: "egg 180", "no egg", "rice 60, no egg"."""

    def __init__(self) -> None:
        self.bot = Bot()
        self.heard: list[TimerEvent] = []
        self.bot.default()(self.told)
        for name in ("egg", "rice"):
            self.bot.timer(name)(self.fired)

    def told(self, event: Any, talk: Talk) -> None:
        for order in talk.raw["message"]["text"].split(", "):
            match order.split():
                case ["no", name]:
                    talk.cancel(name)
                case [name, "daily"]:
                    talk.every("07:30", name)
                case [name, seconds]:
                    talk.after(float(seconds), name, told=order)
                case ["fail"]:
                    raise ValueError
                case ["say"]:
                    talk.push("はい")

    def fired(self, event: TimerEvent, talk: Talk) -> None:
        self.heard.append(event)
        talk.push(f"{event.name}ができました")


@pytest.fixture
def kitchen() -> Kitchen:
    return Kitchen()


def the_row(database: Db, name: str) -> Document:
    found: Document | None = database[SCHEDULE].find_one({"name": name})
    assert found is not None
    return found


def a_ring(database: Db, name: str = "egg") -> Document:
    """The document that the dispatcher makes of the row as it is now."""
    return make_timer_document(the_row(database, name), accept_time=datetime.now(UTC))


def say(desk: Room, user: Any, text: str) -> None:
    desk.says(user, text)
    desk.until_quiet()


def ring(desk: Room, document: Document) -> None:
    desk.put_document(document)
    desk.until_quiet()


def put_back(desk: Room, letter: Document) -> Document:
    """The document of the letter's replay, which an operator has begun."""
    again = effect_again if "effect" in letter else event_again
    document = again(letter, name=replay_name(letter), now=datetime.now(UTC))
    assert Replays(desk.database).put(letter, document)
    return document


def test_a_timer_becomes_a_row_that_the_dispatcher_can_fire(
    database: Db, room: Rooms, sim: Sim, kitchen: Kitchen
) -> None:
    user = sim.add_user("花子")
    desk = room(kitchen.bot)
    document = desk.says(user, "egg 180, rice daily")
    desk.until_quiet()
    egg, rice = the_row(database, "egg"), the_row(database, "rice")
    due = egg.pop("runAt")
    assert timedelta(seconds=150) < due - datetime.now(UTC) <= timedelta(seconds=180)
    assert egg == {
        "_id": f"{CHANNEL}/{user.user_id}/egg",
        "channel": CHANNEL,
        "key": user.user_id,
        "name": "egg",
        "n": 1,
        "every": None,
        "data": {"told": "egg 180"},
        "source": {"type": "user", "userId": user.user_id},
        "setBy": document["eventId"],
    }
    assert (rice["n"], rice["every"]) == (1, {"at": "07:30", "tz": "Asia/Tokyo"})
    assert desk.conversation(user.user_id)["n"] == 1

    ring(desk, a_ring(database))
    (event,) = kitchen.heard
    assert (event.name, event.data, event.due) == ("egg", {"told": "egg 180"}, due)
    assert [bubble.text for bubble in sim.answers(user)] == ["eggができました"]


def test_a_timer_that_was_moved_fires_only_at_its_new_time(
    database: Db, room: Rooms, sim: Sim, kitchen: Kitchen, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "jobworker")
    user, desk = sim.add_user("花子"), room(kitchen.bot)
    say(desk, user, "egg 180")
    first = a_ring(database)
    say(desk, user, "egg 300")
    second = a_ring(database)
    assert (first["event"]["timer"]["n"], second["event"]["timer"]["n"]) == (1, 2)
    # It had fired before the move reached its row.
    ring(desk, first)
    assert kitchen.heard == []
    assert "timer was overtaken" in caplog.text
    ring(desk, second)
    assert [event.data for event in kitchen.heard] == [{"told": "egg 300"}]


def test_a_cancelled_timer_is_not_heard_and_its_row_goes_after_a_while(
    database: Db, room: Rooms, sim: Sim, kitchen: Kitchen
) -> None:
    user, desk = sim.add_user("花子"), room(kitchen.bot)
    say(desk, user, "egg 180")
    rung = a_ring(database)
    say(desk, user, "no egg")
    row = the_row(database, "egg")
    assert (row["n"], row["runAt"], row["every"], row["data"]) == (2, None, None, {})
    assert abs(datetime.now(UTC) - row["endedAt"]) < timedelta(seconds=30)
    ring(desk, rung)
    # Replayed by an operator from where it was given up, or so it might look.
    letter = {"_id": rung["eventId"], "document": rung}
    ring(desk, event_again(letter, name=replay_name(letter), now=datetime.now(UTC)))
    assert kitchen.heard == []

    database["schedule"].update_one({"_id": row["_id"]}, {"$set": {"setAside": "by a person"}})
    say(desk, user, "egg 60")
    row = the_row(database, "egg")
    assert row["n"] == 3
    assert not {"endedAt", "setAside"} & set(row)
    ring(desk, a_ring(database))
    assert len(kitchen.heard) == 1


def test_an_overtaken_timer_runs_no_handler_while_the_later_one_is_still_in_the_outbox(
    database: Db, room: Rooms, sim: Sim, kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, desk = sim.add_user("花子"), room(kitchen.bot)
    say(desk, user, "egg 180, rice 180")
    egg, rice = a_ring(database), a_ring(database, "rice")
    go_on, enter = threading.Event(), Schedule.enter

    def held_up(schedule: Schedule, effect: Any) -> Any:
        assert go_on.wait(WAIT_SECONDS)
        return enter(schedule, effect)

    monkeypatch.setattr(Schedule, "enter", held_up)
    desk.says(user, "no egg")
    desk.put_document(egg)
    desk.put_document(rice)
    desk.until_decided()
    assert the_row(database, "egg")["n"] == 1
    assert [event.name for event in kitchen.heard] == ["rice"]
    go_on.set()
    desk.until_quiet()
    assert the_row(database, "egg")["n"] == 2


def test_a_fired_timer_without_its_row_is_handled_when_an_operator_puts_the_row_back(
    database: Db, room: Rooms, sim: Sim, kitchen: Kitchen
) -> None:
    """It cannot be distinguished from one that was inserted into recvq by another program."""
    user, desk = sim.add_user("花子"), room(kitchen.bot)
    say(desk, user, "egg 180")
    rung = a_ring(database)
    database[SCHEDULE].delete_many({})
    ring(desk, rung)
    assert kitchen.heard == []
    (letter,) = desk.letters()
    assert explained(letter).startswith("refused: it looks like a fired timer")
    ring(desk, put_back(desk, letter))
    assert [event.name for event in kitchen.heard] == ["egg"]


@pytest.mark.parametrize(
    "forged",
    [
        {"timer.data": {"told": "anything"}},
        {"timer.name": "rice"},
        {"timer.id": "main/U9/egg"},
        {"timer.n": 7},
        {"source": {"type": "user", "userId": "U9"}},
        {"key": "U9"},
    ],
    ids=lambda forged: next(iter(forged)),
)
def test_a_fired_timer_that_differs_from_its_row_is_refused(
    database: Db, room: Rooms, sim: Sim, kitchen: Kitchen, forged: dict[str, Any]
) -> None:
    user, desk = sim.add_user("花子"), room(kitchen.bot)
    say(desk, user, "egg 180")
    rung = a_ring(database)
    ((path, value),) = forged.items()
    place = rung if path == "key" else rung["event"]
    *above, name = path.split(".")
    for part in above:
        place = place[part]
    place[name] = value
    ring(desk, rung)
    assert kitchen.heard == []
    assert [explained(letter).partition(":")[0] for letter in desk.letters()] == ["refused"]


def test_timers_do_not_wait_behind_a_send_that_is_stuck(
    database: Db, room: Rooms, sim: Sim, kitchen: Kitchen
) -> None:
    user, desk = sim.add_user("花子"), room(kitchen.bot)
    desk.desk.gate.close()
    desk.says(user, "say, egg 180")
    eventually(lambda: database[SCHEDULE].find_one({"name": "egg"}))
    eventually(lambda: [one["type"] for one in desk.effects()] == ["send"])
    eventually(lambda: len(desk.desk.outbox.boxes) == 1)


def test_a_handler_that_is_given_up_sets_no_timers(
    database: Db, room: Rooms, sim: Sim, kitchen: Kitchen
) -> None:
    user, desk = sim.add_user("花子"), room(kitchen.bot, tries=2)
    say(desk, user, "egg 180, fail")
    assert [letter["attempts"] for letter in desk.letters()] == [2]
    assert database[SCHEDULE].count_documents({}) == 0


def test_a_timer_that_no_handler_is_for_is_given_up_until_there_is_one(
    database: Db, room: Rooms, sim: Sim, kitchen: Kitchen
) -> None:
    user, desk = sim.add_user("花子"), room(kitchen.bot)
    say(desk, user, "soup 180")
    ring(desk, a_ring(database, "soup"))
    (letter,) = desk.letters()
    assert (explained(letter), letter["attempts"]) == ("handler: NoTimerHandler", 1)
    kitchen.bot.timer("soup")(kitchen.fired)
    ring(desk, put_back(desk, letter))
    assert [event.name for event in kitchen.heard] == ["soup"]


def test_a_row_that_mongodb_refuses_is_given_up_and_can_be_set_again(
    database: Db, room: Rooms, sim: Sim, kitchen: Kitchen
) -> None:
    user, desk = sim.add_user("花子"), room(kitchen.bot)
    database.command({"collMod": SCHEDULE, "validator": {"name": {"$ne": "egg"}}})
    try:
        say(desk, user, "egg 180, rice 180")
    finally:
        database.command({"collMod": SCHEDULE, "validator": {}})
    (letter,) = desk.letters()
    assert explained(letter) == "MongoDB refuses the write: code 121"
    assert (letter["key"], letter["effect"]["timer"]) == (
        user.user_id,
        f"{CHANNEL}/{user.user_id}/egg",
    )
    assert [row["name"] for row in database[SCHEDULE].find()] == ["rice"]

    assert is_sound(letter)
    name = replay_name(letter)
    ring(desk, put_back(desk, letter))
    row = the_row(database, "egg")
    assert (row["n"], row["runAt"], row["setBy"]) == (2, letter["effect"]["runAt"], name)
