"""A send as a state machine: its table, and whatever order its results are carried out in."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial, reduce
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jobworker.effects import RETRY_KEY_LIFE, Send, SendMethod
from jobworker.errors import NotSent
from jobworker.line.gate_order import GateState, Order, Standing, Ticket, TicketState, TurnClass
from jobworker.sending.conversation_outbox import (
    ConversationOutbox,
    Enter,
    Go,
    LineEnds,
    MakeLetter,
    Moment,
    Move,
    PendingSend,
    Rest,
    SendLimits,
    SendState,
    standing_of,
)
from jobworker.sending.verdict import SendOutcome, SendVerdict
from linedesk.store.errors import StoreUnavailable, WriteRefused
from linedesk.store.limits import TOKEN_LIFE
from tests.jobworker.worker_harness import a_send

IDLE, WAITING, BUSY, RESTING, GONE = SendState
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
LIMITS = SendLimits(most_unanswered=4)


def at_place(place: float) -> Standing:
    return Standing(TurnClass.CHAT, place)


def made(send: Send, place: float, conversation: str = "main/U1") -> PendingSend:
    at = Moment(NOW, 0.0)
    return PendingSend(send, at_place(place), conversation=conversation, limits=LIMITS, made=at)


def a_ticket() -> Ticket:
    return Ticket(at_place(1.0))


def pending(state: SendState = BUSY, **send: Any) -> tuple[PendingSend, Ticket]:
    """A send in such a state, with the ticket that it has or had."""
    one, ticket = made(a_send(at=NOW, **send), 100.0), Ticket(at_place(100.0))
    if state is not IDLE:
        assert one.first(ticket) == Enter(ticket)
    if state in (BUSY, RESTING, GONE):
        assert one.turn(ticket)
    if state is RESTING:
        assert one.rest(1.0, "why") == Rest(1.0)
    if state is GONE:
        one.gone()
    assert one.state is state
    return one, ticket


def a_reply(**more: Any) -> dict[str, Any]:
    return {"way": SendMethod.REPLY, "token": "t", "token_from": NOW, **more}


def again(one: PendingSend, **more: Any) -> SendOutcome:
    return SendOutcome(SendVerdict.AGAIN, one.send, **more)


# The table, cell by cell.


@pytest.mark.parametrize("before", SendState)
def test_the_first_of_an_outbox_begins_to_wait(before: SendState) -> None:
    (one, _), ticket = pending(before), Ticket(at_place(1.0))
    assert one.first(ticket) == (Enter(ticket) if before is IDLE else None)
    assert one.state is (WAITING if before is IDLE else before)


@pytest.mark.parametrize("before", SendState)
def test_a_rest_that_is_over_begins_to_wait(before: SendState) -> None:
    (one, _), ticket = pending(before), Ticket(at_place(1.0))
    assert one.wake(lambda: ticket) == (Enter(ticket) if before is RESTING else None)
    assert one.state is (WAITING if before is RESTING else before)


@pytest.mark.parametrize("before", SendState)
def test_what_is_worth_more_moves_the_ticket_at_the_gate(before: SendState) -> None:
    one, ticket = pending(before)
    assert one.hurry(at_place(5)) == (Move(ticket, at_place(5)) if before is WAITING else None)
    assert one.state is before


@pytest.mark.parametrize("before", SendState)
def test_a_turn_is_for_a_send_that_waits(before: SendState) -> None:
    one, ticket = pending(before)
    assert one.turn(ticket) is (before is WAITING)
    assert one.state is (BUSY if before is WAITING else before)


def test_a_turn_of_another_ticket_is_not_wanted() -> None:
    one, _ = pending(WAITING)
    assert not one.turn(Ticket(at_place(1.0)))
    assert one.state is WAITING


@pytest.mark.parametrize("before", SendState)
def test_a_send_is_given_up_where_no_thread_has_it(before: SendState) -> None:
    one, ticket = pending(before)
    told = {WAITING: MakeLetter("why", ticket), RESTING: MakeLetter("why")}.get(before)
    assert one.give_up("why") == told
    assert one.state is (BUSY if told else before)
    assert one.give_up("another") is None


def test_what_was_given_up_neither_waits_nor_wakes_nor_takes_a_turn() -> None:
    for before in (WAITING, RESTING):
        one, ticket = pending(before)
        one.give_up("why")
        assert one.wake(a_ticket) is None
        assert not one.turn(ticket)
        assert one.state is BUSY


@pytest.mark.parametrize(
    "then",
    [
        lambda one: one.again(Ticket(at_place(1.0))),
        lambda one: one.rest(1.0, "why"),
        lambda one: one.failed(again(one), a_ticket),
        lambda one: one.failed(again(one, wait_seconds=0), a_ticket),
        lambda one: one.plan(NOW, lambda path: 0.0),
        lambda one: one.plan(NOW, lambda path: 9.0),
    ],
)
def test_a_give_up_is_remembered_by_a_send_that_a_thread_has(
    then: Callable[[PendingSend], object],
) -> None:
    one, _ = pending()
    assert one.give_up("why") is None
    assert then(one) == MakeLetter("why")
    assert one.state is BUSY


def test_a_give_up_has_no_effect_once_line_has_the_message() -> None:
    one, _ = pending()
    one.give_up("why")
    one.gone()
    assert one.state is GONE


# What its thread finds.


def nothing_held(path: str) -> float:
    return 0.0


def test_a_fresh_send_is_written_down_before_it_goes() -> None:
    one, _ = pending(**a_reply())
    go = one.plan(NOW, nothing_held)
    assert isinstance(go, Go)
    assert (go.way, one.was_tried, one.send.tried_at) == (SendMethod.REPLY, False, None)
    assert go.note == one.send.tried(SendMethod.REPLY, NOW)
    one.noted(go.note)
    one.called_off(go)
    assert one.send.tried_at is None


def test_a_try_of_unknown_outcome_stands_there_already() -> None:
    one, _ = pending()
    one.noted(one.send.tried(SendMethod.PUSH, NOW))
    before = one.send
    go = one.plan(NOW, nothing_held)
    assert go == Go(SendMethod.PUSH, None)
    assert one.was_tried
    one.called_off(Go(SendMethod.PUSH, None))
    assert one.send == before


def test_a_send_that_is_too_old_is_given_up() -> None:
    one, _ = pending()
    assert one.plan(NOW + timedelta(days=3), nothing_held) == MakeLetter("not sent within 3 days")
    one.noted(one.send.tried(SendMethod.PUSH, NOW))
    told = MakeLetter("outcome unknown for 23 hours")
    assert one.plan(NOW + RETRY_KEY_LIFE, nothing_held) == told


def test_an_endpoint_that_is_held_back_is_waited_for() -> None:
    one, _ = pending()
    held = {SendMethod.PUSH.path: 7.0}
    assert one.plan(NOW, lambda path: held.get(path, 0.0)) == Rest(7.0)
    assert one.reason is not None
    assert "429" in one.reason


def test_a_reply_waits_for_its_endpoint_until_it_becomes_a_push() -> None:
    one, _ = pending(**a_reply())
    late = NOW + TOKEN_LIFE - timedelta(seconds=2)
    assert one.plan(late, lambda path: 30.0 * (path == SendMethod.REPLY.path)) == Rest(2.0)
    ticket = a_ticket()
    one.wake(lambda: ticket)
    assert one.turn(ticket)
    go = one.plan(NOW + TOKEN_LIFE, lambda path: 30.0 * (path == SendMethod.REPLY.path))
    assert isinstance(go, Go)
    assert go.way is SendMethod.PUSH


def test_the_pauses_between_tries_are_bounded_and_say_why() -> None:
    one, ticket = pending()
    for _ in range(50):
        one.answer = NotSent("x")
        told = one.failed(again(one), lambda: ticket)
        assert isinstance(told, Rest)
        assert 0 < told.seconds <= LIMITS.longest_pause_seconds
        assert one.reason is not None
        assert one.reason.startswith("no connection to LINE, next try at ")
        assert one.wake(lambda: ticket) == Enter(ticket)
        assert one.reason is None
        assert one.turn(ticket)


def test_an_outcome_that_names_a_pause_gets_it() -> None:
    one, ticket = pending()
    assert one.failed(again(one, wait_seconds=9.0), lambda: ticket) == Rest(9.0)
    one, ticket = pending()
    assert one.failed(again(one, wait_seconds=0), lambda: ticket) == Enter(ticket)
    assert one.state is WAITING


def test_tries_without_a_verdict_end_some_time() -> None:
    one, ticket = pending()
    for _ in range(3):
        one.failed(again(one, unanswered=True), lambda: ticket)
        one.failed(again(one), lambda: ticket)
        one.state = BUSY
    told = one.failed(again(one, unanswered=True), lambda: ticket)
    assert told == MakeLetter("no verdict of LINE's in 4 tries")


def test_a_write_that_mongodb_does_not_confirm_is_repeated_soon() -> None:
    one, _ = pending()
    for _ in range(50):
        assert 0 <= one.not_confirmed(StoreUnavailable("x")) <= LIMITS.store_pause_seconds
    assert one.reason == "MongoDB did not confirm in time"
    one.not_confirmed(WriteRefused(121))
    assert one.reason == "MongoDB refuses the write: code 121"
    assert one.state is BUSY


# What a conversation is worth at the gate.


def box_of(*sends: Send, now: float = 0.0, limits: SendLimits = LIMITS) -> ConversationOutbox:
    """An outbox with these sends; the monotonic clock showed 0 at NOW."""
    box = ConversationOutbox("main/U1", limits, LineEnds(limits))
    for send in sends:
        standing = standing_of(send, "main/U1", limits, now=now, at=NOW)
        made = Moment(NOW, 0.0)
        box.append(PendingSend(send, standing, conversation="main/U1", limits=limits, made=made))
    return box


def a_push(to: str | list[str], **more: Any) -> Send:
    way = SendMethod.MULTICAST if isinstance(to, list) else SendMethod.PUSH
    return a_send(way=way, to=to, at=NOW, **more)


REPLY = a_send(id="r", at=NOW, **a_reply())


@pytest.mark.parametrize(
    ("send", "turn_class"),
    [
        (REPLY, TurnClass.LIVE),
        (a_push("U1"), TurnClass.CHAT),
        (a_push("U2"), TurnClass.OTHER),
        (a_push(["U1"]), TurnClass.OTHER),
    ],
)
def test_a_send_has_the_class_of_what_it_is_worth(send: Send, turn_class: TurnClass) -> None:
    assert box_of(send).standing(0.0).class_at(0.0) is turn_class


def test_a_reply_is_live_until_shortly_before_its_token_ends_and_then_a_late_one() -> None:
    end = TOKEN_LIFE.total_seconds()
    for now in (0.0, end - LIMITS.token_reserve_seconds - 0.1):
        standing = box_of(REPLY).standing(now)
        assert standing.class_at(now) is TurnClass.LIVE
        assert standing.live_place == end
    late = box_of(REPLY).standing(end - LIMITS.token_reserve_seconds)
    assert late == Standing(TurnClass.OTHER, LIMITS.push_seconds)


def test_a_reply_without_a_token_is_none_that_is_free() -> None:
    event_without = a_send(at=NOW, way=SendMethod.REPLY, token=None, token_from=NOW)
    assert box_of(event_without).standing(0.0).class_at(0.0) is TurnClass.OTHER


def test_a_conversation_stands_by_the_best_of_what_it_has_to_send() -> None:
    older = a_send(id="r0", at=NOW, **a_reply(token_from=NOW - timedelta(seconds=20)))
    box = box_of(a_push(["U1"], id="m"), older, a_push("U1", id="p"), REPLY)
    late = LIMITS.token_reserve_seconds
    assert box.standing(0.0) == Standing(
        TurnClass.CHAT, LIMITS.push_seconds, 60.0 - late, 40.0, 40.0 - late
    )
    # The older token counts no more.
    assert (box.standing(38.0).live_place, box.standing(38.0).first_until) == (60.0, 60.0 - late)


def test_after_a_call_the_rest_goes_to_the_end_as_if_its_token_began_now() -> None:
    box = box_of(*(a_send(id=str(n), at=NOW, **a_reply()) for n in range(3)))
    box.called(7.0)
    box.pop()
    standing = box.standing(7.0)
    assert (standing.live_place, standing.live_until) == (67.0, 60.0 - LIMITS.token_reserve_seconds)


def test_a_reply_that_became_a_push_is_worth_no_token() -> None:
    (one, _), box = pending(**a_reply()), ConversationOutbox("main/U1", LIMITS, LineEnds(LIMITS))
    one.standing = standing_of(one.send, "main/U1", LIMITS, now=0.0, at=NOW)
    box.append(one)
    refused = one.send.refused(next_way=SendMethod.PUSH)
    told = one.failed(
        SendOutcome(SendVerdict.AGAIN, refused, wait_seconds=0),
        lambda: Ticket(box.standing(0.0)),
    )
    assert isinstance(told, Enter)
    assert told.ticket.standing.class_at(0.0) is TurnClass.OTHER


def test_the_end_of_the_line_outlasts_an_outbox_that_was_empty() -> None:
    """A flood may be decided one by one, each answer after the one before has left."""
    ends = LineEnds(LIMITS)
    box = ConversationOutbox("main/U1", LIMITS, ends)
    box.called(7.0)
    assert [ends.of("main/U1"), ends.of("main/U2")] == [67.0, -math.inf]
    for second in range(70):
        ends.called("main/U2", 8.0 + second)
    assert ends.of("main/U1") == -math.inf, "by then it would stand there anyway"


def test_what_got_no_verdict_is_worth_no_more_than_another_push_until_it_has_left() -> None:
    """One on which LINE always fails would else be the breaker's probe again and again."""
    box = box_of(a_push("U1", id="poison"), a_push("U1", id="behind"))
    box.called(1.0, unanswered=True)
    box.called(2.0)
    assert box.standing(2.0).turn_class is TurnClass.OTHER
    box.pop()
    assert box.standing(1.0).turn_class is TurnClass.CHAT


def test_what_line_held_back_keeps_its_class() -> None:
    """A 429 or a refused access token says nothing of the send."""
    box = box_of(a_push("U1", id="p"))
    box.called(1.0, unanswered=False)
    assert box.standing(1.0).turn_class is TurnClass.CHAT


@pytest.mark.parametrize("tried", [NOW, None])
def test_an_answer_that_a_predecessor_tried_as_a_push_is_worth_no_token(
    tried: datetime | None,
) -> None:
    as_push = a_send(at=NOW, **a_reply(tried_at=tried, tried_as=SendMethod.PUSH))
    assert box_of(as_push).standing(0.0).class_at(0.0) is TurnClass.OTHER


def test_a_clock_that_was_set_back_makes_nothing_wait_longer() -> None:
    ahead = NOW + timedelta(hours=1)
    for send in (
        a_send(at=ahead, way=SendMethod.PUSH, to="U1"),
        a_send(at=ahead, **a_reply(token_from=ahead)),
    ):
        standing = box_of(send).standing(0.0)
        assert standing.place == LIMITS.push_seconds
        assert min(standing.live_place, 60.0) == 60.0


def test_what_is_recorded_behind_pulls_the_first_send_along() -> None:
    box = box_of(a_push(["U1"], id="m"))
    (first,) = box.sends
    ticket = Ticket(box.standing(0.0))
    first.first(ticket)
    standing = standing_of(REPLY, "main/U1", LIMITS, now=0.0, at=NOW)
    behind = PendingSend(
        REPLY, standing, conversation="main/U1", limits=LIMITS, made=Moment(NOW, 0.0)
    )
    assert box.append(behind) == Move(ticket, standing)


def test_a_full_outbox_says_so() -> None:
    limits = SendLimits(most_per_conversation=2)
    for count, is_full in ((1, False), (2, True)):
        sends = [a_send(id=str(n), at=NOW, **a_reply()) for n in range(count)]
        assert box_of(*sends, limits=limits).standing(0.0).is_full is is_full


# Many sends at one gate, and every result carried out at any later moment.


@dataclass
class Outbox:
    """One conversation: its sends in order, and what LINE and `deadletters` have of them."""

    sends: deque[PendingSend] = field(default_factory=deque)
    made: int = 0


@dataclass
class Call:
    """A call under way, or a thread that has a send otherwise."""

    outbox: Outbox
    one: PendingSend
    ticket: Ticket
    go: Go


class Machine(RuleBasedStateMachine):
    """Outboxes at one gate. The results of transitions wait in a bag, and go out in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.order = Order()
        self.outboxes = [Outbox() for _ in range(3)]
        self.bag: list[tuple[Outbox, PendingSend, Any]] = []
        self.clock: list[tuple[Outbox, PendingSend]] = []
        self.letters_due: list[tuple[Outbox, PendingSend]] = []
        self.removals: list[tuple[Outbox, PendingSend]] = []
        self.answers: list[tuple[Outbox, PendingSend, SendOutcome]] = []
        self.call: Call | None = None
        self.threads_called = 0
        self.arrived: list[PendingSend] = []
        self.letters: list[PendingSend] = []
        self.closed = False

    # The outbox, as its lock and its steps have it.

    def do(self, outbox: Outbox, one: PendingSend, result: Any) -> None:
        if result is not None:
            self.bag.append((outbox, one, result))

    def ticket(self, one: PendingSend) -> Ticket:
        outbox = self.outboxes[int(one.send.id.partition("/")[0])]
        return Ticket(reduce(Standing.with_other, (each.standing for each in outbox.sends)))

    @rule(which=st.integers(0, 2), place=st.integers(0, 9))
    def record(self, which: int, place: int) -> None:
        outbox = self.outboxes[which]
        outbox.made += 1
        one = made(a_send(id=f"{which}/{outbox.made}", at=NOW), place)
        outbox.sends.append(one)
        head = outbox.sends[0]
        if head is one:
            self.do(outbox, one, one.first(self.ticket(one)))
        else:
            self.do(outbox, head, head.hurry(one.standing))

    @precondition(lambda self: self.bag)
    @rule(data=st.data())
    def carry_out(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.bag) - 1))
        outbox, one, result = self.bag.pop(index)
        match result:
            case Enter(ticket):
                self.order.enter(ticket, now=0.0, away=False)
            case Move(ticket, standing):
                self.order.move(ticket, standing, now=0.0)
            case Rest():
                self.clock.append((outbox, one))
            case MakeLetter(_, ticket):
                if ticket is not None:
                    self.order.cancel(ticket)
                self.letters_due.append((outbox, one))
        self.threads_called += self.order.arm()

    @precondition(lambda self: self.clock)
    @rule(data=st.data())
    def wake(self, data: st.DataObject) -> None:
        outbox, one = self.clock.pop(data.draw(st.integers(0, len(self.clock) - 1)))
        self.do(outbox, one, one.wake(partial(self.ticket, one)))

    @rule(which=st.integers(0, 2))
    def give_up(self, which: int) -> None:
        outbox = self.outboxes[which]
        if outbox.sends:
            self.do(outbox, outbox.sends[0], outbox.sends[0].give_up("released"))

    # The gate, and the thread that it called.

    @precondition(lambda self: self.threads_called)
    @rule(held=st.booleans(), noted=st.booleans())
    def a_thread_comes(self, held: bool, noted: bool) -> None:
        self.threads_called -= 1
        ticket = self.order.grant(now=0.0, turn_seconds=0.1)
        if ticket is None:
            return
        assert self.call is None, "two turns at once"
        owners = ((box, one) for box in self.outboxes for one in list(box.sends)[:1])
        found = next(((box, one) for box, one in owners if one.turn(ticket)), None)
        if found is None:
            self.leave(ticket)
            return
        outbox, one = found
        plan = one.plan(NOW, lambda path: 5.0 * held)
        if isinstance(plan, Go) and plan.note is not None and not noted:
            plan = one.rest(one.not_confirmed(StoreUnavailable("x")), "store")
        if not isinstance(plan, Go):
            self.do(outbox, one, plan)
            self.leave(ticket)
            return
        if plan.note is not None:
            one.noted(plan.note)
        self.call = Call(outbox, one, ticket, plan)

    @precondition(lambda self: self.call is not None)
    @rule()
    def the_lease_is_stale(self) -> None:
        call = self.taken()
        call.one.called_off(call.go)
        self.leave(call.ticket)
        self.do(call.outbox, call.one, call.one.again(self.ticket(call.one)))

    @precondition(lambda self: self.call is not None)
    @rule(ending=st.sampled_from(["sent", "sent unheard", "lost", "refused", "429"]))
    def line_answers(self, ending: str) -> None:
        call = self.taken()
        one = call.one
        one.calling()
        assert one not in self.letters, "called after its letter"
        if ending.startswith("sent") and one not in self.arrived:
            self.arrived.append(one)
        self.leave(call.ticket)
        if ending == "sent":
            self.removals.append((call.outbox, one))
        elif ending == "refused" and one not in self.arrived:
            self.letters_due.append((call.outbox, one))
        else:
            # Under its retry key LINE takes it once, so any number of calls arrive as one.
            outcome = again(one, wait_seconds=0 if ending == "429" else None)
            self.answers.append((call.outbox, one, outcome))

    def taken(self) -> Call:
        call, self.call = self.call, None
        assert call is not None
        return call

    def leave(self, ticket: Ticket) -> None:
        assert self.order.leave(ticket, called=True)
        self.threads_called += self.order.arm()

    # MongoDB confirms in the end, at any time.

    @precondition(lambda self: self.answers)
    @rule()
    def the_answer_is_durable(self) -> None:
        outbox, one, outcome = self.answers.pop(0)
        self.do(outbox, one, one.failed(outcome, partial(self.ticket, one)))

    @precondition(lambda self: self.letters_due)
    @rule(data=st.data())
    def the_letter_is_written(self, data: st.DataObject) -> None:
        outbox, one = self.letters_due.pop(data.draw(st.integers(0, len(self.letters_due) - 1)))
        assert one.state is BUSY
        self.letters.append(one)
        self.removals.append((outbox, one))

    @precondition(lambda self: self.removals)
    @rule()
    def it_is_removed(self) -> None:
        outbox, one = self.removals.pop(0)
        assert one.state is BUSY
        assert outbox.sends.popleft() is one
        one.gone()
        if outbox.sends:
            following = outbox.sends[0]
            self.do(outbox, following, following.first(self.ticket(following)))

    @precondition(lambda self: sum(box.made for box in self.outboxes) > 8)
    @rule()
    def close(self) -> None:
        self.order.close()
        self.closed = True

    # What always holds.

    @invariant()
    def each_first_send_is_on_its_way(self) -> None:
        bag = [one for _, one, result in self.bag if not isinstance(result, Move)]
        with_a_thread = [self.call.one] if self.call else []
        for outbox in self.outboxes:
            for one in list(outbox.sends)[1:]:
                assert one.state is IDLE
            for one in list(outbox.sends)[:1]:
                written = [
                    *(other for _, other in self.letters_due),
                    *(other for _, other in self.removals),
                    *(other for _, other, _ in self.answers),
                ]
                ways = {
                    WAITING: bag.count(one) + self.at_gate(one),
                    RESTING: bag.count(one) + [o for _, o in self.clock].count(one),
                    BUSY: bag.count(one) + with_a_thread.count(one) + written.count(one),
                }
                # One that was given up may also have a wake-up or a ticket left, for nothing.
                assert ways[one.state] >= 1, one.state
                if one.state is not BUSY:
                    assert ways[one.state] == 1

    def at_gate(self, one: PendingSend) -> int:
        ticket = one._ticket
        assert ticket is not None
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
        assert (self.order.state is GateState.HELD) is (self.call is not None)

    @invariant()
    def no_letter_stands_beside_a_message_that_surely_arrived(self) -> None:
        for one in self.letters:
            # One that was heard is removed; given up with a try of unknown outcome, it says so.
            assert one not in self.arrived or one.send.tried_at is not None


TestMachine = Machine.TestCase
