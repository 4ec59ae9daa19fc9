"""The gate's account of tickets: one turn at a time, in the order of deadlines."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from jobworker.line.gate_order import MOST_LEFT_PLACES, GateState, Order, Ticket, TicketState

NEW, WAITING, GRANTED, CANCELLED, REFUSED = TicketState
FREE, ARMED, HELD, CLOSED = GateState


def entered(order: Order, deadline: float = 1.0, *, patient: bool = True) -> Ticket:
    ticket = Ticket(deadline, patient)
    order.enter(ticket, now=0.0, away=False)
    return ticket


def granted(order: Order, deadline: float = 1.0) -> Ticket:
    ticket = entered(order, deadline)
    assert order.arm()
    assert order.grant() is ticket
    return ticket


def of_state(state: GateState) -> tuple[Order, Ticket | None]:
    """An order in such a state, and the ticket that has the turn."""
    order = Order()
    if state is HELD:
        return order, granted(order)
    if state is ARMED:
        entered(order)
        assert order.arm()
    if state is CLOSED:
        order.close()
    return order, None


# The table, cell by cell.


@pytest.mark.parametrize(
    ("gate", "ticket"), [(FREE, WAITING), (ARMED, WAITING), (HELD, WAITING), (CLOSED, REFUSED)]
)
def test_a_ticket_that_enters_changes_nothing_at_the_gate(
    gate: GateState, ticket: TicketState
) -> None:
    order, _ = of_state(gate)
    assert entered(order).state is ticket
    assert order.state is gate


@pytest.mark.parametrize(
    ("before", "calls", "after"),
    [(FREE, True, ARMED), (ARMED, False, ARMED), (HELD, False, HELD), (CLOSED, False, CLOSED)],
)
def test_a_thread_is_called_for_once(before: GateState, calls: bool, after: GateState) -> None:
    order, _ = of_state(before)
    entered(order)
    assert order.arm() is calls
    assert order.state is after


def test_no_thread_is_called_where_no_ticket_waits() -> None:
    order = Order()
    assert not order.arm()
    assert order.state is FREE


@pytest.mark.parametrize("before", [FREE, HELD, CLOSED])
def test_a_thread_that_was_not_called_gets_no_ticket(before: GateState) -> None:
    order, _ = of_state(before)
    waits = entered(order)
    assert order.grant() is None
    assert order.state is before
    assert waits.state is not GRANTED


def test_a_thread_that_finds_no_ticket_leaves_the_gate_free() -> None:
    order = Order()
    ticket = entered(order)
    assert order.arm()
    assert order.cancel(ticket)
    assert order.grant() is None
    assert order.state is FREE


@pytest.mark.parametrize("before", GateState)
def test_only_the_holder_leaves(before: GateState) -> None:
    order, holder = of_state(before)
    others = [Ticket(0.0), entered(order, 5.0)]
    for other in others:
        assert not order.leave(other)
        assert order.state is before
    if holder is not None:
        assert order.leave(holder)
        assert order.state is FREE
        assert not order.leave(holder)


def test_a_closed_gate_is_held_to_the_end_of_the_turn() -> None:
    order = Order()
    holder, waits = granted(order), entered(order)
    assert order.close() == [waits]
    assert (order.state, waits.state) == (HELD, REFUSED)
    assert order.leave(holder)
    assert order.state is CLOSED
    assert not order.arm()


def test_a_called_thread_finds_a_closed_gate() -> None:
    order, _ = of_state(ARMED)
    order.close()
    assert order.grant() is None
    assert order.state is CLOSED


def test_a_ticket_that_is_cancelled_before_it_enters_does_not_wait() -> None:
    order = Order()
    ticket = Ticket(1.0)
    assert order.cancel(ticket)
    order.enter(ticket, now=0.0, away=False)
    assert (ticket.state, order.waiting) == (CANCELLED, 0)


def test_a_ticket_that_has_or_had_the_turn_is_not_cancelled() -> None:
    order = Order()
    ticket = granted(order)
    assert not order.cancel(ticket)
    order.leave(ticket)
    assert not order.cancel(ticket)
    assert ticket.state is GRANTED


def test_a_refused_ticket_never_gets_or_frees_the_turn() -> None:
    """Its thread may still be on its way to notice; it must not be taken for the holder."""
    order = Order()
    holder, refused = granted(order), entered(order, patient=False)
    assert order.refuse_impatient() == [refused]
    assert not order.cancel(refused)
    assert not order.leave(refused)
    assert order.state is HELD
    order.leave(holder)
    assert not order.arm()


def test_a_new_ticket_can_be_moved_before_it_enters() -> None:
    order = Order()
    late, moved = entered(order, 5.0), Ticket(9.0)
    order.move(moved, 1.0)
    order.enter(moved, now=0.0, away=False)
    assert order.arm()
    assert order.grant() is moved
    assert late.state is WAITING


def test_entering_twice_is_waiting_once() -> None:
    order = Order()
    ticket = entered(order)
    order.enter(ticket, now=3.0, away=False)
    assert (order.waiting, ticket.since) == (1, 0.0)
    assert order.arm()
    assert order.grant() is ticket
    order.leave(ticket)
    order.enter(ticket, now=3.0, away=False)
    assert order.waiting == 0


def test_places_that_were_left_are_not_kept() -> None:
    order = Order()
    moved = entered(order, 1e9)
    for number in range(10_000):
        order.move(moved, -number)
        assert order.cancel(entered(order, number))
    assert len(order._heap) <= 2 + MOST_LEFT_PLACES


def test_ten_thousand_tickets_are_ordered_in_no_time() -> None:
    order = Order()
    started = time.monotonic()
    tickets = [entered(order, float(n * 7919 % 10_007)) for n in range(10_000)]
    for ticket in tickets[::2]:
        order.move(ticket, -ticket.deadline)
    served = []
    while order.arm():
        ticket = order.grant()
        assert ticket is not None
        served.append(ticket.deadline)
        order.leave(ticket)
    assert served == sorted(served)
    assert len(served) == 10_000
    assert time.monotonic() - started < 5


class Account(RuleBasedStateMachine):
    """The order against a plain list of those that wait, in the order in which they came."""

    tickets: Bundle[Ticket] = Bundle("tickets")

    def __init__(self) -> None:
        super().__init__()
        self.order = Order()
        self.waiting: list[Ticket] = []
        self.all: list[Ticket] = []
        self.holder: Ticket | None = None
        self.called = 0
        self.closed = False
        self.numbers = itertools.count()

    @rule(target=tickets, deadline=st.integers(0, 5), patient=st.booleans())
    def make(self, deadline: int, patient: bool) -> Ticket:
        ticket = Ticket(deadline, patient)
        self.all.append(ticket)
        return ticket

    @rule(ticket=tickets, away=st.booleans())
    def enter(self, ticket: Ticket, away: bool) -> None:
        is_new = ticket.state is NEW
        self.order.enter(ticket, now=float(next(self.numbers)), away=away)
        if is_new and not self.closed and (ticket.patient or not away):
            self.waiting.append(ticket)

    @rule(ticket=tickets, deadline=st.integers(0, 5))
    def move(self, ticket: Ticket, deadline: int) -> None:
        is_earlier = deadline < ticket.deadline
        self.order.move(ticket, deadline)
        if is_earlier and ticket in self.waiting:
            self.waiting.remove(ticket)
            self.waiting.append(ticket)

    @rule(ticket=tickets)
    def cancel(self, ticket: Ticket) -> None:
        before = ticket.state
        assert self.order.cancel(ticket) is (before in (NEW, WAITING, CANCELLED))
        if ticket in self.waiting:
            self.waiting.remove(ticket)

    @rule()
    def arm(self) -> None:
        needed = bool(self.waiting) and not self.called and self.holder is None and not self.closed
        assert self.order.arm() is needed
        self.called += needed

    @precondition(lambda self: self.called)
    @rule()
    def a_thread_comes(self) -> None:
        self.called -= 1
        ticket = self.order.grant()
        wanted = None if self.closed else min(self.waiting, key=_deadline, default=None)
        assert ticket is wanted
        if ticket is not None:
            self.waiting.remove(ticket)
            self.holder = ticket

    @rule(ticket=tickets)
    def leave(self, ticket: Ticket) -> None:
        assert self.order.leave(ticket) is (ticket is self.holder)
        if ticket is self.holder:
            self.holder = None

    @rule()
    def line_is_away(self) -> None:
        self._refused(self.order.refuse_impatient(), [t for t in self.waiting if not t.patient])

    @precondition(lambda self: len(self.all) > 6)
    @rule()
    def close(self) -> None:
        self._refused(self.order.close(), list(self.waiting))
        self.closed = True

    def _refused(self, told: list[Ticket], wanted: list[Ticket]) -> None:
        assert told == sorted(wanted, key=_deadline)
        assert all(ticket.state is REFUSED for ticket in told)
        self.waiting = [ticket for ticket in self.waiting if ticket not in told]

    @invariant()
    def agrees(self) -> None:
        assert self.order.waiting == len(self.waiting)
        assert all(ticket.state is WAITING for ticket in self.waiting)
        assert sum(ticket.state is WAITING for ticket in self.all) == len(self.waiting)
        wanted = HELD if self.holder else CLOSED if self.closed else ARMED if self.called else FREE
        assert self.order.state is wanted
        if self.holder is not None:
            assert self.holder.state is GRANTED


def _deadline(ticket: Ticket) -> float:
    return ticket.deadline


TestAccount = Account.TestCase
