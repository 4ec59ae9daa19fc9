"""The gate's tickets: the number of turns at a time, by class and place."""

from __future__ import annotations

import itertools
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from jobworker.line.gate_order import (
    MOST_LEFT_PLACES,
    SHARES,
    GateState,
    Order,
    Standing,
    Ticket,
    TicketState,
)
from linedesk.store.records.calls import TurnClass

NEW, WAITING, GRANTED, CANCELLED, REFUSED = TicketState
FREE, ARMED, HELD, CLOSED = GateState
LIVE, CHAT, OTHER, IDLE = TurnClass


def at(place: float, turn_class: TurnClass = CHAT) -> Standing:
    return Standing(turn_class, place)


def an_answer(token_end: float, *, place: float | None = None, is_full: bool = False) -> Standing:
    place = token_end if place is None else place
    return Standing(OTHER, 1e6, token_end, place, token_end, is_full)


def served(order: Order, *, now: float = 0.0, turn_seconds: float = 0.1) -> Ticket | None:
    """Whose turn it is; it calls, and leaves."""
    order.arm()
    ticket = order.grant(now=now, turn_seconds=turn_seconds)
    if ticket is not None:
        order.leave(ticket, called=True)
    return ticket


def entered(order: Order, where: float | Standing = 1.0, *, patient: bool = True) -> Ticket:
    ticket = Ticket(where if isinstance(where, Standing) else at(where), patient)
    order.enter(ticket, now=0.0, away=False)
    return ticket


def granted(order: Order, where: float = 1.0) -> Ticket:
    ticket = entered(order, where)
    assert order.arm()
    assert order.grant(now=0.0, turn_seconds=0.1) is ticket
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
    assert order.grant(now=0.0, turn_seconds=0.1) is None
    assert order.state is before
    assert waits.state is not GRANTED


def test_a_thread_that_finds_no_ticket_leaves_the_gate_free() -> None:
    order = Order()
    ticket = entered(order)
    assert order.arm()
    assert order.cancel(ticket)
    assert order.grant(now=0.0, turn_seconds=0.1) is None
    assert order.state is FREE


@pytest.mark.parametrize("before", GateState)
def test_only_the_holder_leaves(before: GateState) -> None:
    order, holder = of_state(before)
    others = [Ticket(at(0.0)), entered(order, 5.0)]
    for other in others:
        assert not order.leave(other, called=True)
        assert order.state is before
    if holder is not None:
        assert order.leave(holder, called=True)
        assert order.state is FREE
        assert not order.leave(holder, called=True)


def test_a_closed_gate_is_held_to_the_end_of_the_turn() -> None:
    order = Order()
    holder, waits = granted(order), entered(order)
    assert order.close() == [waits]
    assert (order.state, waits.state) == (HELD, REFUSED)
    assert order.leave(holder, called=True)
    assert order.state is CLOSED
    assert not order.arm()


def test_a_called_thread_finds_a_closed_gate() -> None:
    order, _ = of_state(ARMED)
    order.close()
    assert order.grant(now=0.0, turn_seconds=0.1) is None
    assert order.state is CLOSED


def test_a_ticket_that_is_cancelled_before_it_enters_does_not_wait() -> None:
    order = Order()
    ticket = Ticket(at(1.0))
    assert order.cancel(ticket)
    order.enter(ticket, now=0.0, away=False)
    assert (ticket.state, order.waiting) == (CANCELLED, 0)


def test_a_ticket_that_has_or_had_the_turn_is_not_cancelled() -> None:
    order = Order()
    ticket = granted(order)
    assert not order.cancel(ticket)
    order.leave(ticket, called=True)
    assert not order.cancel(ticket)
    assert ticket.state is GRANTED


def test_a_refused_ticket_never_gets_or_frees_the_turn() -> None:
    """Its thread may still be on its way to notice; it must not be taken for the holder."""
    order = Order()
    holder, refused = granted(order), entered(order, patient=False)
    assert order.refuse_impatient() == [refused]
    assert not order.cancel(refused)
    assert not order.leave(refused, called=True)
    assert order.state is HELD
    order.leave(holder, called=True)
    assert not order.arm()


def test_a_new_ticket_can_be_moved_before_it_enters() -> None:
    order = Order()
    late, moved = entered(order, 5.0), Ticket(at(9.0))
    order.move(moved, at(1.0), now=0.0)
    order.enter(moved, now=0.0, away=False)
    assert order.arm()
    assert order.grant(now=0.0, turn_seconds=0.1) is moved
    assert late.state is WAITING


def test_entering_twice_is_waiting_once() -> None:
    order = Order()
    ticket = entered(order)
    order.enter(ticket, now=3.0, away=False)
    assert (order.waiting, ticket.since) == (1, 0.0)
    assert order.arm()
    assert order.grant(now=0.0, turn_seconds=0.1) is ticket
    order.leave(ticket, called=True)
    order.enter(ticket, now=3.0, away=False)
    assert order.waiting == 0


def test_places_that_were_left_are_not_kept() -> None:
    order = Order()
    moved = entered(order, 1e9)
    for number in range(10_000):
        order.move(moved, at(-number), now=0.0)
        assert order.cancel(entered(order, number))
    kept = len(order._by_token) + sum(map(len, order._heaps.values()))
    assert kept <= 4 + MOST_LEFT_PLACES


@pytest.mark.parametrize("token_seconds", [60.0, 1e6])
def test_ten_thousand_answers_are_served_in_no_time(token_seconds: float) -> None:
    """Also if there are too many to use each token in time."""
    order, started = Order(), time.thread_time()
    for n in range(10_000):
        entered(order, an_answer(token_seconds + n * 7919 % 10_007 / 1e4))
    count = sum(served(order, now=n / 1000, turn_seconds=0.1) is not None for n in range(10_000))
    assert (count, order.waiting) == (10_000, 0)
    assert time.thread_time() - started < 20


# Several at a time.


def granted_next(order: Order, *, alone: bool = False) -> Ticket | None:
    """The next holder, if there is a turn to give."""
    return order.grant(now=0.0, turn_seconds=0.1, alone=alone) if order.arm(alone=alone) else None


def test_so_many_have_a_turn_and_the_next_one_gets_that_of_the_first_that_leaves() -> None:
    order = Order(2, one_begins=False)
    first, second, third = (entered(order, place) for place in (1.0, 2.0, 3.0))
    assert [granted_next(order) for _ in range(3)] == [first, second, None]
    assert order.state is HELD
    order.leave(second, called=True)
    assert order.state is FREE
    assert granted_next(order) is third


def test_where_there_is_an_interval_one_at_a_time_prepares() -> None:
    order = Order(2)
    first, second = entered(order, 1.0), entered(order, 2.0)
    assert [granted_next(order), granted_next(order)] == [first, None]
    order.begin(first)
    assert granted_next(order) is second
    order.begin(second)
    assert order.state is HELD


def test_a_closed_gate_is_held_until_the_last_turn_ends() -> None:
    order = Order(3, one_begins=False)
    holders = [entered(order, place) for place in (1.0, 2.0)]
    assert [granted_next(order) for _ in holders] == holders
    order.close()
    states = [order.state]
    for ticket in holders:
        order.leave(ticket, called=True)
        states.append(order.state)
    assert states == [HELD, HELD, CLOSED]


def test_a_probe_is_alone_and_what_was_granted_before_it_does_not_begin() -> None:
    order = Order(4, one_begins=False)
    calling, preparing, probe, waits = (entered(order, place) for place in (1.0, 2.0, 3.0, 4.0))
    assert [granted_next(order), granted_next(order)] == [calling, preparing]
    order.begin(calling)
    # The breaker opens, and its pause ends.
    assert granted_next(order, alone=True) is probe
    assert granted_next(order, alone=True) is None
    assert order.may_begin(probe, alone=True)
    assert not order.may_begin(preparing, alone=True)
    order.leave(probe, called=True)
    assert granted_next(order, alone=False) is waits


@given(
    most=st.integers(1, 6),
    ends=st.lists(st.integers(0, 5), min_size=120, max_size=120),
)
def test_the_shares_are_the_same_however_many_call_and_in_whatever_order_they_end(
    most: int, ends: list[int]
) -> None:
    """Each class waits all the time: so each fifth turn, and each twentieth."""

    def turns(order: Order) -> list[TurnClass]:
        taken: list[TurnClass] = []
        holders: list[Ticket] = []
        for end in ends:
            for where in (an_answer(100.0), at(1.0), at(1.0, OTHER)):
                entered(order, where)
            ticket = granted_next(order)
            if ticket is None:
                order.leave(holders.pop(end % len(holders)), called=True)
                ticket = granted_next(order)
            assert ticket is not None
            order.begin(ticket)
            holders.append(ticket)
            taken.append(ticket.turn_class)
        return taken

    assert turns(Order(most, one_begins=False)) == turns(Order())


@given(most=st.integers(1, 6), moves=st.lists(st.integers(0, 11), max_size=200))
def test_never_more_have_a_turn_than_may_and_none_waits_beside_a_turn_to_give(
    most: int, moves: list[int]
) -> None:
    order, holders = Order(most, one_begins=False), []
    for move in moves:
        if move < 6:
            entered(order, float(move))
        elif holders:
            order.leave(holders.pop(move % len(holders)), called=bool(move % 2))
        while (ticket := granted_next(order)) is not None:
            holders.append(ticket)
        assert len(holders) <= most
        assert len(holders) == most or not order.waiting


# The next ticket.


def test_a_class_is_served_before_the_next_one() -> None:
    order = Order()
    worth = [at(0.0, IDLE), at(1.0, OTHER), at(2.0, CHAT), an_answer(50.0)]
    tickets = [entered(order, one) for one in worth]
    assert [served(order) for _ in worth] == tickets[::-1]


@pytest.mark.parametrize("turn_class", SHARES)
def test_nothing_starves_behind_a_constant_stream_of_answers(turn_class: TurnClass) -> None:
    order, turns = Order(), []
    waits = [entered(order, at(1.0, turn_class)) for _ in range(3)]
    for number in range(3 * SHARES[turn_class]):
        entered(order, an_answer(100.0 + number))
        turns.append(served(order))
    share = SHARES[turn_class]
    assert [turns.index(ticket) + 1 for ticket in waits] == [share, 2 * share, 3 * share]


def test_the_last_class_has_its_share_of_what_others_have_a_share_of() -> None:
    order, turns = Order(), []
    other = entered(order, at(1.0, OTHER))
    for _ in range(20):
        entered(order, at(1.0, CHAT))
        entered(order, an_answer(100.0))
        ticket = served(order)
        assert ticket is not None
        turns.append(ticket.turn_class)
    assert other.state is GRANTED
    assert [turns.count(one) for one in (LIVE, CHAT, OTHER)] == [16, 3, 1]


def test_a_turn_in_which_nothing_was_called_uses_no_share() -> None:
    order = Order()
    held_back = [entered(order, at(1.0)) for _ in range(2)]
    for _ in range(4):
        entered(order, an_answer(100.0))
        served(order)
    entered(order, an_answer(100.0))
    assert order.arm()
    assert order.grant(now=0.0, turn_seconds=0.1) is held_back[0]
    order.leave(held_back[0], called=False)
    assert served(order) is held_back[1]


def test_no_share_is_saved_up_while_its_class_does_not_wait() -> None:
    order = Order()
    for _ in range(50):
        entered(order, an_answer(100.0))
        served(order)
    push, answers = entered(order, at(1.0)), [entered(order, an_answer(100.0)) for _ in range(4)]
    assert [served(order) for _ in range(5)] == [*answers, push]


def test_an_answer_whose_token_is_too_old_uses_no_turn_of_its_class() -> None:
    order = Order()
    late, push = entered(order, an_answer(10.0)), entered(order, at(99.0))
    good = entered(order, an_answer(70.0))
    assert [served(order, now=10.0) for _ in range(3)] == [good, push, late]
    assert late.turn_class is OTHER


def test_a_better_send_behind_moves_its_ticket_in_any_order_of_moves() -> None:
    for moves in itertools.permutations([at(3.0), an_answer(50.0), an_answer(40.0)]):
        order = Order()
        before = entered(order, an_answer(45.0))
        pulled = entered(order, at(9.0, OTHER))
        for move in moves:
            order.move(pulled, move, now=0.0)
        assert pulled.standing == Standing(CHAT, 3.0, 50.0, 40.0, 40.0)
        assert [served(order), served(order)] == [pulled, before]


def test_the_token_that_ends_first_goes_where_the_line_would_miss_it() -> None:
    order = Order()
    # A conversation with a recent call, at the end of the line and with an old token.
    old = entered(order, an_answer(5.0, place=60.0))
    line = [entered(order, an_answer(57.0 + n / 100)) for n in range(99)]
    assert served(order) is old
    assert served(order) is line[0]


def test_of_several_tokens_of_a_conversation_the_next_one_counts() -> None:
    order = Order()
    old = entered(order, an_answer(5.0, place=60.0))
    order.move(old, an_answer(59.0, place=61.0), now=0.0)
    line = [entered(order, an_answer(57.0 + n / 100)) for n in range(99)]
    assert served(order) is old
    # Once it is too old the last one is as good as any.
    again = entered(order, an_answer(6.0, place=60.0))
    order.move(again, an_answer(58.5, place=61.0), now=0.0)
    assert served(order, now=7.0) is line[0]
    assert again.turn_class is LIVE


def test_a_dead_token_gives_no_place_by_a_move_either() -> None:
    order = Order()
    late = entered(order, an_answer(10.0))
    line = [entered(order, an_answer(80.0 + n)) for n in range(3)]
    order.move(late, an_answer(160.0), now=100.0)
    assert late.standing.live_place == 160.0
    assert [served(order, now=20.0) for _ in range(4)] == [*line, late]


def test_tokens_are_checked_again_after_a_while() -> None:
    """With quick turns not at each of them."""
    order, quick = Order(), 0.01
    for n in range(1_000):
        entered(order, an_answer(20.0 + n / 1e4))
    hurried = entered(order, an_answer(3.0, place=60.0))
    assert served(order, now=0.0, turn_seconds=quick) is hurried
    later = entered(order, an_answer(3.0, place=60.0))
    line = [served(order, now=0.2 + n / 100, turn_seconds=quick) for n in range(30)]
    assert later in line
    assert line[-1] is not later


def test_the_line_is_followed_where_no_token_is_in_danger() -> None:
    order = Order()
    old = entered(order, an_answer(15.0, place=60.0))
    line = [entered(order, an_answer(57.0 + n / 100)) for n in range(99)]
    assert [served(order) for _ in range(100)] == [*line, old]


def test_the_line_is_followed_where_not_all_tokens_can_be_met() -> None:
    order = Order()
    entered(order, an_answer(5.0, place=60.0))
    line = [entered(order, an_answer(20.0 + n / 100)) for n in range(300)]
    assert served(order) is line[0]


def test_a_full_outbox_does_not_count_where_tokens_are_in_danger() -> None:
    order = Order()
    entered(order, an_answer(5.0, place=60.0, is_full=True))
    line = [entered(order, an_answer(57.0 + n / 100)) for n in range(99)]
    assert served(order) is line[0]


def test_a_read_that_waits_counts_as_two_turns() -> None:
    order = Order()
    for place in (10.0, 20.0, 40.0):
        entered(order, an_answer(place))
    for place in (10.0, 40.0):
        read = Ticket(an_answer(place), is_read=True)
        order.enter(read, now=0.0, away=False)
    entered(order, at(0.0))
    assert order.turns_before(Ticket(an_answer(30.0))) == 2 + 2 * 2
    assert order.turns_before(read) == 3 + 2


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
        return ticket.standing.class_at(self.now)

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


# The operator's view of it.


def test_each_class_reports_how_many_wait_and_how_long_the_first_has() -> None:
    order = Order()
    answer = Ticket(an_answer(50.0))
    order.enter(answer, now=1.0, away=False)
    for n in range(3):
        order.enter(Ticket(at(1.0)), now=2.0 + n, away=False)
    assert [order.waiting_in(one) for one in TurnClass] == [1, 3, 0, 0]
    assert [order.longest_seconds(one, now=5.0) for one in TurnClass] == [4.0, 3.0, 0.0, 0.0]
    # A better place is not a shorter wait, and an abandoned ticket no longer waits.
    order.move(answer, an_answer(40.0), now=5.0)
    assert order.longest_seconds(LIVE, now=6.0) == 5.0
    order.cancel(answer)
    assert (order.waiting_in(LIVE), order.longest_seconds(LIVE, now=6.0)) == (0, 0.0)
