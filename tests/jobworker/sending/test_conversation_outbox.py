"""A conversation's calls as a state machine: its table, the contents of a call, and any order in
which its results are carried out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dispatcher.conversations.conversations import Conversation
from jobworker.effects import Call, Send, SendMethod
from jobworker.errors import LineError, NotSent, OutcomeUnknown
from jobworker.line.answer import LineAnswer
from jobworker.line.gate_order import GateState, Order, Standing, Ticket, TicketState
from jobworker.sending.conversation_outbox import (
    CallState,
    ConversationOutbox,
    Enter,
    Go,
    MakeLetters,
    Moment,
    Move,
    PendingSend,
    Rest,
    SendLimits,
    standing_of,
)
from jobworker.sending.verdict import CallOutcome, ReplyUnknown, SendVerdict, Tried, judge
from linedesk.store.errors import StoreUnavailable, WriteRefused
from linedesk.store.limits import TOKEN_LIFE
from linedesk.store.records.calls import TurnClass
from linedesk.store.records.effects import RETRY_KEY_LIFE
from linedesk.store.records.letters import NOT_SENT, OUTCOME_UNKNOWN, Cause
from tests.jobworker.worker_harness import a_send

IDLE, WAITING, BUSY, RESTING = CallState
REPLY, PUSH, MULTICAST = SendMethod
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
LIMITS = SendLimits(most_unanswered=4)
CHAT = "U1"
CONVERSATION = f"main/{CHAT}"


def at_place(place: float) -> Standing:
    return Standing(TurnClass.CHAT, place)


def a_ticket() -> Ticket:
    return Ticket(at_place(1.0))


def a_reply(**more: Any) -> Send:
    known = {"id": "r", "token": "t", "token_from": NOW}
    return a_send(way=REPLY, to=CHAT, at=NOW, **{**known, **more})


def a_push(to: str | list[str] = CHAT, **more: Any) -> Send:
    way = MULTICAST if isinstance(to, list) else PUSH
    return a_send(**{"way": way, "to": to, "at": NOW, **more})


def in_place(
    number: int, send: Send, *, standing: Standing | None = None, limits: SendLimits = LIMITS
) -> PendingSend:
    """A send of an outbox; the monotonic clock and the time since boot were 0 at NOW."""
    standing = standing or standing_of(send, CONVERSATION, limits, now=0.0, at=NOW)
    return PendingSend(f"place {number}", send, standing, Moment(NOW, 0.0), size=100)


def box_of(*sends: Send, limits: SendLimits = LIMITS) -> ConversationOutbox:
    """An outbox that holds these sends."""
    box = ConversationOutbox(Conversation(CONVERSATION), limits, lambda box, ticket: None)
    for number, send in enumerate(sends):
        box.append(in_place(number, send, limits=limits))
    return box


def box_in(state: CallState = BUSY, *sends: Send) -> tuple[ConversationOutbox, Ticket]:
    """An outbox in such a state, and the ticket that it has or had."""
    box, ticket = box_of(*(sends or (a_push(),))), a_ticket()
    if state is not IDLE:
        enter = box.begin(0.0)
        assert enter is not None
        ticket = enter.ticket
    if state in (BUSY, RESTING):
        assert box.turn(ticket)
    if state is RESTING:
        assert box.rest(1.0, "why") == Rest(1.0)
    assert box.state is state
    return box, ticket


def rest_of(box: ConversationOutbox) -> Rest:
    """The rest that it has or had, or any other."""
    return box._rest or Rest(1.0)


def nothing_held(path: str) -> float:
    return 0.0


def planned(box: ConversationOutbox, boottime: float = 0.0) -> Call:
    """The call that the next turn is used for."""
    go = box.plan(boottime, nothing_held)
    assert isinstance(go, Go)
    return go.call


def again(**more: Any) -> CallOutcome:
    return CallOutcome(SendVerdict.AGAIN, **more)


# The table, cell by cell.


@pytest.mark.parametrize("before", CallState)
def test_a_caller_with_a_send_begins_to_wait(before: CallState) -> None:
    box, _ = box_in(before)
    told = box.begin(0.0)
    assert isinstance(told, Enter) is (before is IDLE)
    assert box.state is (WAITING if before is IDLE else before)


@pytest.mark.parametrize("before", CallState)
def test_a_rest_that_is_over_begins_to_wait(before: CallState) -> None:
    box, _ = box_in(before)
    told = box.wake(rest_of(box), 0.0)
    assert isinstance(told, Enter) is (before is RESTING)
    assert box.state is (WAITING if before is RESTING else before)


def test_a_rest_that_a_give_up_ended_ends_no_later_one() -> None:
    box, _ = box_in(RESTING, a_push(["U1"]), a_push())
    earlier = rest_of(box)
    box.give_up("why")
    box.remove(["place 0"])
    enter = box.begin(0.0)
    assert enter is not None
    assert box.turn(enter.ticket)
    later = box.rest(1.0, "why")
    assert box.wake(earlier, 0.0) is None
    assert isinstance(later, Rest)
    assert isinstance(box.wake(later, 0.0), Enter)


@pytest.mark.parametrize("before", CallState)
def test_a_better_send_moves_the_ticket_at_the_gate(before: CallState) -> None:
    box, ticket = box_in(before)
    moved = box.append(in_place(9, a_push(), standing=at_place(5)))
    assert moved == (Move(ticket, at_place(5)) if before is WAITING else None)
    assert box.state is before


@pytest.mark.parametrize("before", CallState)
def test_a_turn_is_for_what_waits(before: CallState) -> None:
    box, ticket = box_in(before)
    assert box.turn(ticket) is (before is WAITING)
    assert box.state is (BUSY if before is WAITING else before)


def test_a_turn_of_another_ticket_is_not_wanted() -> None:
    box, _ = box_in(WAITING)
    assert not box.turn(a_ticket())
    assert box.state is WAITING


def test_a_conversation_taken_along_takes_no_turn_of_its_own() -> None:
    box, ticket = box_in(WAITING)
    assert box.take_along() is ticket
    assert not box.turn(ticket)
    assert box.state is BUSY


@pytest.mark.parametrize("before", CallState)
def test_a_send_is_given_up_where_no_thread_has_it(before: CallState) -> None:
    box, ticket = box_in(before)
    places = ("place 0",)
    told = {
        WAITING: MakeLetters("why", places, ticket),
        RESTING: MakeLetters("why", places),
    }.get(before)
    assert box.give_up("why") == told
    assert box.state is (BUSY if told else before)
    assert box.give_up("another") is None or before is IDLE


def test_a_given_up_caller_does_not_wait_wake_or_take_a_turn() -> None:
    for before in (WAITING, RESTING):
        box, ticket = box_in(before)
        box.give_up("why")
        assert box.wake(rest_of(box), 0.0) is None
        assert box.begin(0.0) is None
        assert not box.turn(ticket)
        assert box.state is BUSY


@pytest.mark.parametrize(
    "then",
    [
        lambda box: box.again(0.0),
        lambda box: box.rest(1.0, "why"),
        lambda box: box.not_stored(StoreUnavailable("x")),
        lambda box: box.failed(again(), 0.0),
        lambda box: box.failed(again(wait_seconds=0), 0.0),
        lambda box: box.plan(0.0, nothing_held),
        lambda box: box.plan(0.0, lambda path: 9.0),
    ],
)
def test_a_give_up_is_remembered_by_what_a_thread_has(
    then: Callable[[ConversationOutbox], object],
) -> None:
    box, _ = box_in()
    assert box.give_up("why") is None
    assert then(box) == MakeLetters("why", ("place 0",))
    assert box.state is BUSY


def test_a_give_up_has_no_effect_once_line_has_the_message() -> None:
    box, _ = box_in(BUSY, a_push(["U1"]), a_push())
    box.give_up("why")
    box.remove(["place 0"])
    assert box.state is IDLE
    assert isinstance(box.begin(0.0), Enter)


def test_only_the_first_send_is_given_up_unless_others_travel_with_it_already() -> None:
    box, _ = box_in(BUSY, a_push(), a_push(), a_push(["U1"]))
    assert box.given_up_places() == ("place 0",)
    box.call = planned(box)
    assert box.given_up_places() == ("place 0",)
    box.begin_call()
    assert box.given_up_places() == ("place 0", "place 1")


# The findings of its thread.


def test_a_call_is_new_until_it_is_made() -> None:
    box, _ = box_in(BUSY, a_reply())
    go = box.plan(0.0, nothing_held)
    assert isinstance(go, Go)
    assert go == Go(Call(NOW, REPLY, ("place 0",), token="t"), is_new=True)
    assert box.call is None
    assert not box.tried(go, 0.0).was_tried
    box.call = go.call
    assert box.plan(0.0, nothing_held) == go
    box.begin_call()
    assert box.plan(0.0, nothing_held) == Go(go.call, is_new=False)


def test_a_call_of_unknown_outcome_is_repeated_as_it_was_and_no_send_joins_it() -> None:
    box, _ = box_in(BUSY, a_push(id="a"), a_push(id="b"))
    first = planned(box)
    box.call = first
    box.apply(first, again(stands=True))
    box.failed(again(stands=True, wait_seconds=0), 0.0)
    box.append(in_place(2, a_reply()))
    go = box.plan(5.0, nothing_held)
    assert go == Go(first, is_new=False)
    assert box.tried(go, 5.0).was_tried


def test_a_call_that_was_called_off_is_made_unless_another_one_is_due_by_now() -> None:
    box, _ = box_in(BUSY, a_push())
    box.call = planned(box)
    box.again(0.0)
    assert planned(box, 60.0) is box.call
    assert planned(box, 61.0) is not box.call
    box.append(in_place(1, a_push()))
    assert planned(box).members == ("place 0", "place 1")


def test_a_call_that_line_refused_is_followed_by_another_one_with_all_that_waits() -> None:
    box, _ = box_in(BUSY, a_reply(id="a"))
    first = planned(box)
    box.call = first
    box.apply(first, again())
    box.append(in_place(1, a_reply(id="b", token="u", token_from=NOW + timedelta(seconds=9))))
    call = planned(box)
    assert (call.members, call.token) == (("place 0", "place 1"), "u")


def test_a_send_that_is_too_old_is_given_up_alone() -> None:
    box, _ = box_in(BUSY, a_push(), a_push())
    three_days = timedelta(days=3).total_seconds()
    assert box.plan(three_days, nothing_held) == MakeLetters(NOT_SENT, ("place 0",))


def test_a_call_whose_key_line_forgets_is_given_up_with_all_its_members() -> None:
    box, _ = box_in(BUSY, a_push(), a_push(), a_push(["U1"]))
    box.call, box.is_tried = planned(box), True
    life = RETRY_KEY_LIFE.total_seconds()
    assert isinstance(box.plan(life - 1, nothing_held), Go)
    told = MakeLetters(OUTCOME_UNKNOWN, ("place 0", "place 1"))
    assert box.plan(life, nothing_held) == told


def test_an_endpoint_that_is_held_back_is_waited_for() -> None:
    box, _ = box_in()
    held = {PUSH.path: 7.0}
    assert box.plan(0.0, lambda path: held.get(path, 0.0)) == Rest(7.0)
    assert box.reason is not None
    assert box.reason["code"] == "rate_limited"


def test_a_reply_waits_for_its_endpoint_until_it_becomes_a_push() -> None:
    box, _ = box_in(BUSY, a_reply(token="old", token_from=NOW - timedelta(seconds=9)), a_reply())
    end = TOKEN_LIFE.total_seconds()

    def held(path: str) -> float:
        return 30.0 * (path == REPLY.path)

    # The newest of its tokens is the one that it would travel on.
    assert box.plan(end - 2, held) == Rest(2.0)
    enter = box.wake(rest_of(box), end)
    assert enter is not None
    assert box.turn(enter.ticket)
    go = box.plan(end, held)
    assert isinstance(go, Go)
    assert go.call.way is PUSH


def test_a_reply_of_unknown_outcome_waits_for_its_endpoint_as_long_as_it_takes() -> None:
    box, _ = box_in(BUSY, a_reply())
    box.call, box.is_tried = planned(box), True
    assert box.plan(TOKEN_LIFE.total_seconds() - 2, lambda path: 30.0) == Rest(30.0)


def test_the_pauses_between_tries_are_bounded_and_say_why() -> None:
    box, _ = box_in()
    for _ in range(50):
        box.answer = NotSent("x")
        told = box.failed(again(), 0.0)
        assert isinstance(told, Rest)
        assert 0 < told.seconds <= LIMITS.longest_pause_seconds
        assert box.reason is not None
        assert (box.reason["code"], "until" in box.reason) == ("no_connection", True)
        enter = box.wake(told, 0.0)
        assert enter is not None
        assert box.reason is None
        assert box.turn(enter.ticket)


def test_an_outcome_that_names_a_pause_gets_it() -> None:
    box, _ = box_in()
    assert box.failed(again(wait_seconds=9.0), 0.0) == Rest(9.0)
    box, _ = box_in()
    assert isinstance(box.failed(again(wait_seconds=0), 0.0), Enter)
    assert box.state is WAITING


def test_tries_without_a_verdict_end_some_time() -> None:
    box, _ = box_in(BUSY, a_push(), a_push(), a_push(["U1"]))
    box.call = call = planned(box)
    box.is_tried = True
    for _ in range(3):
        box.failed(again(stands=True, unanswered=True), 0.0)
        box.failed(again(stands=True), 0.0)
        box.state = BUSY
    told = box.failed(again(stands=True, unanswered=True), 0.0)
    assert told == MakeLetters(Cause("no_verdict", {"tries": 4}), call.members)


def test_a_send_that_left_leaves_no_failed_tries_behind() -> None:
    box, _ = box_in(BUSY, a_push(["U1"]), a_push())
    for _ in range(3):
        box.calls += 1
        box.failed(again(unanswered=True), 0.0)
    box.remove(["place 0"])
    assert (box.calls, box.call) == (0, None)
    assert isinstance(box.failed(again(unanswered=True), 0.0), Rest)


def test_a_write_that_mongodb_does_not_confirm_is_repeated_soon() -> None:
    box, _ = box_in()
    for _ in range(50):
        assert 0 <= box.not_confirmed(StoreUnavailable("x")) <= LIMITS.store_pause_seconds
    assert box.reason == {"code": "not_confirmed"}
    box.not_confirmed(WriteRefused(121))
    assert box.reason == {"code": "write_refused", "errorCode": 121}
    assert box.state is BUSY


# Sends that share a call.


def places_of(box: ConversationOutbox) -> list[int]:
    return [int(one.place.removeprefix("place ")) for one in box.together()]


def texts(count: int) -> list[dict[str, Any]]:
    return [{"type": "text", "text": "x"}] * count


def test_a_lone_send_travels_as_it_was_recorded() -> None:
    push, multicast, other = a_push(), a_push(["U1", "U2"]), a_push("U2")
    assert planned(box_of(a_reply())) == Call(NOW, REPLY, ("place 0",), token="t")
    for send in (push, multicast, other):
        assert planned(box_of(send)) == Call(NOW, send.way, ("place 0",), key=send.retry_key)


def test_a_lone_reply_without_a_good_token_is_a_push_under_its_own_key() -> None:
    send, end = a_reply(), TOKEN_LIFE.total_seconds()
    without = a_reply(token=None)
    for box, boottime in ((box_of(send), end), (box_of(without), 0.0)):
        call = planned(box, boottime)
        assert (call.way, call.key, call.token) == (PUSH, send.retry_key, None)


def test_at_its_last_instant_a_token_still_lives() -> None:
    box = box_of(a_reply())
    assert planned(box, TOKEN_LIFE.total_seconds() - 0.001).way is REPLY


def test_a_push_is_never_called_on_a_token_of_its_own() -> None:
    assert planned(box_of(a_push(token="t", token_from=NOW))).way is PUSH


def test_replies_travel_together_on_the_newest_token_that_lives() -> None:
    replies = [a_reply(token=f"t{n}", token_from=NOW + timedelta(seconds=n)) for n in (2, 3, 1)]
    box = box_of(*replies)
    call = planned(box, 4.0)
    assert (call.way, call.members) == (REPLY, ("place 0", "place 1", "place 2"))
    assert (call.token, call.key) == ("t3", None)
    # Once that is too old, none is left.
    assert planned(box, TOKEN_LIFE.total_seconds() + 2.5).token == "t3"
    assert planned(box, TOKEN_LIFE.total_seconds() + 3).way is PUSH


def test_a_token_that_line_refused_is_not_used_again() -> None:
    older = a_reply(token="older", token_from=NOW - timedelta(seconds=5))
    box = box_of(older, a_reply(), a_reply())
    call = planned(box)
    assert call.token == "t"
    assert box.used_up(call) == ["place 1", "place 2"]
    box.apply(call, again(token_used_up=True, wait_seconds=0))
    assert planned(box).token == "older"
    box.apply(planned(box), again(token_used_up=True, wait_seconds=0))
    assert planned(box).way is PUSH


def test_pushes_to_the_own_chat_travel_on_a_reply_token_and_with_each_other() -> None:
    box = box_of(a_push(), a_reply(), a_push())
    call = planned(box)
    assert (call.way, call.token, len(call.members)) == (REPLY, "t", 3)
    call = planned(box_of(a_push(), a_push()))
    assert (call.way, len(call.members)) == (PUSH, 2)


def test_a_key_belongs_to_one_body() -> None:
    box = box_of(a_push(retry_key="a"), a_push(retry_key="b"))
    keys = {planned(box).key for _ in range(3)}
    assert len(keys) == 3, "a call that was not written down may be of another body"
    assert keys.isdisjoint({None, "a", "b"})


@pytest.mark.parametrize("alone", [a_push("U2"), a_push(["U1"]), a_push(tried_at=NOW)])
def test_a_send_to_another_chat_is_sent_alone_and_keeps_its_place(alone: Send) -> None:
    box = box_of(a_reply(), a_reply(), alone, a_reply(), a_push())
    ways = []
    while box.sends:
        call = planned(box)
        ways.append((call.way, len(call.members)))
        box.remove(call.members)
    assert ways == [(REPLY, 2), (alone.way, 1), (REPLY, 2)]


def test_a_replay_of_a_try_of_unknown_outcome_is_that_call_again() -> None:
    tried_at = NOW - timedelta(hours=20)
    box = box_of(a_push(tried_at=tried_at, tried_as=PUSH), a_push())
    call = planned(box)
    assert call == Call(tried_at, PUSH, ("place 0",), key=a_push().retry_key)
    box.call = call
    assert box.tried(Go(call, is_new=True), 0.0).was_tried
    three_hours = timedelta(hours=3).total_seconds()
    told = MakeLetters(OUTCOME_UNKNOWN, ("place 0",))
    assert box.plan(three_hours, nothing_held) == told


@pytest.mark.parametrize(
    ("messages", "first", "then"),
    [
        ([1] * 7, [0, 1, 2, 3, 4], [5, 6]),
        ([2, 2, 2], [0, 1], [2]),
        ([3, 2, 1], [0, 1], [2]),
        ([4, 2, 1], [0], [1, 2]),
        ([5, 1], [0], [1]),
    ],
)
def test_as_many_travel_together_as_line_takes_messages(
    messages: list[int], first: list[int], then: list[int]
) -> None:
    box = box_of(*(a_reply(messages=texts(count)) for count in messages))
    assert places_of(box) == first
    box.remove(planned(box).members)
    assert places_of(box) == then


def test_a_send_that_holds_too_many_messages_is_called_for_all_the_same() -> None:
    """LINE refuses it by a status that makes a letter of it, and nothing waits behind it."""
    box = box_of(a_push(messages=texts(6)), a_push())
    assert places_of(box) == [0]


def test_without_a_name_of_the_one_that_is_refused_fewer_travel_until_one_has_left() -> None:
    box = box_of(*(a_reply(token=f"t{n}") for n in range(6)))
    for count in (5, 2, 1):
        call = planned(box)
        assert len(call.members) == count
        box.apply(call, again(narrower=True, wait_seconds=0))
    assert len(planned(box).members) == 1
    box.remove(["place 0"])
    assert places_of(box) == [1, 2, 3, 4, 5]


def test_a_call_whose_first_member_was_given_up_by_name_continues_with_the_others() -> None:
    box = box_of(a_reply(), a_reply(), a_reply())
    box.call, box.is_tried = planned(box), True
    box.remove(["place 1"])
    call = planned(box)
    assert (call.members, box.call) == (("place 0", "place 2"), None)


def test_the_facts_of_a_call_that_is_answered_now() -> None:
    box = box_of(a_push(messages=texts(2)), a_reply())
    call = planned(box)
    assert box.tried(Go(call, is_new=True), 0.0) == Tried(call, [2, 1], token_was_good=True)
    end = TOKEN_LIFE.total_seconds() - 1
    assert box.tried(Go(call, is_new=True), end - 0.1).token_was_good
    assert box.tried(Go(call, is_new=True), end) == Tried(call, [2, 1], token_was_good=False)
    # A token that LINE refused proves nothing.
    box.apply(call, again(token_used_up=True))
    assert not box.tried(Go(call, is_new=True), 0.0).token_was_good


def test_sends_are_read_while_others_come_behind_them() -> None:
    """The thread that has the outbox reads the members of its call without the lock."""
    box, seen = box_of(a_push(), a_push()), list[str]()
    for one in box.sends:
        if len(box.sends) == 2:
            box.append(in_place(2, a_push()))
        seen.append(one.place)
    assert seen[:2] == ["place 0", "place 1"]


def test_memory_is_measured_by_what_is_left() -> None:
    box = box_of(a_push(), a_push(), a_push())
    assert (box.size, box.places) == (300, {"place 0", "place 1", "place 2"})
    box.remove(["place 0", "place 2"])
    assert (box.size, box.places) == (100, {"place 1"})


@pytest.mark.parametrize(
    "limits", [SendLimits(most_per_conversation=2), SendLimits(most_bytes_per_conversation=200)]
)
def test_an_outbox_is_full_by_sends_or_by_bytes(limits: SendLimits) -> None:
    box = box_of(a_push(), limits=limits)
    assert not box.is_full
    box.append(in_place(1, a_push()))
    assert box.is_full


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


def test_a_reply_without_a_token_is_none_that_is_free() -> None:
    """Like one with a failed call of a predecessor: LINE refused its token."""
    assert box_of(a_reply(token=None)).standing(0.0).class_at(0.0) is TurnClass.OTHER


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


def test_a_reply_whose_token_line_refused_is_worth_none() -> None:
    box, _ = box_in(BUSY, a_reply(), a_push(["U1"]))
    box.apply(planned(box), again(token_used_up=True, wait_seconds=0))
    told = box.failed(again(token_used_up=True, wait_seconds=0), 0.0)
    assert isinstance(told, Enter)
    assert told.ticket.standing.class_at(0.0) is TurnClass.OTHER


def test_the_end_of_the_line_outlasts_an_outbox_that_was_empty() -> None:
    """A flood may be decided one by one, each answer after the one before has left."""
    conversation = Conversation(CONVERSATION)
    box = ConversationOutbox(conversation, LIMITS, lambda box, ticket: None)
    box.called(7.0)
    again = ConversationOutbox(conversation, LIMITS, lambda box, ticket: None)
    again.append(in_place(0, a_push(), limits=LIMITS))
    assert again.standing(7.0).place == 67.0


def test_a_send_without_a_verdict_is_worth_no_more_than_another_push_until_it_has_left() -> None:
    """Otherwise one on which LINE always fails would repeatedly be the breaker's probe."""
    box = box_of(a_push(id="poison"), a_push(id="behind"))
    box.called(1.0, unanswered=True)
    box.called(2.0)
    assert box.standing(2.0).turn_class is TurnClass.OTHER
    box.remove(["place 0"])
    assert box.standing(1.0).turn_class is TurnClass.CHAT


def test_a_held_back_call_keeps_its_class() -> None:
    """A 429 or a refused access token says nothing of the send."""
    box = box_of(a_push())
    box.called(1.0, unanswered=False)
    assert box.standing(1.0).turn_class is TurnClass.CHAT


def test_a_clock_that_was_set_back_makes_nothing_wait_longer() -> None:
    ahead = NOW + timedelta(hours=1)
    for send in (
        a_send(at=ahead, way=PUSH, to=CHAT),
        a_send(at=ahead, way=REPLY, token="t", token_from=ahead),
    ):
        standing = box_of(send).standing(0.0)
        assert standing.place == LIMITS.push_seconds
        assert min(standing.live_place, 60.0) == 60.0


def test_a_better_send_behind_speeds_up_the_first() -> None:
    box, ticket = box_in(WAITING, a_push(["U1"]))
    behind = in_place(1, a_reply())
    assert box.append(behind) == Move(ticket, behind.standing)


def test_a_send_behind_a_full_outbox_moves_no_ticket() -> None:
    limits = SendLimits(most_per_conversation=2)
    box = box_of(a_push(), a_push(), limits=limits)
    box.begin(0.0)
    assert box.append(in_place(2, a_reply())) is None
    assert box.standing(0.0).class_at(0.0) is TurnClass.CHAT


def test_a_full_outbox_says_so_at_the_gate() -> None:
    limits = SendLimits(most_per_conversation=2)
    for count, is_full in ((1, False), (2, True)):
        sends = [a_reply() for _ in range(count)]
        assert box_of(*sends, limits=limits).standing(0.0).is_full is is_full


# Many conversations at one gate, and every result carried out at any later moment.

KINDS: dict[str, Callable[[str], dict[str, Any]]] = {
    "a reply": lambda name: {"way": REPLY, "to": CHAT, "token": name, "token_from": NOW},
    "a late reply": lambda name: {"way": REPLY, "to": CHAT, "token": None, "token_from": NOW},
    "a push": lambda name: {"way": PUSH, "to": CHAT},
    "a push elsewhere": lambda name: {"way": PUSH, "to": "U2"},
    "a multicast": lambda name: {"way": MULTICAST, "to": ["U1"]},
}
BAD_BODY = LineAnswer(400, '{"message": "The request body has 1 error(s)"}')
NAMED = LineAnswer(400, '{"details": [{"property": "messages[1].text"}]}')
INVALID = LineAnswer(400, '{"message": "Invalid reply token"}')
# Reports about a call, and whether LINE accepts its messages.
ENDS: dict[str, tuple[LineAnswer | LineError, bool]] = {
    "sent": (LineAnswer(200), True),
    "sent unheard": (OutcomeUnknown("x"), True),
    "lost": (OutcomeUnknown("x"), False),
    "never left": (NotSent("x"), False),
    "429": (LineAnswer(429), False),
    "401": (LineAnswer(401), False),
    "refused": (BAD_BODY, False),
    "refused by name": (NAMED, False),
    "token refused": (INVALID, False),
}


@dataclass
class Line:
    """The messages that LINE has accepted, their tokens and keys, and the tokens that it
    refuses.
    """

    arrived: dict[str, int] = field(default_factory=dict)
    bodies: dict[str, tuple[str, ...]] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)

    def answer(self, call: Call, names: tuple[str, ...], end: str) -> LineAnswer | LineError:
        """Its answer to a call with these sends. A token or key works once."""
        heard, takes = ENDS[end]
        once = call.token or call.key
        assert once is not None
        if self.bodies.get(once, names) != names:
            raise AssertionError("a token or key that LINE has taken came with another body")
        is_known = once in self.bodies
        refuses = once in self.refused or (end == "token refused" and call.token is not None)
        if takes and not is_known and not refuses:
            self.bodies[once] = names
            for name in names:
                self.arrived[name] = self.arrived.get(name, 0) + 1
        if isinstance(heard, LineError) or heard.status in (401, 429):
            return heard
        if call.token is not None and (is_known or refuses):
            self.refused.add(once)
            return INVALID
        if is_known:
            return LineAnswer(409)
        return LineAnswer(200) if takes else BAD_BODY if heard is INVALID else heard


@dataclass
class Turn:
    """A call under way."""

    box: ConversationOutbox
    ticket: Ticket
    go: Go


class Machine(RuleBasedStateMachine):
    """Outboxes at one gate. The results of transitions wait in a bag, and go out in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.order = Order()
        self.line = Line()
        self.boxes = [
            ConversationOutbox(Conversation(f"main{n}/{CHAT}"), LIMITS, lambda box, ticket: None)
            for n in range(3)
        ]
        self.bag: list[tuple[ConversationOutbox, Any]] = []
        self.clock: list[tuple[ConversationOutbox, Rest]] = []
        # Writes that MongoDB confirms in the end, each with its next action.
        self.writes: list[tuple[ConversationOutbox, Callable[[], None]]] = []
        self.stored: dict[str, Call | None] = {}
        self.turn: Turn | None = None
        self.threads_called = 0
        self.made = 0
        self.letters: dict[str, Send] = {}
        self.closed = False

    # The outbox, as its lock and its steps have it.

    def do(self, box: ConversationOutbox, result: Any) -> None:
        if result is not None:
            self.bag.append((box, result))

    @rule(which=st.integers(0, 2), kind=st.sampled_from(sorted(KINDS)), count=st.integers(1, 3))
    def record(self, which: int, kind: str, count: int) -> None:
        box = self.boxes[which]
        for _ in range(count):
            self.made += 1
            name = f"{self.made:04d}"
            send = a_send(id=name, at=NOW, retry_key=f"key {name}", **KINDS[kind](name))
            self.do(box, box.append(in_place(self.made, send)))
        self.do(box, box.begin(0.0))

    @precondition(lambda self: self.bag)
    @rule(data=st.data())
    def carry_out(self, data: st.DataObject) -> None:
        box, result = self.bag.pop(data.draw(st.integers(0, len(self.bag) - 1)))
        match result:
            case Enter(ticket):
                self.order.enter(ticket, now=0.0, away=False)
            case Move(ticket, standing):
                self.order.move(ticket, standing, now=0.0)
            case Rest():
                self.clock.append((box, result))
            case MakeLetters(_, places, ticket):
                if ticket is not None:
                    self.order.cancel(ticket)
                self.make_letters(box, places, unknown=box.unknown_call)
        self.threads_called += self.order.arm()

    def make_letters(
        self, box: ConversationOutbox, places: Any, *, unknown: Call | None = None
    ) -> None:
        assert box.state is BUSY

        def write() -> None:
            for one in box.sends:
                if one.place in places:
                    letter = one.send if unknown is None else one.send.tried(unknown)
                    self.letters[one.send.id] = letter
            self.stored[box.id] = None
            self.leave_outbox(box, places)

        self.writes.append((box, write))

    def leave_outbox(self, box: ConversationOutbox, places: Any) -> None:
        box.remove(places)
        if box.sends:
            self.do(box, box.begin(0.0))

    @precondition(lambda self: self.clock)
    @rule(data=st.data())
    def wake(self, data: st.DataObject) -> None:
        box, rest = self.clock.pop(data.draw(st.integers(0, len(self.clock) - 1)))
        self.do(box, box.wake(rest, 0.0))

    @rule(which=st.integers(0, 2))
    def give_up(self, which: int) -> None:
        self.do(self.boxes[which], self.boxes[which].give_up("released"))

    # The gate, and the thread that it called.

    @precondition(lambda self: self.threads_called)
    @rule(held=st.booleans(), noted=st.sampled_from(["yes", "yes", "no", "late"]))
    def a_thread_comes(self, held: bool, noted: str) -> None:
        self.threads_called -= 1
        ticket = self.order.grant(now=0.0, turn_seconds=0.1)
        if ticket is None:
            return
        assert self.turn is None, "two turns at once"
        box = next((box for box in self.boxes if box.turn(ticket)), None)
        if box is None:
            self.leave(ticket)
            return
        plan = box.plan(0.0, lambda path: 5.0 * held)
        if isinstance(plan, Go) and plan.is_new and noted != "yes":
            if noted == "late":
                self.stored[box.id] = plan.call
            plan = box.not_stored(StoreUnavailable("x"))
        if not isinstance(plan, Go):
            self.do(box, plan)
            self.leave(ticket)
            return
        if plan.is_new:
            self.stored[box.id] = plan.call
        box.call = plan.call
        self.turn = Turn(box, ticket, plan)

    @precondition(lambda self: self.turn is not None)
    @rule()
    def the_lease_is_stale(self) -> None:
        turn = self.taken()
        self.leave(turn.ticket)
        self.do(turn.box, turn.box.again(0.0))

    @precondition(lambda self: self.turn is not None)
    @rule(end=st.sampled_from(sorted(ENDS)))
    def line_answers(self, end: str) -> None:
        turn = self.taken()
        box, call = turn.box, turn.go.call
        box.begin_call()
        members = box.members(call)
        assert self.stored[box.id] == call, "called before it was written down"
        assert [one.place for one in members] == list(call.members), "a member has left"
        assert members == list(box.sends)[: len(members)], "what stands before it was passed by"
        assert not any(one.send.id in self.letters for one in members), "called after its letter"
        tried = box.tried(turn.go, 0.0)
        names = tuple(one.send.id for one in members)
        box.answer = self.line.answer(call, names, end)
        self.leave(turn.ticket)
        outcome = judge(tried, box.answer, reply_unknown=ReplyUnknown.PUSH)
        if outcome.ending is SendVerdict.DEAD:
            unknown = call if outcome.stands else None
            self.make_letters(box, outcome.refused, unknown=unknown)
        elif outcome.ending is SendVerdict.AGAIN:
            self.writes.append((box, lambda: self.try_again(box, call, outcome)))
        else:
            self.writes.append((box, lambda: self.sent(box, call)))

    def try_again(self, box: ConversationOutbox, call: Call, outcome: CallOutcome) -> None:
        if not outcome.stands:
            self.stored[box.id] = None
        box.apply(call, outcome)
        self.do(box, box.failed(outcome, 0.0))

    def sent(self, box: ConversationOutbox, call: Call) -> None:
        assert all(one.send.id in self.line.arrived for one in box.members(call))
        self.stored[box.id] = None
        self.leave_outbox(box, call.members)

    def taken(self) -> Turn:
        turn, self.turn = self.turn, None
        assert turn is not None
        return turn

    def leave(self, ticket: Ticket) -> None:
        assert self.order.leave(ticket, called=True)
        self.threads_called += self.order.arm()

    @precondition(lambda self: self.writes)
    @rule(data=st.data())
    def mongodb_confirms(self, data: st.DataObject) -> None:
        box, follow = self.writes.pop(data.draw(st.integers(0, len(self.writes) - 1)))
        assert box.state is BUSY
        follow()

    @precondition(lambda self: self.made > 12)
    @rule()
    def close(self) -> None:
        self.order.close()
        self.closed = True

    # Invariants.

    @invariant()
    def each_outbox_is_on_its_way(self) -> None:
        for box in self.boxes:
            # One that was given up may also have a rest or a ticket left, for nothing.
            in_bag = [result for one, result in self.bag if one is box]
            entering = sum(isinstance(r, Enter) and r.ticket is box._ticket for r in in_bag)
            resting = sum(r is box._rest for r in [*in_bag, *(rest for _, rest in self.clock)])
            letters = sum(isinstance(r, MakeLetters) for r in in_bag)
            written = sum(one is box for one, _ in self.writes)
            with_a_thread = self.turn is not None and self.turn.box is box
            ways = {
                IDLE: not box.sends,
                WAITING: entering + self.at_gate(box),
                RESTING: resting,
                BUSY: letters + written + with_a_thread,
            }
            assert ways[box.state] == 1, box.state
            assert (box.state is IDLE) is (not box.sends)

    def at_gate(self, box: ConversationOutbox) -> bool:
        ticket = box._ticket
        if ticket is None:
            return False
        return ticket.state is TicketState.WAITING or (
            self.closed and ticket.state is TicketState.REFUSED
        )

    @invariant()
    def no_ticket_waits_without_a_thread_on_its_way(self) -> None:
        if self.order.waiting:
            assert self.order.state in (GateState.ARMED, GateState.HELD)
        if self.order.state is GateState.ARMED:
            assert self.threads_called == 1

    @invariant()
    def the_gate_is_held_by_the_call(self) -> None:
        assert (self.order.state is GateState.HELD) is (self.turn is not None)

    @invariant()
    def every_message_arrives_once_and_in_order(self) -> None:
        assert set(self.line.arrived.values()) <= {1}
        for box in self.boxes:
            left = [one.send.id for one in box.sends if one.send.id not in self.line.arrived]
            arrived = [one.send.id for one in box.sends if one.send.id in self.line.arrived]
            assert not left or not arrived or max(arrived) < min(left)

    @invariant()
    def a_letter_of_what_arrived_says_so(self) -> None:
        for name, letter in self.letters.items():
            assert name not in self.line.arrived or letter.tried_at is not None

    @invariant()
    def a_call_in_memory_stands_in_mongodb(self) -> None:
        for box in self.boxes:
            if box.call is not None and not any(one is box for one, _ in self.writes):
                assert self.stored[box.id] == box.call

    @invariant()
    def bytes_and_places_are_those_of_the_sends(self) -> None:
        for box in self.boxes:
            assert box.size == 100 * len(box.sends)
            assert box.places == {one.place for one in box.sends}


TestMachine = Machine.TestCase
