"""The gate's tickets: which one has the turn, and the order of the others.

Pure: no lock, no thread, no clock, no callback. The gate calls one method under its lock, and acts
on the result after releasing the lock.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from linedesk.store.limits import TOKEN_LIFE
from linedesk.store.records.calls import TurnClass

# Abandoned places are removed from a heap once they exceed this number and the others.
MOST_LEFT_PLACES = 64
# How often it is checked whether tokens are in danger: with thousands of waiting answers the check
# takes milliseconds.
CHECK_SECONDS = 0.1
# An entry without a reply token is placed as if it had one that lives this long.
PLACE_SECONDS = TOKEN_LIFE.total_seconds()


# While it waits, a class gets one in this many turns, however many wait in better classes.
SHARES = {TurnClass.CHAT: 5, TurnClass.OTHER: 20}


@dataclass(frozen=True, slots=True)
class Standing:
    """A ticket's position. All times are monotonic seconds.

    Until `live_until` it is LIVE, at `live_place`; from then on in `turn_class`, at `place`. Within
    a class the earlier place comes first.
    """

    turn_class: TurnClass
    place: float
    live_until: float = -math.inf
    """When the last of its tokens is too old."""
    live_place: float = math.inf
    first_until: float = math.inf
    """When the first of its tokens is too old: the one that the next call uses."""
    is_full: bool = False
    """Whether its conversation's outbox is full: it does not count when tokens are in danger."""

    def with_other(self, other: Standing) -> Standing:
        """Return the better of both in each part: the standing of one call for both."""
        turn_class, place = min((self.turn_class, self.place), (other.turn_class, other.place))
        return Standing(
            turn_class,
            place,
            max(self.live_until, other.live_until),
            min(self.live_place, other.live_place),
            min(self.first_until, other.first_until),
            self.is_full or other.is_full,
        )

    def with_token(self, end: float, *, reserve_seconds: float = 0.0) -> Standing:
        """Return it as LIVE until this long before the end of a reply token."""
        last = end - reserve_seconds
        return replace(self, live_until=last, live_place=end, first_until=last)

    def without_token(self) -> Standing:
        """Return it without its token, which is too old."""
        return Standing(self.turn_class, self.place, is_full=self.is_full)

    def not_before(self, place: float) -> Standing:
        """Return it with at least this place."""
        return replace(self, place=max(self.place, place), live_place=max(self.live_place, place))

    def at(self, now: float) -> Standing:
        """Return it at that time: tokens that are too old by then do not count."""
        return self if now < self.live_until else self.without_token()


class TicketState(Enum):
    """A ticket's state. The last three are final."""

    NEW = "new"
    """It has not reached the gate yet."""
    WAITING = "waiting"
    GRANTED = "granted"
    """It has a turn, or had one."""
    CANCELLED = "cancelled"
    """Its owner has cancelled it."""
    REFUSED = "refused"
    """The gate is closed, or LINE is away and the ticket does not wait for that."""


class GateState(Enum):
    """The gate's next action; see the table of `Order`."""

    FREE = "free"
    """No ticket waits."""
    ARMED = "armed"
    """A thread was called for a turn that no ticket has yet."""
    HELD = "held"
    """The maximum number of tickets have a turn."""
    CLOSED = "closed"
    """No more turns are given."""


@dataclass(eq=False, slots=True)
class Ticket:
    """One request for one turn. The gate calls `granted` or `refused` at most once, without a lock.

    `patient`: it waits while LINE is away; only a closed gate refuses it. `is_read`: it reads from
    LINE for an answer that then wants a turn as well. `granted` is called on a pool thread and may
    take as long as a call; `refused` has to be quick.
    """

    standing: Standing
    patient: bool = True
    granted: Callable[[Ticket], None] = lambda _: None
    refused: Callable[[Ticket], None] = lambda _: None
    is_read: bool = False
    state: TicketState = field(default=TicketState.NEW, init=False)
    since: float = field(default=0.0, init=False)
    """The monotonic time at which it entered."""
    began: float | None = field(default=None, init=False)
    """When the call of its turn began, monotonic; None before."""
    turn_class: TurnClass = field(default=TurnClass.IDLE, init=False)
    """The class in which it waits, or had its turn."""
    number: int = field(default=-1, init=False)
    """The number of its entry in the heaps; entries with another number are abandoned."""

    @property
    def waited_seconds(self) -> float:
        """How long it had waited when its call began."""
        return 0.0 if self.began is None else self.began - self.since


class Order:
    """The tickets at the gate: at most `most` have a turn, the others follow by class and place.

    The gate's state is computed from these facts: whether it was closed, whether a thread was
    called for a turn, and which tickets have a turn. It is HELD while `most` tickets have one, with
    `one_begins` also while one of them has not begun its call, and after closing while any has one.

    | state | enter | arm | grant | begin | leave | close |
    | --- | --- | --- | --- | --- | --- | --- |
    | FREE | WAITING | ARMED if a ticket waits | - | - | FREE | CLOSED |
    | ARMED | WAITING | - | HELD or FREE, by the facts | ARMED | ARMED | CLOSED |
    | HELD | WAITING | - | - | HELD or FREE | FREE, once closed CLOSED | HELD |
    | CLOSED | REFUSED | - | - | - | - | - |

    `-`: the call changes nothing; a closed gate is HELD as long as a ticket has a turn. `begin` and
    `leave` are the calls of a holder; those of any other ticket change nothing. While LINE is away
    an impatient ticket is REFUSED on entering, and by `refuse_impatient`. `close` refuses all
    waiting tickets.

    While LINE is probed (`alone`) one ticket at a time gets a turn, the probe; of the tickets with
    a turn only the probe may begin. Earlier calls do not count: they may last long.

    | ticket | enter | grant | cancel | refused | move |
    | --- | --- | --- | --- | --- | --- |
    | NEW | WAITING or REFUSED | - | CANCELLED | - | its new standing counts on entering |
    | WAITING | - | GRANTED | CANCELLED | REFUSED | takes its new place |
    | GRANTED, CANCELLED, REFUSED | - | - | - | - | - |

    Only a holder can leave, and a refused or cancelled ticket never becomes a holder. A dismissed
    waiter therefore never frees a gate that another ticket holds.

    The next ticket is of the best class that waits, except that a class of SHARES gets its share. A
    turn counts for the shares from its grant on; a turn without a call does not count. Within a
    class the order is by place. The exception is LIVE: if that order would cost a token although
    each could be used in time, the token that ends first comes first. A ticket whose token is too
    old by then leaves LIVE and uses no turn.
    """

    def __init__(self, most: int = 1, *, one_begins: bool = True) -> None:
        self._most = most
        self._one_begins = one_begins
        self._heaps: dict[TurnClass, list[tuple[float, int, Ticket]]] = {c: [] for c in TurnClass}
        self._waiting = dict.fromkeys(TurnClass, 0)
        self._live: dict[Ticket, None] = {}
        # Tickets in LIVE by the end of the token that their next call uses.
        self._by_token: list[tuple[float, int, Ticket]] = []
        # How many turns in a row each class with a share has waited.
        self._passed = dict.fromkeys(SHARES, 0)
        self._numbers = itertools.count()
        # The holders, each with the number of turns that its class had waited.
        self._holders: dict[Ticket, int] = {}
        # The holders that have not begun their call.
        self._preparing: set[Ticket] = set()
        self._probe: Ticket | None = None
        self._is_armed = False
        self._is_closed = False
        self._checked_at = -math.inf
        self._is_in_danger = False

    @property
    def state(self) -> GateState:
        if self._is_closed:
            return GateState.HELD if self._holders else GateState.CLOSED
        if len(self._holders) >= self._most or (self._one_begins and self._preparing):
            return GateState.HELD
        return GateState.ARMED if self._is_armed else GateState.FREE

    @property
    def waiting(self) -> int:
        return sum(self._waiting.values())

    def waiting_in(self, turn_class: TurnClass) -> int:
        return self._waiting[turn_class]

    def longest_seconds(self, turn_class: TurnClass, *, now: float) -> float:
        """How long the first ticket of a class has waited; 0 if none waits."""
        heap = self._heaps[turn_class]
        since = (one.since for _, number, one in heap if number == one.number)
        return max(0.0, now - min(since, default=now))

    def turns_before(self, ticket: Ticket) -> int:
        """Return how many turns others get before an answer at the ticket's place, at present.

        A waiting read is followed by its answer.
        """
        place, turns = ticket.standing.live_place, 0
        for other in self._live:
            if other is not ticket:
                turns += 2 if other.is_read else other.standing.live_place <= place
        return turns

    def enter(self, ticket: Ticket, *, now: float, away: bool) -> bool:
        """Let a new ticket wait; False if it is refused. `away`: LINE must not be called for now.

        A ticket that is not new is ignored.
        """
        if ticket.state is not TicketState.NEW:
            return True
        ticket.since = now
        if self._is_closed or (away and not ticket.patient):
            ticket.state = TicketState.REFUSED
            return False
        ticket.state = TicketState.WAITING
        self._push(ticket, ticket.standing, now)
        return True

    def move(self, ticket: Ticket, standing: Standing, *, now: float) -> None:
        """Give a ticket the better of its present standing and `standing`.

        The order of two moves therefore does not matter.
        """
        before = ticket.standing.at(now)
        better = before.with_other(standing.at(now))
        if better == before:
            return
        if ticket.state is TicketState.NEW:
            ticket.standing = better
        elif ticket.state is TicketState.WAITING:
            self._leave_line(ticket)
            self._push(ticket, better, now)
            self._drop_left_places()

    def cancel(self, ticket: Ticket) -> bool:
        """Cancel a ticket; False if it was granted or refused before."""
        if ticket.state is TicketState.WAITING:
            ticket.state = TicketState.CANCELLED
            self._leave_line(ticket)
            self._drop_left_places()
        elif ticket.state is TicketState.NEW:
            ticket.state = TicketState.CANCELLED
        return ticket.state is TicketState.CANCELLED

    def arm(self, *, alone: bool = False) -> bool:
        """Whether a thread has to be called for a turn; it then has to call `grant`."""
        is_probed = alone and self._probe is not None
        if self.state is not GateState.FREE or not self.waiting or is_probed:
            return False
        self._is_armed = True
        return True

    def grant(self, *, now: float, turn_seconds: float, alone: bool = False) -> Ticket | None:
        """A thread has arrived: give a turn to the next ticket; None if there is none.

        `turn_seconds`: the recent time between two turns. `alone`: LINE is probed.
        """
        if self.state is not GateState.ARMED:
            return None
        self._is_armed = False
        self._let_late_ones_go(now)
        turn_class = self._next_class()
        if turn_class is None:
            return None
        ticket = _first(self._heaps[turn_class])
        if turn_class is TurnClass.LIVE and self._tokens_in_danger(now, turn_seconds):
            ticket = min(self._counted(), key=lambda one: one.standing.first_until)
        ticket.state = TicketState.GRANTED
        self._leave_line(ticket)
        self._drop_left_places()
        self._hold(ticket, is_probe=alone)
        return ticket

    def may_begin(self, ticket: Ticket, *, alone: bool) -> bool:
        """Whether a holder may begin its call; while LINE is probed only the probe may."""
        # guard: probe-is-alone -> return True
        return not alone or ticket is self._probe

    def begin(self, ticket: Ticket) -> None:
        self._preparing.discard(ticket)

    def leave(self, ticket: Ticket, *, called: bool) -> bool:
        """End a holder's turn; False for any other ticket, which changes nothing.

        `called`: LINE was called in it.
        """
        if ticket not in self._holders:
            return False
        waited_through = self._holders.pop(ticket)
        self._preparing.discard(ticket)
        if self._probe is ticket:
            self._probe = None
        for turn_class, passed in self._passed.items():
            if not called:
                is_own = turn_class is ticket.turn_class
                given_back = passed + (waited_through if is_own else -1)
                self._passed[turn_class] = max(0, given_back)
            elif not self._waiting[turn_class]:
                self._passed[turn_class] = 0
        return True

    def _hold(self, ticket: Ticket, *, is_probe: bool) -> None:
        self._holders[ticket] = self._passed.get(ticket.turn_class, 0)
        self._preparing.add(ticket)
        if is_probe:
            self._probe = ticket
        for turn_class, passed in self._passed.items():
            self._passed[turn_class] = 0 if turn_class is ticket.turn_class else passed + 1

    def refuse_impatient(self) -> list[Ticket]:
        """Refuse the tickets that do not wait while LINE is away; returns them in their order."""
        return self._refuse(lambda ticket: not ticket.patient)

    def close(self) -> list[Ticket]:
        """Give no more turns; returns the waiting tickets. A turn under way ends by itself."""
        self._is_closed = True
        return self._refuse(lambda ticket: True)

    def _refuse(self, which: Callable[[Ticket], bool]) -> list[Ticket]:
        standing = (entry for heap in self._heaps.values() for entry in sorted(heap))
        refused = [one for _, number, one in standing if number == one.number and which(one)]
        for ticket in refused:
            ticket.state = TicketState.REFUSED
            self._leave_line(ticket)
        if refused:
            self._rebuild()
        return refused

    # The next ticket.

    def _let_late_ones_go(self, now: float) -> None:
        """Move tickets whose last token is too old to their other class."""
        while self._live and (ticket := _first(self._by_token)).standing.first_until <= now:
            standing = ticket.standing
            self._leave_line(ticket)
            # If there are several tokens, the last one's end is known as well.
            self._push(ticket, replace(standing, first_until=standing.live_until), now)

    def _next_class(self) -> TurnClass | None:
        for turn_class in sorted(SHARES, reverse=True):
            if self._waiting[turn_class] and self._passed[turn_class] >= SHARES[turn_class] - 1:
                return turn_class
        return next((turn_class for turn_class in TurnClass if self._waiting[turn_class]), None)

    def _counted(self) -> Iterable[Ticket]:
        return (one for one in self._live if not one.standing.is_full)

    def _tokens_in_danger(self, now: float, turn_seconds: float) -> bool:
        """Whether serving by place would miss a token although all could be used in time."""
        taken = sum(1 / share for one, share in SHARES.items() if self._waiting[one])
        turn_seconds /= 1 - taken
        last = now + len(self._live) * turn_seconds
        if last <= _first(self._by_token).standing.first_until:
            return False
        if now - self._checked_at >= CHECK_SECONDS or turn_seconds >= CHECK_SECONDS:
            self._checked_at = now
            self._is_in_danger = self._misses_a_token(now, turn_seconds)
        return self._is_in_danger and any(True for _ in self._counted())

    def _misses_a_token(self, now: float, turn_seconds: float) -> bool:
        def missed(one: Ticket, before: int) -> bool:
            return now + before * turn_seconds >= one.standing.first_until

        by_token = sorted(self._counted(), key=lambda one: one.standing.first_until)
        if any(missed(one, before) for before, one in enumerate(by_token)):
            return False
        line = sorted(self._live, key=lambda one: (one.standing.live_place, one.number))
        return any(
            missed(one, before) for before, one in enumerate(line) if not one.standing.is_full
        )

    # Places.

    def _push(self, ticket: Ticket, standing: Standing, now: float) -> None:
        """Add it to the line of its class with this standing; it is in no line."""
        ticket.standing = standing = standing.at(now)
        is_live = now < standing.live_until
        ticket.turn_class = turn_class = TurnClass.LIVE if is_live else standing.turn_class
        ticket.number = next(self._numbers)
        place = standing.live_place if is_live else standing.place
        heapq.heappush(self._heaps[turn_class], (place, ticket.number, ticket))
        self._waiting[turn_class] += 1
        if is_live:
            self._live[ticket] = None
            heapq.heappush(self._by_token, (standing.first_until, ticket.number, ticket))

    def _leave_line(self, ticket: Ticket) -> None:
        ticket.number = -1
        self._waiting[ticket.turn_class] -= 1
        self._live.pop(ticket, None)

    def _drop_left_places(self) -> None:
        entries = len(self._by_token) + sum(map(len, self._heaps.values()))
        if entries > 4 * self.waiting + MOST_LEFT_PLACES:
            self._rebuild()

    def _rebuild(self) -> None:
        for heap in (*self._heaps.values(), self._by_token):
            heap[:] = [entry for entry in heap if entry[1] == entry[2].number]
            heapq.heapify(heap)


def _first(heap: list[tuple[float, int, Ticket]]) -> Ticket:
    """The first entry that is not abandoned; there has to be one."""
    while heap[0][1] != heap[0][2].number:
        heapq.heappop(heap)
    return heap[0][2]
