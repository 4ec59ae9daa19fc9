"""The sender's profile: fetched once a day, and never at the price of a late answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from jobworker.bot.talk import Talk
from jobworker.line import profiles
from jobworker.line.answer import LineAnswer
from jobworker.line.breaker import BreakerState
from jobworker.line.gate_order import Standing, Ticket
from jobworker.line.profiles import has_time, is_fresh, profile_of
from jobworker.record.conversations import ConversationStore
from linedesk import Bot
from linedesk.operate.conversation import read_conversation
from linedesk.operate.find import by_name, find_conversation
from linedesk.store.documents import make_document
from linedesk.store.errors import StoreUnavailable
from linedesk.store.records.calls import TurnClass
from linesim import Sim
from tests.dispatcher.faults import failing
from tests.jobworker.worker_harness import Room
from tests.waiting import eventually

Rooms = Callable[..., Room]
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


def texts(sim: Sim, chat: Any) -> list[str | None]:
    return [bubble.text for bubble in sim.answers(chat)]


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


def test_a_user_unknown_to_line_has_no_name_and_is_not_asked_for_again(
    room: Rooms, sim: Sim, named: Bot
) -> None:
    user = sim.add_user("花子")
    sim.answer_next("profile", 404)
    desk = room(named)
    for _ in range(2):
        desk.says(user, "?")
    desk.until_quiet()
    assert (texts(sim, user), fetched(sim, user)) == (["(名無し)"] * 2, 1)


@pytest.mark.parametrize(
    "plan",
    [
        lambda sim: sim.answer_next("profile", 503, times=2),
        lambda sim: sim.close_next("profile", times=2),
    ],
)
def test_a_temporary_error_is_tried_again(
    room: Rooms, sim: Sim, named: Bot, plan: Callable[[Sim], None]
) -> None:
    user = sim.add_user("花子")
    plan(sim)
    desk = room(named)
    desk.says(user, "?")
    desk.until_quiet()
    assert (texts(sim, user), fetched(sim, user)) == (["花子"], 3)


@pytest.mark.parametrize("status", [401, 429])
def test_an_answer_unrelated_to_the_user_is_not_kept(
    room: Rooms, sim: Sim, named: Bot, status: int
) -> None:
    user = sim.add_user("花子")
    sim.answer_next("profile", status)
    desk = room(named)
    desk.says(user, "?")
    desk.until_quiet()
    desk.says(user, "?")
    desk.until_quiet()
    assert texts(sim, user) == ["(名無し)", "花子"]


def test_a_profile_endpoint_that_is_held_back_costs_names_and_no_call(
    room: Rooms, sim: Sim, named: Bot
) -> None:
    users = [sim.add_user(name) for name in ("花子", "太郎", "次郎")]
    sim.answer_next("profile", 429, headers={"Retry-After": "300"})
    desk = room(named)
    desk.says(users[0], "?")
    desk.until_quiet()
    for user in users[1:]:
        desk.says(user, "?")
    desk.until_quiet()
    assert [texts(sim, user) for user in users] == [["(名無し)"]] * 3
    assert [fetched(sim, user) for user in users] == [1, 0, 0]


def test_while_line_must_not_be_called_the_bot_runs_without_a_name(
    room: Rooms, sim: Sim, named: Bot
) -> None:
    """Also the one whose fetch was waiting at the gate as the breaker opened."""
    users = [sim.add_user(name) for name in ("花子", "太郎", "次郎")]
    sim.answer_next("profile", 401)
    desk = room(named, line={})
    with desk.desk.gate.turn():
        for user in users[:2]:
            desk.says(user, "?")
        eventually(lambda: desk.desk.gate.waiting == 2)
    desk.says(users[2], "?")
    desk.until_decided()
    assert desk.desk.gate.breaker.state is BreakerState.UNAUTHORIZED
    assert sum(fetched(sim, user) for user in users) == 1
    sent = {effect["messages"][0]["text"] for effect in desk.effects()}
    assert sent == {"(名無し)"}
    assert len(desk.effects()) == 3


def test_a_profile_that_still_waits_after_half_a_minute_is_left(
    room: Rooms, sim: Sim, named: Bot
) -> None:
    """It need not get a turn for that: here it never does."""
    user = sim.add_user("花子")
    desk = room(named, line=limited(late_seconds=0.3))
    with desk.desk.gate.turn():
        desk.says(user, "?")
        desk.until_decided()
        assert [one["messages"][0]["text"] for one in desk.effects()] == ["(名無し)"]
    desk.until_quiet()
    assert (texts(sim, user), fetched(sim, user)) == (["(名無し)"], 0)


def test_an_old_name_stays_known_while_line_is_away(room: Rooms, sim: Sim, named: Bot) -> None:
    user = sim.add_user("花子")
    desk = room(named)
    desk.says(user, "?")
    desk.until_quiet()
    yesterday = datetime.now(UTC) - timedelta(days=2)
    desk.database.conversations.update_one(
        {}, {"$set": {"profile.at": yesterday}, "$inc": {"n": 1}}
    )
    sim.answer_next("profile", 401)
    desk.says(user, "?")
    desk.until_quiet()
    assert texts(sim, user) == ["花子"] * 2


def test_an_event_accepted_half_a_minute_ago_is_answered_without_a_name(
    room: Rooms, sim: Sim, named: Bot
) -> None:
    user = sim.add_user("花子")
    event = sim.drafts.text(user, "?")
    sim.deliver(event)
    desk = room(named)
    desk.put(event, accepted=datetime.now(UTC) - timedelta(seconds=31))
    desk.until_quiet()
    assert (texts(sim, user), fetched(sim, user)) == (["(名無し)"], 0)


def test_without_an_answer_of_line_the_bot_answers_without_a_name(
    room: Rooms, sim: Sim, named: Bot
) -> None:
    user = sim.add_user("花子")
    sim.answer_next("profile", 503, times=1000)
    desk = room(named, line=limited(late_seconds=0.5))
    desk.says(user, "?")
    desk.until_quiet()
    assert texts(sim, user) == ["(名無し)"]


@pytest.mark.parametrize("kind", ["group", "room"])
def test_in_a_group_it_is_the_member_s_profile(
    room: Rooms, sim: Sim, named: Bot, kind: Any
) -> None:
    users = [sim.add_user(name, friend=False) for name in ("花子", "太郎")]
    group = sim.add_group("仲間", users, kind=kind)
    desk = room(named)
    for user in (*users, users[0]):
        desk.says(user, "?", chat=group)
    desk.until_quiet()
    assert texts(sim, group) == ["花子", "太郎", "花子"]
    assert [fetched(sim, user) for user in users] == [1, 1]
    assert len(sim.calls_to(f"{kind}_member")) >= 2
    found = desk.conversation(group.chat_id)
    assert {name["displayName"] for name in found["members"].values()} == {"花子", "太郎"}
    assert (found["kind"], found["profile"]) == (kind, None)


def test_a_rule_without_profiles_fetches_none(room: Rooms, sim: Sim) -> None:
    bot = Bot(profiles=True)

    @bot.default(profile=False)
    def handler(event: Any, talk: Talk) -> None:
        talk.reply("はい")

    user = sim.add_user("花子")
    desk = room(bot)
    desk.says(user, "?")
    desk.until_quiet()
    assert fetched(sim, user) == 0


def test_an_event_without_a_token_is_not_worth_a_profile(room: Rooms, sim: Sim, named: Bot) -> None:
    user = sim.add_user("花子")
    event = sim.drafts.text(user, "?")
    del event["replyToken"]
    desk = room(named)
    desk.send(event)
    desk.until_quiet()
    assert (texts(sim, user), fetched(sim, user)) == (["(名無し)"], 0)


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


@pytest.fixture
def broken() -> Bot:
    """Knows names, and fails at each message but 「直して」."""
    bot = Bot(profiles=True)

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        if getattr(getattr(event, "message", None), "text", "") != "直して":
            raise KeyError("at the first message")

    return bot


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


def test_a_name_is_kept_though_the_handler_fails_at_the_first_message(
    room: Rooms, sim: Sim, broken: Bot
) -> None:
    user = sim.add_user("佐藤花子")
    desk = room(broken, tries=2)
    for letters in (1, 2):
        desk.says(user, "?")
        desk.until_quiet()
        assert len(desk.letters()) == letters
        id_ = find_conversation(desk.database, "佐藤花子", channel="main")
        assert id_ == f"main/{user.user_id}"
    # The second event found it fresh.
    assert fetched(sim, user) == 1
    row = desk.conversation(user.user_id)
    assert (row["n"], len(row["applied"]), row["kind"]) == (2, 2, "user")


def test_a_mongodb_that_is_away_before_the_name_is_kept_calls_no_handler_again(
    room: Rooms, sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    bot, user, load = Bot(profiles=True), sim.add_user("竹子"), ConversationStore.load
    away: list[StoreUnavailable] = []
    calls: list[str | None] = []

    def load_later(self: ConversationStore, document: Any) -> Any:
        if away:
            raise away.pop()
        return load(self, document)

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        calls.append(talk.display_name)
        away.append(StoreUnavailable("AutoReconnect"))
        raise KeyError("at the first message")

    monkeypatch.setattr(ConversationStore, "load", load_later)
    desk = room(bot, tries=1)
    desk.says(user, "?")
    desk.until_quiet()
    assert (calls, len(desk.letters()), away) == (["竹子"], 1, [])
    assert desk.conversation(user.user_id)["profile"]["displayName"] == "竹子"


def test_a_member_s_and_a_group_s_name_are_kept_though_the_handler_fails(
    room: Rooms, sim: Sim, broken: Bot
) -> None:
    user = sim.add_user("梅子", friend=False)
    group = sim.add_group("山の会", [user])
    desk = room(broken, tries=1, line=AT_ONCE)
    desk.says(user, "?", chat=group)
    eventually(lambda: people(desk, group.chat_id).get("profile"))
    assert len(desk.letters()) == 1
    for name in ("山の会", "梅子"):
        assert find_conversation(desk.database, name, channel="main") == f"main/{group.chat_id}"


def test_a_handler_that_forgets_and_then_fails_leaves_the_name(room: Rooms, sim: Sim) -> None:
    bot = Bot(profiles=True)

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        talk.forget()
        raise KeyError("after the forget")

    user = sim.add_user("菊子")
    desk = room(bot, tries=1)
    desk.says(user, "?")
    desk.until_quiet()
    assert desk.conversation(user.user_id)["profile"]["displayName"] == "菊子"


def test_the_name_of_a_replayed_event_is_asked_for_after_it(
    room: Rooms, sim: Sim, broken: Bot
) -> None:
    user = sim.add_user("松子")
    desk = room(broken, tries=1, line=AT_ONCE)
    document = make_document(
        sim.drafts.text(user, "?"), channel="main", accept_time=datetime.now(UTC)
    )
    del document["event"]["replyToken"]
    desk.put_document({**document, "eventId": "replay:x:1"})
    eventually(lambda: people(desk, user.user_id).get("profile"))
    assert find_conversation(desk.database, "松子", channel="main") == f"main/{user.user_id}"


# Names that no answer waits for.


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


def test_waiting_sends_come_before_a_name(room: Rooms, sim: Sim, later: Bot) -> None:
    users = [sim.add_user(name) for name in ("竹子", "菊子")]
    desk, before = room(later, line=AT_ONCE), len(sim.calls)
    with desk.desk.gate.turn():
        desk.says(users[0], "?")
        # Its answer and its name.
        eventually(lambda: desk.desk.gate.waiting == 2)
        desk.says(users[1], "?")
        eventually(lambda: desk.desk.gate.waiting == 3)
    eventually(lambda: fetched(sim, users[0]))
    calls = sim.calls[before:][:3]
    assert [call.endpoint for call in calls] == ["reply", "reply", "profile"]


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


def test_a_name_is_kept_though_an_event_was_recorded_meanwhile(
    room: Rooms, sim: Sim, later: Bot, asked: threading.Event
) -> None:
    user = sim.add_user("杏子")
    desk = room(later, line=AT_ONCE)
    sim.delay_next("profile", 0.5)
    desk.says(user, "?")
    assert asked.wait(15)
    desk.says(user, "?")
    desk.until_decided()
    assert not people(desk, user.user_id)["profile"]
    eventually(lambda: people(desk, user.user_id)["profile"])
    assert fetched(sim, user) == 1


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


def test_failing_names_delay_one_send_and_are_left_for_a_while(
    room: Rooms, sim: Sim, later: Bot
) -> None:
    users = [sim.add_user(name) for name in ("菫子", "蓮子", "藤子")]
    sim.delay_next("profile", 60.0, times=3)
    desk = room(later, line=limited(later_seconds=0.01, later_call_seconds=0.1))
    for user in users:
        desk.says(user, "?")
        desk.until_quiet()
        eventually(lambda: not desk.desk.names._is_asking)
    assert [fetched(sim, user) for user in users] == [1, 0, 0]


@pytest.mark.parametrize(
    "plan", [lambda sim: sim.answer_next("profile", 503), lambda sim: sim.close_next("profile")]
)
def test_a_missing_name_is_fetched_with_the_next_event(
    room: Rooms,
    sim: Sim,
    later: Bot,
    plan: Callable[[Sim], None],
) -> None:
    user = sim.add_user("椿子")
    plan(sim)
    desk = room(later, line=limited(later_seconds=0.01, first_quiet_seconds=0.0))
    desk.says(user, "?")
    eventually(lambda: fetched(sim, user) == 1)
    eventually(lambda: not desk.desk.names._is_asking)
    assert desk.conversation(user.user_id)["profile"] is None
    desk.says(user, "?")
    eventually(lambda: people(desk, user.user_id).get("profile"))


def test_a_read_before_an_answer_goes_before_pushes_and_counts_as_two_turns(
    room: Rooms, sim: Sim, named: Bot
) -> None:
    users = [sim.add_user(f"客{n}") for n in range(3)]
    desk = room(named)
    gate, others = desk.desk.gate, Standing(TurnClass.CHAT, 0.0)
    first_push = threading.Event()

    def push(ticket: Ticket) -> None:
        with gate.holding(ticket):
            first_push.set()

    with gate.turn():
        gate.enter(Ticket(others, granted=push))
        for user in users:
            desk.says(user, "?")
        eventually(lambda: gate.waiting == 4)
        assert gate.turns_before(Ticket(Standing(TurnClass.CHAT, 0.0))) == 2 * 3
        sim.delay_next("profile", 0.2)
    eventually(lambda: fetched(sim, users[0]))
    assert not first_push.is_set()
    desk.until_quiet()
    assert [texts(sim, user) for user in users] == [[f"客{n}"] for n in range(3)]


def test_a_name_that_is_not_waited_for_any_more_leaves_the_gate(
    room: Rooms, sim: Sim, named: Bot
) -> None:
    user = sim.add_user("花子")
    desk = room(named, line=limited(late_seconds=0.1))
    with desk.desk.gate.turn():
        desk.says(user, "?")
        # Only the answer.
        eventually(lambda: desk.effects() and desk.desk.gate.waiting == 1)
    desk.until_quiet()
    assert texts(sim, user) == ["(名無し)"]


# The rules by themselves.


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
        (-5, 0, 0.1, True),
    ],
)
def test_time_for_a_profile(
    age_seconds: float, before: int, turn_seconds: float, enough: bool
) -> None:
    accepted = NOW - timedelta(seconds=age_seconds)
    assert has_time(accepted, NOW, turns_before=before, turn_seconds=turn_seconds) is enough


def test_freshness_ends_after_a_day() -> None:
    assert not is_fresh(None, NOW)
    assert is_fresh({"at": NOW - timedelta(hours=23, minutes=59)}, NOW)
    assert not is_fresh({"at": NOW - timedelta(days=1)}, NOW)


@pytest.mark.parametrize(
    "answer",
    [
        LineAnswer(404, '{"message":"Not found"}'),
        LineAnswer(200, "<html>"),
        LineAnswer(200, ""),
        LineAnswer(200, "[]"),
        LineAnswer(200, '"text"'),
        LineAnswer(200, '{"displayName": 5, "other": "x"}'),
        LineAnswer(200, '{"displayName": null}'),
    ],
)
def test_a_refusal_or_garbage_is_a_profile_without_a_name(answer: LineAnswer) -> None:
    assert set(profile_of(answer)) == {"at"}


def test_a_profile_keeps_line_s_fields() -> None:
    told = profile_of(LineAnswer(200, '{"displayName":"花子","language":"ja","userId":"U1"}'))
    assert {name: told[name] for name in told if name != "at"} == {
        "displayName": "花子",
        "language": "ja",
    }


def test_a_profile_is_asked_for_although_mongodb_was_away_at_first(
    room: Callable[..., Room], sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []
    bot = Bot(profiles=True)

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        seen.append(talk.display_name)

    load, away = ConversationStore.load, iter([StoreUnavailable("AutoReconnect")])

    def load_later(self: ConversationStore, document: Any) -> Any:
        for error in away:
            raise error
        return load(self, document)

    monkeypatch.setattr(ConversationStore, "load", load_later)
    made = room(bot)
    made.says(sim.add_user("花子"), "はい")
    made.until_decided()
    assert seen == ["花子"]
