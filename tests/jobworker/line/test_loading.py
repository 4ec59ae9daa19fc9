"""The loading animation: shown for slow handlers alone, never after them, and at no one's cost."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobworker.handler_context import HandlerContext
from jobworker.line import loading
from jobworker.line.answer import LineAnswer
from jobworker.line.loading import START, LoadingAnimations, may_be_shown
from jobworker.record.conversations import StoredConversation
from linedesk.store.documents import Document, make_document
from tests.jobworker.line.test_gate import Hand
from tests.jobworker.line.test_gate import hand as hand
from tests.waiting import eventually

USER, GROUP = "U" + "1" * 32, "C" + "1" * 32


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


class Stage:
    """A gate and a clock that are moved by hand, and LINE's answers."""

    def __init__(self, hand: Hand) -> None:
        self.hand = hand
        self.calls: list[tuple[float, dict[str, Any]]] = []
        self.during: Callable[[], None] = lambda: None
        self.reads: list[float] = []
        self.friend: bool | None = True
        self.animations = LoadingAnimations(hand.line(post=self._post), load=self._load)

    def begins(self) -> Callable[[], None]:
        """A handler begins; returns the function that ends it."""
        document = a_document()
        return self.animations.begin(document, HandlerContext(document))

    def _post(self, path: str, body: dict[str, Any], **context: Any) -> LineAnswer:
        assert path == START
        assert context == {"limit_seconds": loading.CALL_SECONDS, "key": USER, "eventId": "01E"}
        self.calls.append((self.hand.now, body))
        self.during()
        return LineAnswer(202, "{}")

    def _load(self, document: Document) -> StoredConversation:
        self.reads.append(self.hand.now)
        return StoredConversation.from_document(f"main/{USER}", {"friend": self.friend})


@pytest.fixture
def stage(hand: Hand) -> Stage:
    return Stage(hand)


def test_it_is_shown_after_a_second_and_renewed_until_the_handler_ends(stage: Stage) -> None:
    end = stage.begins()
    stage.hand.advance(0.9)
    assert stage.reads == []
    stage.hand.advance(40)
    body = {"chatId": USER, "loadingSeconds": 20}
    assert stage.calls == [(101.0, body), (116.0, body), (131.0, body)]
    # Whether the user is a friend is read once.
    assert stage.reads == [101.0]
    end()
    stage.hand.advance(60)
    assert len(stage.calls) == 3
    assert (stage.hand.steps, stage.hand.gate.waiting) == (type(stage.hand.steps)(), 0)


def test_one_who_is_no_friend_has_it_not(stage: Stage) -> None:
    stage.friend = None
    stage.begins()
    stage.hand.advance(40)
    assert (stage.calls, stage.reads) == ([], [101.0])


def test_a_handler_that_ends_while_the_turn_waits_for_the_interval_makes_no_call(
    stage: Stage,
) -> None:
    end = stage.begins()
    answers = iter([lambda: True, lambda: end() or True])
    stage.hand.gate._lease_is_fresh = lambda: next(answers)()  # type: ignore[method-assign]
    stage.hand.advance(5)
    assert stage.calls == []


def test_a_call_that_is_under_way_ends_before_the_handler_s_decision_continues(
    stage: Stage,
) -> None:
    end = stage.begins()
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
