"""The gate's account of its tickets: which one has the turn, and in which order the others follow.

Pure: no lock, no thread, no clock, no callback. The gate calls one method under its lock, and does
what follows from the result once the lock is free.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

# Places that were left are dropped from the heap once they are more than this and the others.
MOST_LEFT_PLACES = 64


class TicketState(Enum):
    """What became of a ticket. The last three are final."""

    NEW = "new"
    """It has not reached the gate yet."""
    WAITING = "waiting"
    GRANTED = "granted"
    """It has the turn, or had it."""
    CANCELLED = "cancelled"
    """Its owner wants no turn any more."""
    REFUSED = "refused"
    """The gate is closed, or LINE is away and the ticket does not wait for it."""


class GateState(Enum):
    """What the gate does next; see the table of `Order`."""

    FREE = "free"
    """No ticket waits."""
    ARMED = "armed"
    """A thread was called, for a turn that no ticket has yet."""
    HELD = "held"
    """One ticket has the turn."""
    CLOSED = "closed"
    """No turn is given any more."""


def _ignore(_: Ticket) -> None:
    pass


@dataclass(eq=False, slots=True)
class Ticket:
    """One wish for one turn. The gate calls `granted` or `refused` at most once, without a lock.

    `deadline`: the monotonic time by which it should be served; the order goes by it. `patient`: it
    waits while LINE is away, and only a closed gate refuses it. `granted` is called on a thread of
    the pool and may take as long as a call; `refused` has to be quick.
    """

    deadline: float
    patient: bool = True
    granted: Callable[[Ticket], None] = _ignore
    refused: Callable[[Ticket], None] = _ignore
    state: TicketState = field(default=TicketState.NEW, init=False)
    since: float = field(default=0.0, init=False)
    """The monotonic time of its entering."""
    place: int = field(default=-1, init=False)
    """Its number in the heap; an entry with another number was left."""


class Order:
    """The tickets at the gate: at most one has the turn, the others follow by their deadlines.

    The gate's state is computed from the facts: whether it was closed, a thread was called for a
    turn, a ticket has the turn.

    | state | enter | arm | grant | leave | close |
    | --- | --- | --- | --- | --- | --- |
    | FREE | WAITING | ARMED if a ticket waits | - | - | CLOSED |
    | ARMED | WAITING | - | HELD by the most urgent; without one FREE | - | CLOSED |
    | HELD | WAITING | - | - | its holder: FREE, once closed CLOSED | HELD |
    | CLOSED | REFUSED | - | - | - | - |

    `-`: the call changes nothing. While LINE is away an impatient ticket is REFUSED on entering,
    and by `refuse_impatient`. `close` refuses all that wait.

    | ticket | enter | grant | cancel | refused | move |
    | --- | --- | --- | --- | --- | --- |
    | NEW | WAITING or REFUSED | - | CANCELLED | - | its new deadline counts on entering |
    | WAITING | - | GRANTED | CANCELLED | REFUSED | takes its new place |
    | GRANTED, CANCELLED, REFUSED | - | - | - | - | - |

    Only the holder can leave, and a ticket that was refused or cancelled never becomes the holder.
    So a waiter that is dismissed never frees a gate that another one holds.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Ticket]] = []
        self._places = itertools.count()
        self._waiting = 0
        self._holder: Ticket | None = None
        self._is_armed = False
        self._is_closed = False

    @property
    def state(self) -> GateState:
        """See the table."""
        if self._holder is not None:
            return GateState.HELD
        if self._is_closed:
            return GateState.CLOSED
        return GateState.ARMED if self._is_armed else GateState.FREE

    @property
    def waiting(self) -> int:
        """How many tickets wait for a turn."""
        return self._waiting

    def enter(self, ticket: Ticket, *, now: float, away: bool) -> bool:
        """Have a new ticket wait; False if it is refused. `away`: LINE must not be called for now.

        A ticket that is not new does not enter, and is not told so.
        """
        if ticket.state is not TicketState.NEW:
            return True
        ticket.since = now
        if self._is_closed or (away and not ticket.patient):
            ticket.state = TicketState.REFUSED
            return False
        ticket.state = TicketState.WAITING
        self._waiting += 1
        self._push(ticket)
        return True

    def move(self, ticket: Ticket, deadline: float) -> None:
        """Give a ticket an earlier deadline; it follows those that have the same one already.

        A later one changes nothing, since two moves can overtake each other on their way here.
        """
        if deadline >= ticket.deadline:
            return
        if ticket.state is TicketState.NEW:
            ticket.deadline = deadline
        elif ticket.state is TicketState.WAITING:
            ticket.deadline = deadline
            self._push(ticket)
            self._drop_left_places()

    def cancel(self, ticket: Ticket) -> bool:
        """Take a ticket back; False if it was granted or refused before."""
        if ticket.state is TicketState.WAITING:
            self._leave_line(ticket, TicketState.CANCELLED)
            self._drop_left_places()
        elif ticket.state is TicketState.NEW:
            ticket.state = TicketState.CANCELLED
        return ticket.state is TicketState.CANCELLED

    def arm(self) -> bool:
        """Whether a thread has to be called for a turn; it has to come to `grant`."""
        if self.state is not GateState.FREE or not self._waiting:
            return False
        self._is_armed = True
        return True

    def grant(self) -> Ticket | None:
        """The thread came: give the turn to the most urgent ticket; None if there is none."""
        if self.state is not GateState.ARMED:
            return None
        self._is_armed = False
        while self._heap:
            _, place, ticket = heapq.heappop(self._heap)
            if place == ticket.place:
                self._leave_line(ticket, TicketState.GRANTED)
                self._holder = ticket
                return ticket
        return None

    def leave(self, ticket: Ticket) -> bool:
        """The holder's turn is over; False for any other ticket, which changes nothing."""
        if self._holder is not ticket:
            return False
        self._holder = None
        return True

    def refuse_impatient(self) -> list[Ticket]:
        """Refuse those that do not wait while LINE is away; returns them, the most urgent first."""
        return self._refuse(lambda ticket: not ticket.patient)

    def close(self) -> list[Ticket]:
        """Give no turn any more; returns those that waited. A turn under way ends by itself."""
        self._is_closed = True
        return self._refuse(lambda ticket: True)

    def _refuse(self, which: Callable[[Ticket], bool]) -> list[Ticket]:
        standing = sorted(entry for entry in self._heap if entry[1] == entry[2].place)
        refused = [ticket for _, _, ticket in standing if which(ticket)]
        for ticket in refused:
            self._leave_line(ticket, TicketState.REFUSED)
        if refused:
            self._rebuild()
        return refused

    def _push(self, ticket: Ticket) -> None:
        ticket.place = next(self._places)
        heapq.heappush(self._heap, (ticket.deadline, ticket.place, ticket))

    def _leave_line(self, ticket: Ticket, state: TicketState) -> None:
        ticket.state, ticket.place = state, -1
        self._waiting -= 1

    def _drop_left_places(self) -> None:
        if len(self._heap) > 2 * self._waiting + MOST_LEFT_PLACES:
            self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [entry for entry in self._heap if entry[1] == entry[2].place]
        heapq.heapify(self._heap)
