"""The loading animation: shown for slow handlers alone, never after them, and at no one's cost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobworker.bot.talk import Talk
from jobworker.errors import LineError, OutcomeUnknown
from jobworker.handler_context import Abandoned, HandlerContext
from jobworker.line import loading
from jobworker.line.answer import LineAnswer
from jobworker.line.loading import START, LoadingAnimations, may_be_shown
from jobworker.record.conversations import StoredConversation
from linedesk import Bot
from linedesk.store.documents import Document, make_document
from linedesk.store.errors import StoreUnavailable
from linesim import Sim
from tests.jobworker.line.test_gate import Hand, Note
from tests.jobworker.line.test_gate import hand as hand
from tests.jobworker.sdk.test_handler import handler_of, push
from tests.jobworker.worker_harness import Room
from tests.rows import rows_of
from tests.waiting import eventually

Rooms = Callable[..., Room]
USER, GROUP = "U" + "1" * 32, "C" + "1" * 32
TAKEN = LineAnswer(202, "{}")


# The rules.


def a_document(*, age_seconds: float = 0.0, **changed: Any) -> Document:
    """A message of a user in 1:1."""
    event = {
        "type": "message",
        "mode": "active",
        "webhookEventId": "01E",
        "source": {"type": "user", "userId": USER},
        "replyToken": "token",
        "message": {"type": "text", "id": "1", "text": "?"},
        **changed,
    }
    accepted = datetime.now(UTC) - timedelta(seconds=age_seconds)
    return make_document(event, channel="main", accept_time=accepted)


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        ({}, True),
        ({"type": "postback", "postback": {"data": "x"}}, True),
        ({"source": {"type": "group", "groupId": GROUP, "userId": USER}}, False),
        ({"source": {"type": "room", "roomId": "R1", "userId": USER}}, False),
        ({"mode": "standby"}, False),
        # A fired timer, an unsend: the user waits for no answer.
        ({"replyToken": None}, False),
        # A late one is answered by a push at some time.
        ({"age_seconds": 61}, False),
    ],
)
def test_it_is_shown_where_a_user_waits_in_a_chat_that_can_show_it(
    event: dict[str, Any], shown: bool
) -> None:
    document = a_document(**event)
    assert may_be_shown(document, HandlerContext(document)) is shown


def test_line_gets_a_number_of_seconds_that_it_accepts() -> None:
    assert loading.SHOWN_SECONDS in range(5, 61, 5)
    # It is renewed before it ends, also where the call waits for its turn for a while.
    assert loading.AGAIN_SECONDS + loading.CALL_SECONDS < loading.SHOWN_SECONDS


# By hand.


class Stage:
    """A gate and a clock that are moved by hand, and LINE's answers."""

    def __init__(self, hand: Hand) -> None:
        self.hand = hand
        self.friend: bool | None = True
        self.answer: LineAnswer | LineError = TAKEN
        self.calls: list[tuple[float, dict[str, Any]]] = []
        self.during: Callable[[], None] = lambda: None
        self.reads: list[float] = []
        self.read_error: StoreUnavailable | None = None
        line = hand.line(post=self._post)
        self.rate_limits = line.rate_limits
        self.animations = LoadingAnimations(line, load=self._load)

    def begins(self, document: Document | None = None) -> tuple[HandlerContext, Any]:
        """A handler begins; returns its context and the function that ends it."""
        document = document or a_document()
        call = HandlerContext(document)
        return call, self.animations.begin(document, call)

    def _post(self, path: str, body: dict[str, Any], **context: Any) -> LineAnswer:
        assert path == START
        assert context == {"limit_seconds": loading.CALL_SECONDS, "key": USER, "eventId": "01E"}
        self.calls.append((self.hand.now, body))
        self.during()
        if isinstance(self.answer, LineError):
            raise self.answer
        return self.answer

    def _load(self, document: Document) -> StoredConversation:
        self.reads.append(self.hand.now)
        if self.read_error is not None:
            raise self.read_error
        return StoredConversation.from_document(f"main/{USER}", {"friend": self.friend})

    @property
    def at(self) -> list[float]:
        return [at for at, _ in self.calls]


@pytest.fixture
def stage(hand: Hand) -> Stage:
    return Stage(hand)


def test_it_is_shown_after_a_second_and_renewed_until_the_handler_ends(stage: Stage) -> None:
    _, end = stage.begins()
    stage.hand.advance(0.9)
    assert stage.reads == []
    stage.hand.advance(40)
    assert stage.at == [101.0, 116.0, 131.0]
    assert [body for _, body in stage.calls] == [{"chatId": USER, "loadingSeconds": 20}] * 3
    # Whether the user is a friend is read once.
    assert stage.reads == [101.0]
    end()
    stage.hand.advance(60)
    assert len(stage.calls) == 3
    assert (stage.hand.steps, stage.hand.gate.waiting) == (type(stage.hand.steps)(), 0)


def test_a_handler_that_ends_within_a_second_costs_no_read_and_no_call(stage: Stage) -> None:
    _, end = stage.begins()
    stage.hand.advance(0.9)
    end()
    stage.hand.advance(60)
    assert (stage.reads, stage.calls) == ([], [])


@pytest.mark.parametrize("friend", [False, None])
def test_it_is_shown_to_known_friends_only(stage: Stage, friend: bool | None) -> None:
    stage.friend = friend
    stage.begins()
    stage.hand.advance(60)
    assert (len(stage.reads), stage.calls) == (1, [])


def test_a_new_friend_is_a_friend(stage: Stage) -> None:
    stage.friend = None
    stage.begins(a_document(type="follow", follow={"isUnblocked": False}))
    stage.hand.advance(2)
    assert len(stage.calls) == 1


def test_where_mongodb_does_not_answer_it_is_not_shown(stage: Stage) -> None:
    stage.read_error = StoreUnavailable("away")
    stage.begins()
    stage.hand.advance(60)
    assert stage.calls == []


def test_it_waits_behind_everything_else_and_is_dropped_with_its_handler(stage: Stage) -> None:
    hand = stage.hand
    _, end = stage.begins()
    others = [Note(hand, str(n), place=1e9) for n in range(5)]
    for other in others:
        other.enter()
    hand.advance(3.5)
    # They came first, at a second each.
    assert (stage.calls, hand.gate.waiting) == ([], 2)
    end()
    hand.advance(10)
    assert [other.called for other in others] == [[100.0 + n] for n in range(5)]
    assert (stage.calls, hand.gate.waiting) == ([], 0)


def test_a_handler_that_ends_before_the_friend_is_read_makes_no_call(stage: Stage) -> None:
    _, end = stage.begins()
    held = type(stage.hand.steps)()
    stage.hand.step = held.append
    stage.hand.advance(2)
    end()
    for step in held:
        step()
    stage.hand.advance(10)
    assert (stage.calls, stage.hand.gate.waiting) == ([], 0)


def test_a_handler_that_ends_while_the_turn_waits_for_the_interval_makes_no_call(
    stage: Stage,
) -> None:
    _, end = stage.begins()
    answers = iter([lambda: True, lambda: end() or True])
    stage.hand.gate._lease_is_fresh = lambda: next(answers)()  # type: ignore[method-assign]
    stage.hand.advance(5)
    assert stage.calls == []


def test_a_call_that_is_under_way_ends_before_the_handler_s_decision_continues(
    stage: Stage,
) -> None:
    _, end = stage.begins()
    is_called, may_answer, story = threading.Event(), threading.Event(), []

    def during() -> None:
        is_called.set()
        assert may_answer.wait(10)
        story.append("answered")

    def handler_ends() -> None:
        end()
        story.append("ended")

    stage.during = during
    caller = threading.Thread(target=stage.hand.advance, args=(2,))
    handler = threading.Thread(target=handler_ends)
    caller.start()
    assert is_called.wait(10)
    handler.start()
    # It waits for the answer, or has continued without it.
    eventually(lambda: story or end.__self__._changed._waiters)
    may_answer.set()
    for thread in (caller, handler):
        thread.join(10)
    assert story == ["answered", "ended"]
    stage.hand.advance(60)
    assert len(stage.calls) == 1


class Overdue:
    """A handler's call that is abandoned by the test."""

    is_abandoned = False

    def end(self) -> bool:
        return not self.is_abandoned


def test_a_handler_that_was_abandoned_shows_nothing_any_more(stage: Stage) -> None:
    call, _ = stage.begins()
    overdue = Overdue()

    def handle() -> None:
        with call.under(overdue):
            stage.hand.advance(2)
            overdue.is_abandoned = True
            stage.hand.advance(60)

    with pytest.raises(Abandoned):
        handle()
    assert len(stage.calls) == 1


def test_a_handler_that_has_sent_something_by_itself_shows_nothing_after_it(stage: Stage) -> None:
    call, _ = stage.begins()
    stage.hand.advance(2)
    call.begin_send()
    stage.hand.advance(60)
    assert len(stage.calls) == 1


@pytest.mark.parametrize(
    ("answer", "is_quiet"),
    [
        (LineAnswer(400, '{"message":"The request body has 1 error(s)"}'), False),
        (LineAnswer(401), False),
        (LineAnswer(500), True),
        (OutcomeUnknown("ReadTimeoutError"), True),
    ],
)
def test_a_call_that_fails_is_not_repeated(
    stage: Stage, answer: LineAnswer | LineError, is_quiet: bool
) -> None:
    stage.answer = answer
    stage.begins()
    stage.hand.advance(30)
    assert len(stage.calls) == 1
    # After one without an answer no handler asks for a while, or these calls would fail in a row.
    stage.answer = TAKEN
    stage.begins()
    stage.hand.advance(2)
    assert len(stage.calls) == (1 if is_quiet else 2)
    stage.hand.advance(loading.QUIET_SECONDS)
    calls = len(stage.calls)
    stage.begins()
    stage.hand.advance(2)
    assert len(stage.calls) == calls + 1


def test_a_rate_limit_of_its_endpoint_is_obeyed(stage: Stage) -> None:
    stage.answer = LineAnswer(429, "{}", retry_after=50)
    stage.begins()
    stage.hand.advance(10)
    stage.answer = TAKEN
    stage.begins()
    stage.hand.advance(10)
    assert (len(stage.calls), stage.rate_limits.seconds(START)) == (1, 31)
    stage.hand.advance(40)
    stage.begins()
    stage.hand.advance(2)
    assert len(stage.calls) == 2


def test_while_line_is_not_called_it_does_not_wait(stage: Stage) -> None:
    stage.hand.held_until = stage.hand.now + 30
    stage.begins()
    stage.hand.advance(60)
    assert (stage.calls, stage.hand.gate.waiting) == ([], 0)


def test_a_stop_or_a_lost_lease_makes_no_call(stage: Stage) -> None:
    stage.begins()
    answers = iter([True, False])
    stage.hand.gate._lease_is_fresh = lambda: next(answers, True)  # type: ignore[method-assign]
    stage.hand.advance(5)
    assert stage.calls == []
    _, end = stage.begins()
    stage.hand.gate.close()
    stage.hand.advance(5)
    end()
    assert stage.calls == []


# The whole worker, against linesim.

SOON = {
    "jobworker.line.loading.AFTER_SECONDS": 0.02,
    "jobworker.line.loading.AGAIN_SECONDS": 0.1,
}


class Slow:
    """A bot whose handlers of 遅 run until they are let go."""

    def __init__(self) -> None:
        self.bot = Bot()
        self.may_end = threading.Event()
        self.bot.default()(self._handle)

    def _handle(self, event: Any, talk: Talk) -> None:
        if talk.raw["type"] != "follow":
            if event.message.text == "遅":
                assert self.may_end.wait(15)
            talk.reply(event.message.text)


@pytest.fixture
def slow() -> Slow:
    return Slow()


def loadings(sim: Sim, user: Any) -> list[Any]:
    return [call for call in sim.calls_to("loading") if call.chat_id == user.user_id]


def a_friend(desk: Room, sim: Sim) -> Any:
    user = sim.add_user("花子")
    desk.send(sim.drafts.follow(user))
    desk.until_decided()
    return user


def test_a_friend_sees_it_until_the_answer(room: Rooms, sim: Sim, slow: Slow) -> None:
    desk = room(slow.bot, line=SOON)
    user = a_friend(desk, sim)
    document = desk.says(user, "遅")
    eventually(lambda: len(loadings(sim, user)) >= 3)
    assert sim.sees_loading(user)
    slow.may_end.set()
    desk.until_quiet()
    assert [bubble.text for bubble in sim.answers(user)] == ["遅"]
    assert not sim.sees_loading(user)
    first, *_ = calls = loadings(sim, user)
    assert {(call.status, call.body["loadingSeconds"]) for call in calls} == {(202, 20)}
    [reply] = sim.replies_to(document["eventId"])
    assert all(call.number < reply.number for call in calls)
    rows = eventually(lambda: rows_of(desk.database.calls, endpoint=START)[len(calls) - 1 :])
    row = rows[0]
    assert (row["eventId"], row["key"]) == (document["eventId"], user.user_id)
    assert first.body == {"chatId": user.user_id, "loadingSeconds": 20}


def test_neither_strangers_nor_groups_nor_quick_handlers_have_it(
    room: Rooms, sim: Sim, slow: Slow
) -> None:
    desk = room(slow.bot, line=SOON)
    friend, stranger = a_friend(desk, sim), sim.add_user("太郎")
    group = sim.add_group("皆", [friend, stranger])
    before = len(sim.calls_to("loading"))
    watched = a_friend(desk, sim)
    desk.says(friend, "速")
    desk.until_decided()
    desk.says(stranger, "遅")
    desk.says(friend, "遅", chat=group)
    desk.says(watched, "遅")
    # By then the others would have had theirs as well.
    eventually(lambda: len(loadings(sim, watched)) >= 3)
    slow.may_end.set()
    desk.until_quiet()
    assert {call.chat_id for call in sim.calls_to("loading")[before:]} == {watched.user_id}


def test_it_can_be_switched_off(room: Rooms, sim: Sim, slow: Slow) -> None:
    on, off = ({**SOON, "loading_animation": one} for one in (True, False))
    desk = room(slow.bot, line=off)
    user = a_friend(desk, sim)
    desk.says(user, "遅")
    # Another one beside it that shows it proves when it would have been shown.
    beside = room(slow.bot, line=on)
    other = a_friend(beside, sim)
    beside.says(other, "遅")
    eventually(lambda: len(loadings(sim, other)) >= 3)
    slow.may_end.set()
    for one in (desk, beside):
        one.until_decided()
    assert loadings(sim, user) == []


def test_a_line_that_fails_on_it_costs_no_answer(room: Rooms, sim: Sim, slow: Slow) -> None:
    desk = room(slow.bot, line=SOON, threads=8)
    users = [a_friend(desk, sim) for _ in range(6)]
    sim.answer_next("loading", 500, times=100)
    for user in users:
        desk.says(user, "遅")
    eventually(lambda: any(loadings(sim, user) for user in users))
    slow.may_end.set()
    desk.until_quiet()
    assert [bubble.text for user in users for bubble in sim.answers(user)] == ["遅"] * 6
    assert sum(len(loadings(sim, user)) for user in users) == 1


def test_a_bot_of_the_sdk_shows_it_until_it_sends(room: Rooms, sim: Sim) -> None:
    may_send, has_sent, may_end = (threading.Event() for _ in range(3))

    def handle(event: Any) -> None:
        if event.message.text == "遅":
            assert may_send.wait(15)
            push(event.source.user_id, "はい")
            has_sent.set()
        assert may_end.wait(15)

    desk = room(handler_of(handle), line=SOON)
    user, other = a_friend(desk, sim), a_friend(desk, sim)
    desk.says(user, "遅")
    eventually(lambda: loadings(sim, user))
    may_send.set()
    assert has_sent.wait(15)
    # Another handler has it renewed meanwhile.
    desk.says(other, "?")
    eventually(lambda: len(loadings(sim, other)) >= 3)
    may_end.set()
    desk.until_decided()
    [sent] = [call for call in sim.calls_to("push") if call.chat_id == user.user_id]
    assert all(call.number < sent.number for call in loadings(sim, user))
