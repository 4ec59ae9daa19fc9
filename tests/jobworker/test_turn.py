"""A worker on its pool, against the simulator: from the document to the user's screen."""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import ObjectId
from bson.errors import BSONError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from linebot.v3.messaging import PushMessageRequest, TextMessage
from linebot.v3.models import UnknownEvent
from linebot.v3.webhooks import MessageEvent, PostbackEvent, TextMessageContent

from dispatcher.conversations.mailbox import Condemned, Following, HandlerCall, JobResult, Wait
from jobworker.bot.talk import Talk
from jobworker.sending.conversation_outbox import SendLimits
from linedesk import Bot
from linedesk.operate.dead_letters import explained
from linedesk.runtime.logging import masking
from linedesk.store.documents import make_document
from linedesk.store.errors import AccessRefused
from linesim import Sim
from linesim.model.events import standby
from tests.jobworker.worker_harness import (
    CHANNEL,
    SHORT_RETRIES,
    Room,
    Rooms,
    a_bot,
    a_send,
    outbound,
    texts,
)
from tests.waiting import eventually

SHORT_OUTAGE = replace(SHORT_RETRIES, store_pause_seconds=0.02)


def echo(talk: Talk) -> None:
    talk.reply(f"「{talk.raw['message']['text']}」")


def test_a_decision_on_an_older_state_is_made_again(room: Rooms, sim: Sim) -> None:
    """As right after an election, when a read may lag behind confirmed writes."""
    user, runs = sim.add_user("花子"), []

    def handler(event: Any, talk: Talk) -> None:
        talk.data["seen"] = [*talk.data.get("seen", []), event.message.text]
        runs.append(talk.data["seen"])
        if len(runs) == 2:
            newer = {"$set": {"data.seen": ["一", "他"]}, "$inc": {"n": 1}}
            desk.database.conversations.update_one({"key": user.user_id}, newer)
        talk.reply("はい")

    desk = room(a_bot(handler))
    for text in ("一", "二"):
        desk.says(user, text)
        desk.until_quiet()
    assert runs == [["一"], ["一", "二"], ["一", "他", "二"]]
    assert desk.conversation(user.user_id)["data"] == {"seen": ["一", "他", "二"]}
    assert texts(sim, user) == ["はい", "はい"]


def test_a_handler_that_has_sent_by_itself_is_not_decided_again(room: Rooms, sim: Sim) -> None:
    user, runs = sim.add_user("花子"), []

    def handler(event: Any, talk: Talk) -> None:
        runs.append(talk.data.get("seen"))
        talk.api.push_message(
            PushMessageRequest(to=user.user_id, messages=[TextMessage(text="自分で")])
        )
        if len(runs) == 2:
            newer = {"$inc": {"n": 1}}
            desk.database.conversations.update_one({"key": user.user_id}, newer)
        talk.data["seen"] = len(runs)

    desk = room(a_bot(handler))
    for text in ("一", "二"):
        desk.says(user, text)
        desk.until_quiet()
    assert runs == [None, 1]
    assert texts(sim, user) == ["自分で", "自分で"]


def test_a_handler_that_fails_twice_answers_once(room: Rooms, sim: Sim) -> None:
    user, runs = sim.add_user("花子"), []

    def handler(event: Any, talk: Talk) -> None:
        runs.append(threading.current_thread().name)
        talk.reply("はい")
        talk.push("これも")
        talk.state = f"{talk.state or ''}x"
        if len(runs) < 3:
            raise RuntimeError("not yet")

    desk = room(a_bot(handler))
    desk.says(user, "?")
    desk.until_quiet()
    assert len(runs) == 3
    assert texts(sim, user) == ["はい", "これも"]
    assert desk.conversation(user.user_id)["state"] == "x"
    assert desk.letters() == []


def test_a_secret_reaches_the_handler_and_no_dead_letter(room: Rooms, sim: Sim) -> None:
    bot, seen = Bot(secrets=["WEATHER_KEY"]), []

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        seen.append(talk.secrets["WEATHER_KEY"])
        raise ConnectionError(f"no answer of https://weather.example/?key={seen[0]}")

    secrets = {"WEATHER_KEY": "w3atherkey"}
    desk = room(bot, tries=1, secrets=secrets, masked=masking(secrets.values()))
    desk.says(sim.add_user("花子"), "?")
    eventually(desk.letters)
    (letter,) = desk.letters()
    assert seen == ["w3atherkey"]
    assert "https://weather.example/?key=***" in letter["traceback"]
    assert "w3atherkey" not in str(letter)
    assert all("w3atherkey" not in str(row) for row in desk.database.conversations.find())


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(SystemExit(1), id="one that asks the process to end"),
        pytest.param(ValueError("\ud83d" * 10), id="one with half a character in it"),
        pytest.param(ValueError("あ" * 9_000_000), id="one with a message of 27 MB"),
    ],
)
def test_any_error_of_a_handler_ends_in_a_dead_letter(
    room: Rooms, sim: Sim, error: BaseException
) -> None:
    user = sim.add_user("花子")

    def handler(event: Any, talk: Talk) -> None:
        if talk.raw["message"]["text"] == "毒":
            raise error
        echo(talk)

    desk = room(a_bot(handler), threads=2, tries=2)
    desk.says(user, "毒")
    desk.says(user, "次")
    desk.until_quiet()
    assert [explained(letter) for letter in desk.letters()] == [f"handler: {type(error).__name__}"]
    assert texts(sim, user) == ["「次」"]


CANNOT_HOLD: dict[str, Callable[[Talk], object]] = {
    "an object of the bot's own": lambda talk: talk.data.update(x=object()),
    "itself": lambda talk: talk.data.update(x=talk.data),
    "more than fits": lambda talk: talk.data.update(x="a" * 3_000_000),
}


@pytest.mark.parametrize("act", CANNOT_HOLD.values(), ids=CANNOT_HOLD.keys())
def test_data_that_cannot_be_stored_is_the_handler_s_failure_and_not_the_process_s(
    room: Rooms, sim: Sim, act: Callable[[Talk], object]
) -> None:
    user = sim.add_user("花子")

    def handler(event: Any, talk: Talk) -> None:
        if talk.raw["message"]["text"] == "毒":
            act(talk)
        echo(talk)

    desk = room(a_bot(handler), tries=1)
    desk.says(user, "毒")
    desk.says(user, "次")
    desk.until_quiet()
    assert len(desk.letters()) == 1
    assert texts(sim, user) == ["「次」"]


def test_a_standby_event_carries_out_nothing(room: Rooms, sim: Sim) -> None:
    user, runs = sim.add_user("花子"), []

    def handler(event: Any, talk: Talk) -> None:
        runs.append(talk.reply_token)
        talk.push("いけない")
        talk.state = "changed"

    desk = room(a_bot(handler))
    before = len(sim.calls)
    desk.put(standby(sim.drafts.text(user, "?")))
    desk.until_decided()
    assert runs == [None]
    assert len(sim.calls) == before
    assert desk.database.conversations.count_documents({}) == 0


def test_an_event_that_the_sdk_cannot_read_reaches_the_default_handler_whole(
    room: Rooms, sim: Sim
) -> None:
    user, seen = sim.add_user("花子"), []
    bot = Bot()

    @bot.add(MessageEvent, message=TextMessageContent)
    def text(event: Any, talk: Talk) -> None:
        pytest.fail("the SDK could read it")

    @bot.default()
    def rest(event: Any, talk: Talk) -> None:
        seen.append((type(event), talk.raw["type"], talk.user_id, bool(talk.reply_token)))
        talk.reply("はい")

    event = sim.drafts.text(user, "?")
    del event["message"]["quoteToken"]
    hologram = {**sim.drafts.text(user, "?"), "message": {"type": "hologram", "id": "1"}}
    future = {**sim.drafts.text(user, "?"), "type": "dreamt"}
    desk = room(bot)
    for each in (event, hologram, future):
        desk.send(each)
    desk.until_quiet()
    assert seen == [
        (UnknownEvent, "message", user.user_id, True),
        (UnknownEvent, "message", user.user_id, True),
        (UnknownEvent, "dreamt", user.user_id, True),
    ]
    assert texts(sim, user) == ["はい"] * 3


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
GARBAGE = st.dictionaries(
    st.sampled_from(
        ["type", "mode", "source", "message", "replyToken", "timestamp", "webhookEventId"]
    ),
    JSON
    | st.sampled_from(["message", "standby", "active", "follow", "unfollow", "E-known"])
    | st.fixed_dictionaries({"type": JSON, "userId": st.just("U-garbage")})
    | st.fixed_dictionaries({"type": st.just("text"), "id": JSON, "text": JSON}),
)


def is_storable(event: dict[str, Any]) -> bool:
    """Whether it can have come from MongoDB: no whole number beyond 8 bytes, no zero in a name."""
    try:
        return bool(bson.encode({"event": event}))
    except (BSONError, OverflowError):
        return False


class Parked:
    """A job whose resume is only counted."""

    def __init__(self, event: dict[str, Any]) -> None:
        self.document = make_document(event, channel=CHANNEL, accept_time=datetime.now(UTC))
        self.again = False
        self.memo: Any = None
        self.given_up_for: Condemned | None = None

    def following(self) -> Following:
        return Following((), 98, is_cut=False, is_reading=False)

    def take_along(self, count: int) -> int:
        return 0

    def take_slow_place(self) -> bool:
        return True

    def begin_handler(self, limit_seconds: float | None = None) -> HandlerCall:
        return HandlerCall(limit_seconds)

    def resume(self) -> None: ...


def test_garbage_in_any_place_is_decided_or_given_up(room: Rooms, sim: Sim) -> None:
    bot = Bot(profiles=True)

    @bot.default()
    def rest(event: Any, talk: Talk) -> None:
        repr((event, talk.display_name, talk.user_id))
        talk.push("x", to="U0")
        talk.reply("はい")

    desk = room(bot)

    @settings(
        max_examples=40,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(GARBAGE.filter(is_storable))
    def decided(event: dict[str, Any]) -> None:
        assert isinstance(desk.desk.decide(Parked(event)), JobResult | Wait)

    decided()


def test_slow_handlers_never_take_every_thread(room: Rooms, sim: Sim) -> None:
    """Each waits until all that came after it for other conversations is answered."""
    slow_users, others = ([sim.add_user(f"{n}") for n in range(6)] for _ in range(2))
    answered, bot, entered = threading.Event(), Bot(), []

    @bot.add(MessageEvent, limit=120.0, state=None)
    def handler(event: Any, talk: Talk) -> None:
        entered.append(talk.key)
        assert answered.wait(30)
        talk.reply("考えました")

    @bot.add(PostbackEvent)
    def press(event: Any, talk: Talk) -> None:
        talk.reply("はい")

    desk = room(bot, threads=4)
    for user in slow_users:
        desk.says(user, "宇宙とは")
    eventually(lambda: len(entered) == 2)
    for user in others:
        desk.send(sim.drafts.postback(user, "x"))
    eventually(lambda: all(texts(sim, user) == ["はい"] for user in others))
    assert len(entered) == 2
    answered.set()
    desk.until_quiet()
    assert all(texts(sim, user) == ["考えました"] for user in slow_users)
    assert sorted(entered) == sorted(user.user_id for user in slow_users)


def test_reading_pauses_while_too_much_waits_in_all(room: Rooms, sim: Sim) -> None:
    user, limits = sim.add_user("花子"), SendLimits(most_in_all=3)
    bot = a_bot(lambda event, talk: echo(talk))
    desk = room(bot, lease_is_fresh=lambda: False, send_limits=limits)
    assert desk.desk.has_room()
    rows = [a_send(id=f"x/{n}", to=user.user_id).as_document() for n in range(3)]
    desk.desk.outbox.add(f"{CHANNEL}/{user.user_id}", outbound(*rows))
    assert not desk.desk.has_room()


def test_without_a_fresh_lease_nothing_is_recorded(room: Rooms, sim: Sim) -> None:
    user, fresh, runs = sim.add_user("花子"), threading.Event(), []

    def handler(event: Any, talk: Talk) -> None:
        runs.append(1)
        echo(talk)

    desk = room(a_bot(handler), lease_is_fresh=fresh.is_set, retry_limits=SHORT_OUTAGE)
    desk.says(user, "?")
    eventually(lambda: runs)
    assert desk.database.conversations.count_documents({}) == 0
    fresh.set()
    desk.until_quiet()
    assert (len(runs), texts(sim, user)) == (1, ["「?」"])


def test_a_missing_right_gives_no_event_up(
    room: Rooms, sim: Sim, deaths: list[BaseException | None]
) -> None:
    """As after a new password, where a handler's read is the first to open a connection."""
    runs: list[int] = []

    def handler(event: Any, talk: Talk) -> None:
        runs.append(1)
        raise AccessRefused(18)

    desk = room(a_bot(handler), tries=1)
    desk.says(sim.add_user("花子"), "?")
    eventually(lambda: deaths)
    assert isinstance(deaths[0], AccessRefused)
    assert (len(runs), desk.letters(), desk.effects()) == (1, [], [])


def test_texts_and_tokens_are_in_no_log(
    room: Rooms, sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="jobworker")
    user = sim.add_user("秘密子")
    sim.answer_next("reply", 500)
    desk = room(a_bot(lambda event, talk: echo(talk)))
    document = desk.says(user, "秘密の言葉")
    desk.until_quiet()
    assert "called LINE" in caplog.text
    for secret in ("秘密", sim.token, document["event"]["replyToken"]):
        assert secret not in caplog.text


def test_a_document_that_is_not_of_the_front_desk_is_passed_over(
    room: Callable[..., Room], caplog: pytest.LogCaptureFixture
) -> None:
    made = room(Bot())
    made.put_document({"_id": ObjectId(), "channel": "main", "key": "U1", "note": "by hand"})
    made.until_decided()
    assert "not a front desk document" in caplog.text


def test_a_wrong_message_is_a_failed_try_with_its_property_and_line(
    room: Rooms, sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(event: Any, talk: Talk) -> None:
        talk.push("先のもの")
        talk.reply({"type": "flex", "altText": "ご予約", "contents": {"type": "bubble"}})

    desk, user = room(a_bot(handler)), sim.add_user("花子")
    desk.says(user, "予約")
    desk.until_quiet()
    (letter,) = desk.letters()
    assert "WrongMessage: messages[0].contents: At least one block" in explained(letter)
    assert texts(sim, user) == []
    line = handler.__code__.co_firstlineno + 2
    assert any(f"at={__file__}:{line}" in told for told in caplog.messages)
