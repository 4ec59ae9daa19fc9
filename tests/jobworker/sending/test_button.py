"""The button instead of an answer that is too late, carried out with kills."""

import itertools
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import linesim
from dispatcher.commit.committer import Committer
from jobworker.bot.talk import Talk
from jobworker.line.client import LineClient
from jobworker.record import waiting_answers
from jobworker.record.conversations import ConversationStore
from jobworker.record.waiting_answers import NOT_THERE, fetched
from jobworker.sending import button
from jobworker.sending.button import OfferedButton, SlowAnswers
from linedesk import Bot
from linedesk.store.documents import Document, make_document
from linesim import HandClock, Sim
from tests import line_openapi
from tests.jobworker.worker_harness import BUTTON_SOON, Room, Rooms, lead
from tests.rows import Db
from tests.waiting import eventually


class Slow:
    """A bot that answers with the same text, 遅 only once it may, and 失 never."""

    def __init__(self) -> None:
        self.bot = Bot()
        self.may_end = threading.Event()
        self.taps: list[str] = []
        self.bot.default()(self._handle)

    def _handle(self, event: Any, talk: Talk) -> None:
        if talk.raw["type"] == "postback":
            self.taps.append(event.postback.data)
            return
        if event.message.text[0] in "遅失":
            assert self.may_end.wait(15)
        if event.message.text[0] == "失":
            raise ValueError("never")
        talk.data["said"] = event.message.text
        talk.reply(event.message.text)


@pytest.fixture
def slow() -> Slow:
    return Slow()


def texts(sim: Sim, chat: Any) -> list[str]:
    """The bot's messages in a chat, with the button as its word."""
    return [bubble.text or "ボタン" for bubble in sim.answers(chat)]


def offered(sim: Sim, chat: Any, count: int = 1) -> None:
    eventually(lambda: texts(sim, chat).count("ボタン") == count)


def data_in(sim: Sim, chat: Any) -> str:
    """The data of the last button."""
    messages = [bubble.message for bubble in sim.answers(chat) if not bubble.text]
    data: str = messages[-1]["template"]["actions"][0]["data"]
    return data


def tap(desk: Room, sim: Sim, user: Any, *, chat: Any = None) -> Document:
    data = data_in(sim, chat or user)
    return desk.send(sim.drafts.postback(user, data, chat=chat))


def a_tap_brings_it(desk: Room, sim: Sim, user: Any) -> None:
    tap(desk, sim, user)
    desk.until_quiet()
    assert texts(sim, user) == ["ボタン", "遅"]


def pushes(sim: Sim, chat: Any) -> list[Any]:
    id_ = getattr(chat, "user_id", None) or chat.chat_id
    return [call for call in sim.calls_to("push") if call.chat_id == id_]


def waiting(room: Rooms, sim: Sim, slow: Slow) -> tuple[Room, Any]:
    """A room, and its user whose answer waits for a tap."""
    desk, user = room(slow.bot, line=BUTTON_SOON), sim.add_user("花子")
    desk.says(user, "遅")
    offered(sim, user)
    slow.may_end.set()
    desk.until_quiet()
    return desk, user


def test_the_answer_waits_for_a_tap_and_costs_nothing(room: Rooms, sim: Sim, slow: Slow) -> None:
    desk, user = room(slow.bot, line=BUTTON_SOON), sim.add_user("花子")
    document = desk.says(user, "遅")
    offered(sim, user)
    [call] = sim.replies_to(document["eventId"])
    line_openapi.check_request("POST", call.path, call.body)
    slow.may_end.set()
    desk.until_quiet()
    assert texts(sim, user) == ["ボタン"]
    # The other decisions are carried out.
    assert desk.conversation(user.user_id)["data"] == {"said": "遅"}
    a_tap_brings_it(desk, sim, user)
    for _ in range(2):
        a_tap_brings_it(desk, sim, user)
    assert (pushes(sim, user), slow.taps, desk.letters()) == ([], [], [])


def test_a_tap_while_the_handler_runs_waits_behind_it(room: Rooms, sim: Sim, slow: Slow) -> None:
    desk, user = room(slow.bot, line=BUTTON_SOON), sim.add_user("花子")
    desk.says(user, "遅")
    offered(sim, user)
    # The first of them has waited for too long.
    long_ago = datetime.now(UTC) - timedelta(seconds=58)
    desk.put(sim.drafts.postback(user, data_in(sim, user)), accepted=long_ago)
    tap(desk, sim, user)
    slow.may_end.set()
    desk.until_quiet()
    assert texts(sim, user) == ["ボタン", "遅"]
    assert pushes(sim, user) == []


def test_a_tap_on_the_button_of_a_handler_that_failed_gets_a_sentence(
    room: Rooms, sim: Sim, slow: Slow
) -> None:
    desk, user = room(slow.bot, line=BUTTON_SOON), sim.add_user("花子")
    desk.says(user, "失敗")
    offered(sim, user)
    slow.may_end.set()
    desk.until_quiet()
    assert desk.conversation(user.user_id)["answers"] == {}
    tap(desk, sim, user)
    desk.until_quiet()
    assert texts(sim, user) == ["ボタン", NOT_THERE]
    assert len(desk.letters()) == 1


def test_an_answer_too_late_for_its_tap_waits_for_the_next_and_is_never_pushed(
    room: Rooms, sim: Sim, slow: Slow
) -> None:
    desk, user = waiting(room, sim, slow)
    # LINE does not know this token: it was not delivered by it.
    desk.put(sim.drafts.postback(user, data_in(sim, user)))
    desk.until_quiet()
    assert texts(sim, user) == ["ボタン"]
    a_tap_brings_it(desk, sim, user)
    assert pushes(sim, user) == []


def test_a_button_whose_answer_was_lost_is_shown_once(room: Rooms, sim: Sim, slow: Slow) -> None:
    desk, user = room(slow.bot, line=BUTTON_SOON), sim.add_user("花子")
    sim.close_next("reply", accept=True)
    document = desk.says(user, "遅")
    # The second try proves it: by the token that is taken, or used.
    eventually(lambda: len(sim.replies_to(document["eventId"])) == 1)
    entry = f"answers.{document['eventId']}.state"
    eventually(lambda: desk.database.conversations.find_one({entry: "shown"}))
    slow.may_end.set()
    desk.until_quiet()
    assert texts(sim, user) == ["ボタン"]
    a_tap_brings_it(desk, sim, user)


@pytest.mark.parametrize("passed", [59.5, 61.0])
def test_a_button_whose_token_ended_on_the_way_of_the_repeated_call_is_not_shown(
    database: Any, slow: Slow, monkeypatch: pytest.MonkeyPatch, passed: float
) -> None:
    """LINE had neither call: the answer must not wait for a tap that cannot come."""
    since_boot, clock, numbers, on = button.boottime, HandClock(), itertools.count(), 0.0
    request_of = LineClient._request

    def request(self: Any, *request: Any) -> Any:
        nonlocal on
        if next(numbers) == 1:
            on = passed
            clock.advance(61)
        return request_of(self, *request)

    monkeypatch.setattr(button, "boottime", lambda: since_boot() + on)
    monkeypatch.setattr(LineClient, "_request", request)
    with linesim.running(rate_limits=False, clock=clock) as sim:
        user = sim.add_user("花子")
        sim.close_next("reply")
        with Room(database, sim, slow.bot, line=BUTTON_SOON) as desk:
            desk.says(user, "遅")
            eventually(lambda: len(sim.calls_to("reply")) == 2 and sim.calls_to("reply")[1].status)
            slow.may_end.set()
            desk.until_quiet()
        assert texts(sim, user) == ["遅"]


def test_an_event_is_decided_only_when_the_call_for_its_button_has_ended(
    room: Rooms, sim: Sim, slow: Slow
) -> None:
    desk, user = room(slow.bot, line=BUTTON_SOON), sim.add_user("花子")
    began = len(sim.calls_to("reply"))
    sim.delay_next("reply", 0.5, accept=True)
    desk.says(user, "遅")
    eventually(lambda: len(sim.calls_to("reply")) > began)
    slow.may_end.set()
    desk.until_quiet()
    assert texts(sim, user) == ["ボタン"]
    [answer] = desk.conversation(user.user_id)["answers"].values()
    assert answer["state"] == "waiting"


def test_an_event_that_is_decided_while_its_button_waits_for_a_turn_has_none(
    room: Rooms, sim: Sim, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted, may_go = threading.Event(), threading.Event()
    offered = OfferedButton.request
    calls: list[str] = []
    monkeypatch.setattr(
        OfferedButton, "request", lambda *args: calls.append("call") or offered(*args)
    )
    desk, user = room(slow.bot, line=BUTTON_SOON), sim.add_user("花子")
    is_fresh = iter([True])

    def lease_is_fresh() -> bool:
        if not noted.is_set() and next(is_fresh, None) is None:
            noted.set()
            assert may_go.wait(15)
        return True

    desk.lease_is_fresh = lease_is_fresh
    desk.says(user, "遅")
    assert noted.wait(15)
    slow.may_end.set()
    eventually(lambda: desk.conversation(user.user_id).get("applied"))
    may_go.set()
    desk.until_quiet()
    assert (calls, texts(sim, user)) == ([], ["遅"])


@pytest.mark.parametrize("point", ["button noted", "button called", "button shown"])
@pytest.mark.parametrize("is_slow", [True, False])
def test_a_successor_brings_the_answer_once(
    room: Rooms, sim: Sim, slow: Slow, dies: Callable[..., Any], point: str, is_slow: bool
) -> None:
    user = sim.add_user("花子")
    event = dies(point, user, way="slow")
    later = {"slow_answers": SlowAnswers.BUTTON}
    desk = room(slow.bot, epoch=2, line=BUTTON_SOON if is_slow else later)
    event["message"]["text"] = "遅"
    before = len(sim.calls_to("reply"))
    desk.put(event, again=True)
    if is_slow and point != "button shown":
        eventually(lambda: len(sim.calls_to("reply")) > before)
    slow.may_end.set()
    desk.until_quiet()
    if texts(sim, user)[-1] != "遅":
        tap(desk, sim, user)
        desk.until_quiet()
    assert texts(sim, user).count("遅") == 1
    assert texts(sim, user).count("ボタン") <= 1
    # Where it is not known whether LINE has shown the button, the token may be used.
    paid = point != "button shown" and not is_slow
    assert len(pushes(sim, user)) == paid
    if texts(sim, user)[0] == "ボタン":
        # Whatever became of it, a tap brings it no second time.
        tap(desk, sim, user)
        desk.until_quiet()
        assert texts(sim, user).count("遅") == 1


def test_a_token_that_a_button_has_used_is_no_proof_that_the_answer_arrived(
    room: Rooms, sim: Sim, dies: Callable[..., Any]
) -> None:
    """LINE showed the button, and refuses its token from then on. Two processes die before they
    have written down what they heard.
    """
    user = sim.add_user("花子")
    event = dies("button called", user, way="slow")
    dies("called", user, event=event)
    desk = room(Bot(), epoch=2)
    desk.until_quiet()
    assert texts(sim, user) == ["ボタン", "はい"]
    assert desk.letters() == []


def test_an_answer_in_the_outbox_of_a_predecessor_waits_for_the_next_tap(
    room: Rooms, database: Db, sim: Sim, slow: Slow
) -> None:
    user = sim.add_user("花子")
    with Room(database, sim, slow.bot, line=BUTTON_SOON) as first:
        first.says(user, "遅")
        offered(sim, user)
        slow.may_end.set()
        first.until_quiet()
    # It has recorded the tap, and was away until the token had ended.
    long_ago = datetime.now(UTC) - timedelta(seconds=70)
    tap_event = sim.drafts.postback(user, data_in(sim, user))
    document = make_document(tap_event, channel="main", accept_time=long_ago)
    conversations = ConversationStore(lead(Committer(database)))
    conversations.epoch = 1
    soon = long_ago + timedelta(seconds=1)
    decision = fetched(document, lambda: conversations.load(document), now=soon)
    assert decision is not None
    effects = conversations.placed(decision.effects)
    recording = conversations.enter_record(document, decision, effects, message_id=None)
    assert conversations.recorded(recording).effects
    second = room(slow.bot, epoch=2, line=BUTTON_SOON)
    second.until_quiet()
    assert texts(sim, user) == ["ボタン"]
    tap(second, sim, user)
    second.until_quiet()
    assert texts(sim, user) == ["ボタン", "遅"]
    assert pushes(sim, user) == []


def test_an_answer_not_fetched_within_its_time_is_a_dead_letter(
    room: Rooms, database: Db, sim: Sim, slow: Slow
) -> None:
    user, other = sim.add_user("花子"), sim.add_user("太郎")
    with Room(database, sim, slow.bot, line=BUTTON_SOON) as first:
        for one in (user, other):
            first.says(one, "遅")
            offered(sim, one)
        slow.may_end.set()
        first.until_quiet()
        tap(first, sim, other)
        first.until_quiet()
    moment = {**BUTTON_SOON, "jobworker.record.waiting_answers.KEPT_FOR": timedelta(0)}
    desk = room(slow.bot, epoch=2, line=moment)
    eventually(lambda: desk.letters())
    desk.until_quiet()
    [letter] = desk.letters()
    assert (letter["cause"], letter["effect"]["messages"][0]["text"]) == ("not fetched", "遅")
    for one in (user, other):
        eventually(lambda one=one: desk.conversation(one.user_id)["answers"] == {})
    tap(desk, sim, user)
    desk.until_quiet()
    assert texts(sim, user) == ["ボタン", NOT_THERE]
    assert pushes(sim, user) == []


def test_a_tap_that_is_decided_while_its_answer_ends_is_decided_again(
    room: Rooms, sim: Sim, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, user = waiting(room, sim, slow)
    enter_record = ConversationStore.enter_record
    ended: list[bool] = []

    def end_it_before(self: ConversationStore, *args: Any, **more: Any) -> Any:
        if not ended:
            ages = desk.desk.answer_ages
            monkeypatch.setattr(waiting_answers, "KEPT_FOR", timedelta(0))
            ages._look_at = 0.0
            ages.look()
            ended.append(True)
        return enter_record(self, *args, **more)

    monkeypatch.setattr(ConversationStore, "enter_record", end_it_before)
    tap(desk, sim, user)
    desk.until_quiet(seconds=20)
    assert texts(sim, user) == ["ボタン", NOT_THERE]
    assert [letter["cause"] for letter in desk.letters()] == ["not fetched"]
