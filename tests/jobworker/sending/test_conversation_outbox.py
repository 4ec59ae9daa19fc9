"""The contents of a conversation's next call, and its standing at the gate.

`tests.jobworker.test_sending_machine` tries any order of its calls, their results and failures.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dispatcher.conversations.conversations import Conversation
from jobworker.effects import Call, Send, SendMethod
from jobworker.line.gate_order import Standing
from jobworker.sending.conversation_outbox import (
    ConversationOutbox,
    Go,
    Moment,
    PendingSend,
    SendLimits,
    standing_of,
)
from linedesk.store.limits import TOKEN_LIFE
from linedesk.store.records.calls import TurnClass
from tests.jobworker.worker_harness import a_send

REPLY, PUSH, MULTICAST = SendMethod
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
LIMITS = SendLimits()
CHAT = "U1"
CONVERSATION = f"main/{CHAT}"


def a_reply(**more: Any) -> Send:
    known = {"id": "r", "token": "t", "token_from": NOW}
    return a_send(way=REPLY, to=CHAT, at=NOW, **{**known, **more})


def a_push(to: str | list[str] = CHAT, **more: Any) -> Send:
    way = MULTICAST if isinstance(to, list) else PUSH
    return a_send(**{"way": way, "to": to, "at": NOW, **more})


def box_of(*sends: Send) -> ConversationOutbox:
    """An outbox that holds these sends; monotonic clock and time since boot were 0 at NOW."""
    box = ConversationOutbox(Conversation(CONVERSATION), LIMITS, lambda box, ticket: None)
    for number, send in enumerate(sends):
        standing = standing_of(send, CONVERSATION, LIMITS, now=0.0, at=NOW)
        box.append(PendingSend(f"place {number}", send, standing, Moment(NOW, 0.0), size=100))
    return box


def nothing_held(path: str) -> float:
    return 0.0


def planned(box: ConversationOutbox, boottime: float = 0.0) -> Call:
    """The call that the next turn is used for."""
    go = box.plan(boottime, nothing_held)
    assert isinstance(go, Go)
    return go.call


# Sends that share a call.


def places_of(box: ConversationOutbox) -> list[int]:
    return [int(one.place.removeprefix("place ")) for one in box.together()]


def texts(count: int) -> list[dict[str, Any]]:
    return [{"type": "text", "text": "x"}] * count


def test_a_lone_reply_without_a_good_token_is_a_push_under_its_own_key() -> None:
    send, end = a_reply(), TOKEN_LIFE.total_seconds()
    without = a_reply(token=None)
    for box, boottime in ((box_of(send), end), (box_of(without), 0.0)):
        call = planned(box, boottime)
        assert (call.way, call.key, call.token) == (PUSH, send.retry_key, None)


def test_replies_travel_together_on_the_newest_token_that_lives() -> None:
    replies = [a_reply(token=f"t{n}", token_from=NOW + timedelta(seconds=n)) for n in (2, 3, 1)]
    box = box_of(*replies)
    call = planned(box, 4.0)
    assert (call.way, call.members) == (REPLY, ("place 0", "place 1", "place 2"))
    assert (call.token, call.key) == ("t3", None)
    # Once that is too old, none is left.
    assert planned(box, TOKEN_LIFE.total_seconds() + 2.5).token == "t3"
    assert planned(box, TOKEN_LIFE.total_seconds() + 3).way is PUSH


@pytest.mark.parametrize("alone", [a_push("U2"), a_push(["U1"]), a_push(tried_at=NOW)])
def test_a_send_to_another_chat_is_sent_alone_and_keeps_its_place(alone: Send) -> None:
    box = box_of(a_reply(), a_reply(), alone, a_reply(), a_push())
    ways = []
    while box.sends:
        call = planned(box)
        ways.append((call.way, len(call.members)))
        box.remove(call.members)
    assert ways == [(REPLY, 2), (alone.way, 1), (REPLY, 2)]


@pytest.mark.parametrize(
    ("messages", "first", "then"),
    [
        ([1] * 7, [0, 1, 2, 3, 4], [5, 6]),
        ([3, 2, 1], [0, 1], [2]),
        ([4, 2, 1], [0], [1, 2]),
    ],
)
def test_as_many_travel_together_as_line_takes_messages(
    messages: list[int], first: list[int], then: list[int]
) -> None:
    box = box_of(*(a_reply(messages=texts(count)) for count in messages))
    assert places_of(box) == first
    box.remove(planned(box).members)
    assert places_of(box) == then


# A conversation's standing at the gate.


@pytest.mark.parametrize(
    ("send", "turn_class"),
    [
        (a_reply(), TurnClass.LIVE),
        (a_push(), TurnClass.CHAT),
        (a_push("U2"), TurnClass.OTHER),
        (a_push(["U1"]), TurnClass.OTHER),
    ],
)
def test_a_send_has_the_class_of_what_it_is_worth(send: Send, turn_class: TurnClass) -> None:
    assert box_of(send).standing(0.0).class_at(0.0) is turn_class


def test_a_reply_is_live_until_shortly_before_its_token_ends_and_then_a_late_one() -> None:
    end = TOKEN_LIFE.total_seconds()
    for now in (0.0, end - LIMITS.token_reserve_seconds - 0.1):
        standing = box_of(a_reply()).standing(now)
        assert standing.class_at(now) is TurnClass.LIVE
        assert standing.live_place == end
    late = box_of(a_reply()).standing(end - LIMITS.token_reserve_seconds)
    assert late == Standing(TurnClass.OTHER, LIMITS.push_seconds)


def test_a_conversation_has_the_best_standing_of_its_sends() -> None:
    older = a_reply(id="r0", token_from=NOW - timedelta(seconds=20))
    box = box_of(a_push(["U1"]), older, a_push(), a_reply())
    late = LIMITS.token_reserve_seconds
    assert box.standing(0.0) == Standing(
        TurnClass.CHAT, LIMITS.push_seconds, 60.0 - late, 40.0, 40.0 - late
    )
    # The older token no longer counts.
    assert (box.standing(38.0).live_place, box.standing(38.0).first_until) == (60.0, 60.0 - late)


def test_after_a_call_the_rest_goes_to_the_end_as_if_its_token_began_now() -> None:
    box = box_of(*(a_reply() for _ in range(7)))
    box.called(7.0)
    box.remove(planned(box).members)
    standing = box.standing(7.0)
    assert (standing.live_place, standing.live_until) == (67.0, 60.0 - LIMITS.token_reserve_seconds)
