"""The gate's tickets: the number of turns at a time, by class and place."""

import math
import time

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from jobworker.line.gate_order import SHARES, GateState, Order, Standing, Ticket, TicketState
from linedesk.store.records.calls import TurnClass

NEW, WAITING, GRANTED, CANCELLED, REFUSED = TicketState
FREE, ARMED, HELD, CLOSED = GateState
LIVE, CHAT, OTHER, IDLE = TurnClass


def an_answer(token_end: float) -> Standing:
    return Standing(OTHER, 1e6, token_end, token_end, token_end)


def served(order: Order, *, now: float = 0.0, turn_seconds: float = 0.1) -> Ticket | None:
    """Whose turn it is; it calls, and leaves."""
    order.arm()
    ticket = order.grant(now=now, turn_seconds=turn_seconds)
    if ticket is not None:
        order.leave(ticket, called=True)
    return ticket


@pytest.mark.parametrize("token_seconds", [60.0, 1e6])
def test_thousands_of_answers_are_served_in_no_time(token_seconds: float) -> None:
    """Also if there are too many to use each token in time."""
    order, started = Order(), time.thread_time()
    for n in range(2_000):
        ticket = Ticket(an_answer(token_seconds + n * 7919 % 10_007 / 1e4), patient=True)
        order.enter(ticket, now=0.0, away=False)
    count = sum(served(order, now=n / 1000, turn_seconds=0.1) is not None for n in range(2_000))
    assert (count, order.waiting) == (2_000, 0)
    assert time.thread_time() - started < 5


TURN = 1.0
STANDINGS = st.builds(
    lambda turn_class, place, live, is_full: Standing(turn_class, place, *live, is_full),
    st.sampled_from([CHAT, OTHER, IDLE]),
    st.integers(0, 5),
    st.one_of(
        st.just((-math.inf, math.inf, math.inf)),
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)).map(
            lambda live: (max(live[0], live[2]), live[1], live[2])
        ),
    ),
    st.booleans(),
)


class Account(RuleBasedStateMachine):
    """The order against plain lists of those that wait, in the order in which they came."""

    tickets: Bundle[Ticket] = Bundle("tickets")

    def __init__(self) -> None:
        super().__init__()
        self.order, self.most, self.one_begins = Order(), 1, True
        self.waiting: list[Ticket] = []
        self.all: list[Ticket] = []
        self.holders: list[Ticket] = []
        self.preparing: list[Ticket] = []
        self.probe: Ticket | None = None
        self.alone = False
        self.called = 0
        self.closed = False
        self.now = 0.0
        self.passed = dict.fromkeys(SHARES, 0)
        self.waited_through: dict[Ticket, int] = {}

    @initialize(most=st.sampled_from([1, 1, 2, 3]), one_begins=st.booleans())
    def set_up(self, most: int, one_begins: bool) -> None:
        self.order = Order(most, one_begins=one_begins)
        self.most, self.one_begins = most, one_begins

    @rule(target=tickets, standing=STANDINGS, patient=st.booleans())
    def make(self, standing: Standing, patient: bool) -> Ticket:
        ticket = Ticket(standing, patient)
        self.all.append(ticket)
        return ticket

    @rule(ticket=tickets, away=st.booleans())
    def enter(self, ticket: Ticket, away: bool) -> None:
        is_new = ticket.state is NEW
        self.order.enter(ticket, now=self.now, away=away)
        if is_new and not self.closed and (ticket.patient or not away):
            self.waiting.append(ticket)

    @rule(ticket=tickets, standing=STANDINGS)
    def move(self, ticket: Ticket, standing: Standing) -> None:
        before = ticket.standing
        self.order.move(ticket, standing, now=self.now)
        if ticket.standing != before and ticket in self.waiting:
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
        is_held = self.closed or self.is_full or (self.alone and self.probe is not None)
        needed = bool(self.waiting) and not self.called and not is_held
        assert self.order.arm(alone=self.alone) is needed
        self.called += needed

    @property
    def is_full(self) -> bool:
        prepares = self.one_begins and bool(self.preparing)
        return len(self.holders) == self.most or prepares

    @rule()
    def line_is_probed_or_answers(self) -> None:
        """A thread that was called before comes all the same."""
        self.alone = not self.alone

    @rule(seconds=st.sampled_from([0.5, 2.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.called)
    @rule()
    def a_thread_comes(self) -> None:
        self.called -= 1
        late = [
            one
            for one in self.waiting
            if one.turn_class is LIVE and one.standing.first_until <= self.now
        ]
        # Those with a token that is too old come into their line once more, the oldest one first.
        while late:
            ticket = min(late, key=lambda one: one.standing.first_until)
            last = ticket.standing.live_until
            self.waiting.remove(ticket)
            self.waiting.append(ticket)
            late.remove(ticket)
            if ticket.standing.first_until < last <= self.now:
                late.append(ticket)
        wanted = None if self.closed else self.wanted()
        ticket = self.order.grant(now=self.now, turn_seconds=TURN, alone=self.alone)
        assert ticket is wanted
        if ticket is None:
            return
        self.waiting.remove(ticket)
        self.holders.append(ticket)
        self.preparing.append(ticket)
        self.probe = ticket if self.alone else self.probe
        self.waited_through[ticket] = self.passed.get(ticket.turn_class, 0)
        for one in SHARES:
            self.passed[one] = 0 if ticket.turn_class is one else self.passed[one] + 1

    def class_of(self, ticket: Ticket) -> TurnClass:
        standing = ticket.standing
        return LIVE if self.now < standing.live_until else standing.turn_class

    def line(self, turn_class: TurnClass) -> list[Ticket]:
        waiting = [one for one in self.waiting if self.class_of(one) is turn_class]
        is_live = turn_class is LIVE
        return sorted(
            waiting, key=lambda one: one.standing.live_place if is_live else one.standing.place
        )

    def wanted(self) -> Ticket | None:
        """By the words of the order's docstring, the long way round."""
        lines = {one: self.line(one) for one in TurnClass}
        due = [one for one in (OTHER, CHAT) if lines[one] and self.passed[one] + 1 >= SHARES[one]]
        first = due[0] if due else next((one for one in TurnClass if lines[one]), None)
        if first is None:
            return None
        if first is LIVE:
            turn = TURN / (1 - sum(1 / SHARES[one] for one in SHARES if lines[one]))

            def missed(order: list[Ticket]) -> bool:
                starts = [(self.now + n * turn, one.standing) for n, one in enumerate(order)]
                return any(at >= one.first_until and not one.is_full for at, one in starts)

            urgent = [one for one in lines[LIVE] if not one.standing.is_full]
            urgent.sort(key=lambda one: one.standing.first_until)
            if missed(lines[LIVE]) and not missed(urgent):
                return urgent[0]
        return lines[first][0]

    @rule(ticket=tickets)
    def begin(self, ticket: Ticket) -> None:
        may = not self.alone or ticket is self.probe
        assert self.order.may_begin(ticket, alone=self.alone) is may
        if ticket in self.preparing and may:
            self.order.begin(ticket)
            self.preparing.remove(ticket)

    @rule(ticket=tickets)
    def leave(self, ticket: Ticket) -> None:
        called = ticket in self.holders and ticket not in self.preparing
        assert self.order.leave(ticket, called=called) is (ticket in self.holders)
        if ticket not in self.holders:
            return
        self.holders.remove(ticket)
        if ticket in self.preparing:
            self.preparing.remove(ticket)
        self.probe = None if self.probe is ticket else self.probe
        for one in SHARES:
            if called and not any(each.turn_class is one for each in self.waiting):
                self.passed[one] = 0
            elif not called:
                back = self.waited_through[ticket] if ticket.turn_class is one else -1
                self.passed[one] = max(0, self.passed[one] + back)

    @rule()
    def line_is_away(self) -> None:
        self._refused(self.order.refuse_impatient(), [t for t in self.waiting if not t.patient])

    @precondition(lambda self: len(self.all) > 6)
    @rule()
    def close(self) -> None:
        self._refused(self.order.close(), list(self.waiting))
        self.closed = True

    def _refused(self, told: list[Ticket], wanted: list[Ticket]) -> None:
        assert set(told) == set(wanted)
        assert all(ticket.state is REFUSED for ticket in told)
        self.waiting = [ticket for ticket in self.waiting if ticket not in told]

    @invariant()
    def agrees(self) -> None:
        assert self.order.waiting == len(self.waiting)
        assert all(ticket.state is WAITING for ticket in self.waiting)
        assert sum(ticket.state is WAITING for ticket in self.all) == len(self.waiting)
        assert len(self.holders) <= self.most
        is_held = bool(self.holders) if self.closed else self.is_full
        wanted = CLOSED if self.closed else ARMED if self.called else FREE
        assert self.order.state is (HELD if is_held else wanted)
        assert all(one.state is GRANTED for one in self.holders)


TestAccount = Account.TestCase
