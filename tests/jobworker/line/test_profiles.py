"""The sender's profile: fetched once a day, and never at the price of a late answer."""

import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from jobworker.bot.talk import Talk
from jobworker.line import profiles
from jobworker.line.profiles import has_time
from linedesk import Bot
from linedesk.operate.conversation import read_conversation
from linedesk.operate.find import by_name, find_conversation
from linedesk.store.documents import make_document
from linesim import Sim
from tests.dispatcher.faults import failing
from tests.jobworker.worker_harness import Room, Rooms, texts
from tests.waiting import eventually

PROFILES = "jobworker.line.profiles"
SHORT = {
    "jobworker.line.breaker.UNAUTHORIZED_PAUSE_SECONDS": 0.01,
    "jobworker.line.rate_limits.FIRST_PAUSE_SECONDS": 0.001,
    f"{PROFILES}.FIRST_PAUSE_SECONDS": 0.01,
}


def limited(**limits: float) -> dict[str, Any]:
    """The settings of a room with some other limits of profiles."""
    return {**SHORT, **{f"{PROFILES}.{name.upper()}": one for name, one in limits.items()}}


# Names that no answer waits for are asked for at once.
AT_ONCE = limited(later_seconds=0.01)


NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
def named() -> Bot:
    bot = Bot(profiles=True)

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        talk.reply(talk.display_name or "(名無し)")

    return bot


@pytest.fixture
def room(room: Rooms) -> Rooms:
    """Makes rooms with short pauses between tries."""
    return partial(room, line=SHORT)


def fetched(sim: Sim, user: Any) -> int:
    return len([call for call in sim.calls if user.user_id in call.path])


def test_a_profile_is_fetched_once_a_day(room: Rooms, sim: Sim, named: Bot) -> None:
    user = sim.add_user("花子")
    desk = room(named)
    for _ in range(3):
        desk.says(user, "?")
    desk.until_quiet()
    assert (texts(sim, user), fetched(sim, user)) == (["花子"] * 3, 1)
    kept = desk.conversation(user.user_id)["profile"]
    assert kept["displayName"] == "花子"
    assert isinstance(kept["at"], datetime)
    yesterday = datetime.now(UTC) - timedelta(days=1, seconds=1)
    desk.database.conversations.update_one({}, {"$set": {"profile.at": yesterday}})
    desk = room(named, epoch=2)
    desk.says(user, "?")
    desk.until_quiet()
    assert fetched(sim, user) == 2


def test_a_key_that_waits_for_a_profile_holds_no_thread(room: Rooms, sim: Sim) -> None:
    bot, ran = Bot(profiles=True), []

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        ran.append(talk.key)

    slow = sim.add_user("花子")
    sim.delay_next("profile", 0.5)
    # Of two threads one makes the call, and jobs may have the other alone.
    desk = room(bot, threads=2)
    desk.says(slow, "?")
    for n in range(5):
        desk.put({"type": "x", "source": {"type": "user", "userId": f"U{n}"}})
    desk.until_decided()
    assert ran == ["U0", "U1", "U2", "U3", "U4", slow.user_id]


def test_a_name_is_found_while_the_first_handler_runs_and_is_gone_if_it_forgets(
    room: Rooms, sim: Sim
) -> None:
    bot, goes_on = Bot(profiles=True), threading.Event()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        assert goes_on.wait(20)
        if talk.raw["message"]["text"] == "forget":
            talk.forget()

    desk, hanako, taro = room(bot), sim.add_user("花子"), sim.add_user("太郎")
    database = desk.database
    desk.says(hanako, "?")
    desk.says(taro, "forget")
    try:
        for user, name in ((hanako, "花"), (taro, "太")):
            id_ = f"main/{user.user_id}"
            assert eventually(lambda name=name: [r["_id"] for r in by_name(database, name)[0]])
            assert find_conversation(database, name, channel="main") == id_
            row = database.conversations.find_one({"_id": id_}) or {}
            assert (row["n"], row["applied"], row["data"], row["outbox"]) == (0, [], {}, {})
    finally:
        goes_on.set()
    desk.until_quiet()
    assert find_conversation(database, "花子", channel="main") == f"main/{hanako.user_id}"
    recorded = database.conversations.find_one({"_id": f"main/{hanako.user_id}"}) or {}
    assert (recorded["n"], len(recorded["applied"])) == (1, 1)
    assert not by_name(database, "太")[0]


def people(desk: Room, key: str) -> dict[str, Any]:
    """The conversation, also before its first event is recorded."""
    return desk.database.conversations.find_one({"_id": f"main/{key}"}) or {}


@pytest.fixture
def later() -> Bot:
    """Replies with the name it knows; 「忘れて」 and an unfollow make it forget."""
    bot = Bot(profiles="later")

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        if getattr(getattr(event, "message", None), "text", "") == "忘れて":
            talk.forget()
        talk.reply(talk.display_name or "(名無し)")

    return bot


def test_a_name_is_asked_for_after_the_answer_and_once_a_day(
    room: Rooms, sim: Sim, later: Bot
) -> None:
    user = sim.add_user("花子")
    desk = room(later, line=AT_ONCE)
    desk.says(user, "?")
    eventually(lambda: people(desk, user.user_id).get("profile"))
    assert find_conversation(desk.database, "花子", channel="main") == f"main/{user.user_id}"
    for _ in range(2):
        desk.says(user, "?")
        desk.until_quiet()
    assert (texts(sim, user), fetched(sim, user)) == (["(名無し)", "花子", "花子"], 1)
    reply, profile, *_ = [call.endpoint for call in sim.calls if call.user_id == user.user_id]
    assert (reply, profile) == ("reply", "profile")


def test_a_group_is_found_by_its_name_and_its_members_are(
    room: Rooms, sim: Sim, later: Bot
) -> None:
    users = [sim.add_user(name, friend=False) for name in ("梅子", "松子")]
    group = sim.add_group("山の会", users)
    desk = room(later, line=AT_ONCE)
    for user in users:
        desk.says(user, "?", chat=group)
    eventually(lambda: len(people(desk, group.chat_id).get("members", ())) == 2)
    eventually(lambda: people(desk, group.chat_id).get("profile"))
    for name in ("山の会", "梅子", "松子"):
        assert find_conversation(desk.database, name, channel="main") == f"main/{group.chat_id}"
    assert read_conversation(desk.database, f"main/{group.chat_id}")["name"] == "山の会"
    assert len([call for call in sim.calls_to("group_summary") if group.chat_id in call.path]) == 1
    # Without a sender the group's name belongs to no user: no event is answered by 山の会さん.
    desk.send(sim.drafts.join(group))
    desk.until_quiet()
    assert texts(sim, group)[-1] == "(名無し)"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """A name that no answer waits for is about to be asked for."""
    begun, ask = threading.Event(), profiles.LaterProfiles.request

    def then_ask(self: Any) -> Any:
        begun.set()
        return ask(self)

    monkeypatch.setattr(profiles.LaterProfiles, "request", then_ask)
    return begun


def test_a_name_forgotten_meanwhile_is_not_written(
    room: Rooms, sim: Sim, later: Bot, asked: threading.Event
) -> None:
    user = sim.add_user("桜子")
    desk = room(later, line=AT_ONCE)
    sim.delay_next("profile", 0.5)
    desk.says(user, "?")
    assert asked.wait(15)
    desk.says(user, "忘れて")
    desk.until_decided()
    eventually(lambda: fetched(sim, user))
    eventually(lambda: not desk.desk.names._is_asking)
    assert desk.conversation(user.user_id)["profile"] is None
    # A name that had not been requested yet is not written either.
    names, gate = desk.desk.names, desk.desk.gate
    event = sim.drafts.text(user, "?")
    document = make_document(event, channel="main", accept_time=datetime.now(UTC))
    with gate.turn():
        names.want(document, sender=True)
        names.forget(f"main/{user.user_id}")
    eventually(lambda: not names._is_asking)
    assert fetched(sim, user) == 1
    desk.says(user, "忘れて")
    desk.until_decided()
    assert not names._wanted


def test_a_mongodb_that_hangs_before_a_name_is_asked_for_does_not_hold_the_gate(
    room: Rooms, sim: Sim, later: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, found, read = threading.Event(), [], profiles.LaterProfiles.is_wanted

    def then_read(self: Any) -> Any:
        reading.set()
        found.append(read(self))
        return found[-1]

    monkeypatch.setattr(profiles.LaterProfiles, "is_wanted", then_read)
    user, desk = sim.add_user("桔梗"), room(later, line=limited(later_seconds=0.3))
    namespace = f"{desk.database.name}.conversations"
    hangs = {"blockConnection": True, "blockTimeMS": 3_000, "namespace": namespace}
    desk.says(user, "?")
    eventually(lambda: texts(sim, user) == ["(名無し)"])
    with failing(desk.database.client, ["find"], **hangs):
        assert reading.wait(15)
        with desk.desk.gate.turn():
            assert found == [False], "the gate waited for MongoDB's answer"
    assert not fetched(sim, user)


@pytest.mark.parametrize(
    ("age_seconds", "before", "turn_seconds", "enough"),
    [
        (0, 0, 0.1, True),
        (29.9, 0, 0.1, True),
        (30, 0, 0.0, False),
        (0, 381, 0.1, True),
        (0, 383, 0.1, False),
        (0, 100_000, 0.0, True),
        (20, 0, 20.0, False),
    ],
)
def test_time_for_a_profile(
    age_seconds: float, before: int, turn_seconds: float, enough: bool
) -> None:
    accepted = NOW - timedelta(seconds=age_seconds)
    assert has_time(accepted, NOW, turns_before=before, turn_seconds=turn_seconds) is enough
