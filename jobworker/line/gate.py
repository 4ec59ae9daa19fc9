"""The gate: limits the calls of a LINE host at a time (default: one), and the interval between
starts.

`jobworker.line.gate_order` decides the order: free answers with a valid reply token come before
entries that can wait. An entry is a ticket, not a blocked thread; a pool thread is called when its
turn comes. A handler that calls LINE on its own thread waits in the same order, by `turn`. While
LINE must not be called at all, patient tickets wait here and the others are refused.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jobworker.errors import GateClosed, LineAway
from jobworker.handler_context import can_run_again, current_call, require_wanted
from jobworker.line.breaker import Breaker
from jobworker.line.deadline import sent_at
from jobworker.line.gate_order import PLACE_SECONDS, GateState, Order, Standing, Ticket, TicketState
from jobworker.metrics import Use
from linedesk.store.records.calls import TurnClass

log = logging.getLogger(__name__)

# A thread is called this long before its turn, so that the writes before the call do not use up the
# interval.
LEAD_SECONDS = 0.005
LEASE_AGAIN_SECONDS = 0.1
# No thread waits longer than this for a turn: a longer wait means a fault.
TURN_SECONDS = 120.0
HANDLER_TURN_SECONDS = 20.0

_of_thread = threading.local()


def current_ticket() -> Ticket | None:
    """The ticket that has a turn on this thread; None if none has."""
    return getattr(_of_thread, "ticket", None)


class Gate:
    """The gate that the module describes. `step` runs a function on a pool thread, `later` after a
    time.

    At most `concurrency` calls are under way at a time. With an interval above 0 their starts are
    at least that far apart, and one ticket at a time prepares its call. Without one, as many
    prepare as may call.

    `lease_is_fresh` is asked before each call: a process that may have been replaced makes no calls
    (architecture: G7). The breaker says how long LINE must not be called, and whether only one call
    may test it; it changes under the gate's lock, and only by a call.

    A handler that can run again waits at most `handler_turn_seconds`, and comes back later.
    Otherwise a queue behind slow downloads would use up its time, count as its own failure, and
    keep the threads from other work. Other threads wait at most TURN_SECONDS.
    """

    def __init__(
        self,
        interval_seconds: float,
        *,
        concurrency: int = 1,
        step: Callable[[Callable[[], None]], None],
        later: Callable[[float, Callable[[], None]], None],
        lease_is_fresh: Callable[[], bool],
        handler_turn_seconds: float = HANDLER_TURN_SECONDS,
        turn_taken: Callable[[float], None] = lambda wait_seconds: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interval_seconds = interval_seconds
        self.concurrency = concurrency
        self.handler_turn_seconds = handler_turn_seconds
        self._lead_seconds = LEAD_SECONDS
        self._step = step
        self._later = later
        self._lease_is_fresh = lease_is_fresh
        # On a busy machine, or while it connects, a call may be sent well after its turn began, and
        # LINE would see the next one too close.
        self._sent_at = sent_at
        self._monotonic = monotonic
        self._turn_taken = turn_taken
        self._closed = threading.Event()
        self._lock = threading.Lock()
        # All below under _lock.
        self.breaker = Breaker(self._lock, monotonic=monotonic)
        # guard: one-begins-at-a-time -> self._order = Order(concurrency, one_begins=False)
        self._order = Order(concurrency, one_begins=interval_seconds > 0)
        self._next_start = 0.0
        self._last_start = 0.0
        self._call_seconds = 0.0
        self._use = Use(monotonic())

    @property
    def waiting(self) -> int:
        return self._order.waiting

    @property
    def turn_seconds(self) -> float:
        """The recent time between two turns while many wait: the interval, or that of the calls."""
        return max(self.interval_seconds, self._call_seconds / self.concurrency)

    @property
    def use(self) -> float:
        """The recent share of time without a turn to give, by the limit of calls or the
        interval.
        """
        with self._lock:
            return self._use.share(self._monotonic())

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    def enter(self, ticket: Ticket) -> None:
        """Let a ticket wait for its turn. A cancelled one does not enter."""
        with self._lock:
            away = self.breaker.held_seconds() > 0
            may_wait = self._order.enter(ticket, now=self._monotonic(), away=away)
            seconds = self._arm()
        self._call_thread(seconds)
        if not may_wait:
            ticket.refused(ticket)

    @property
    def is_away(self) -> bool:
        """Whether LINE must not be called for now, or only to test it."""
        return self.is_closed or self.breaker.held_seconds() > 0 or self.breaker.is_probed

    @property
    def is_idle(self) -> bool:
        """Whether no ticket waits, and the next one gets a turn at once."""
        is_free = self._order.state is GateState.FREE and not self._order.waiting
        return is_free and self._next_start - self._lead_seconds <= self._monotonic()

    def move(self, ticket: Ticket, standing: Standing) -> None:
        """Give a ticket the better of its present standing and `standing`."""
        with self._lock:
            self._order.move(ticket, standing, now=self._monotonic())

    def waiting_in(self, turn_class: TurnClass) -> int:
        return self._order.waiting_in(turn_class)

    def longest_seconds(self, turn_class: TurnClass) -> float:
        """How long the first ticket of a class has waited; 0 if none waits."""
        with self._lock:
            return self._order.longest_seconds(turn_class, now=self._monotonic())

    def turns_before(self, ticket: Ticket) -> int:
        """Return how many turns others get before an answer at the ticket's place."""
        with self._lock:
            return self._order.turns_before(ticket)

    def cancel(self, ticket: Ticket) -> bool:
        """Cancel a ticket; False if it was granted or refused before."""
        with self._lock:
            return self._order.cancel(ticket)

    def close(self) -> None:
        """Begin no more calls; a call under way ends by itself."""
        with self._lock:
            self._closed.set()
            refused = self._order.close()
        for ticket in refused:
            ticket.refused(ticket)

    @contextmanager
    def holding(self, ticket: Ticket) -> Iterator[None]:
        """The turn of a granted ticket, which allows one call; it is given back at the end."""
        before = current_ticket()
        _of_thread.ticket = ticket
        try:
            yield
        finally:
            _of_thread.ticket = before
            self.give_back(ticket)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the gate for one call on this thread; for a handler's call while its token is valid.

        Raises GateClosed at a stop, if the lease is no longer fresh, for an abandoned handler, and
        after too long a wait. Raises LineAway while LINE must not be called.
        """
        require_wanted()
        ticket = self._wait_for_turn()
        with self.holding(ticket):
            if not self.may_call(ticket):
                if not self._may_begin(ticket):
                    raise LineAway("LINE is not called for now")
                raise GateClosed("no turn at the gate: the process is stopping or was replaced")
            require_wanted()
            self.begin(ticket)
            yield

    def _wait_for_turn(self) -> Ticket:
        """Return a granted ticket. A thread that waits is as urgent as the answer behind it."""
        answered, handler, now = threading.Event(), current_call(), self._monotonic()
        standing = Standing(TurnClass.CHAT, now + PLACE_SECONDS)
        if handler is not None:
            # It keeps its place when it comes again.
            standing = Standing(TurnClass.CHAT, standing.place - handler.age_seconds)
            standing = standing.with_token(now + handler.token_seconds)
        ticket = Ticket(
            standing,
            patient=False,
            granted=lambda _: answered.set(),
            refused=lambda _: answered.set(),
        )
        self.enter(ticket)
        seconds = self.handler_turn_seconds if can_run_again() else TURN_SECONDS
        if not answered.wait(seconds) and self.cancel(ticket):
            raise GateClosed(f"no turn at the gate within {seconds:g} s")
        # Only now: it may be refused between the end of its wait and its cancellation.
        # guard: give-up-then-look
        if ticket.state is TicketState.REFUSED:
            if self.is_closed:
                raise GateClosed("no turn at the gate: the process is stopping")
            raise LineAway("LINE is not called for now")
        return ticket

    def _arm(self) -> float | None:
        """Under the lock: return in how many seconds a thread has to serve; None if none has to."""
        if not self._order.arm(alone=self.breaker.is_probed):
            return None
        seconds = self._next_start - self._lead_seconds - self._monotonic()
        return max(seconds, self.breaker.held_seconds())

    def _call_thread(self, seconds: float | None) -> None:
        """Without the lock: call a thread to serve after this many seconds."""
        if seconds is None:
            return
        if seconds <= 0:
            self._step(self._serve)
        else:
            self._later(seconds, lambda: self._step(self._serve))

    def _serve(self) -> None:
        """On a pool thread: give a turn to the next ticket."""
        if not self._lease_is_fresh():
            self._call_thread(LEASE_AGAIN_SECONDS)
            return
        ticket: Ticket | None = None
        with self._lock:
            # A call that ended since this thread was requested may have opened the breaker.
            # guard: held-asked-again -> seconds: float | None = 0.0
            seconds: float | None = self.breaker.held_seconds()
            if not seconds:
                ticket = self._grant()
                # Another thread may give the next turn while this one calls.
                seconds = self._arm()
        self._call_thread(seconds)
        if ticket is not None:
            ticket.granted(ticket)

    def _grant(self) -> Ticket | None:
        """Under the lock."""
        now = self._monotonic()
        alone = self.breaker.is_probed
        ticket = self._order.grant(now=now, turn_seconds=self.turn_seconds, alone=alone)
        if self._order.state is GateState.HELD:
            self._use.begin(now)
        return ticket

    def may_call(self, ticket: Ticket) -> bool:
        """Return whether a holder may call, after the wait for the interval; the lease is asked
        last.

        Also False if the end of another call has opened the breaker.
        """
        # guard: lease-asked-last -> return self._wait_for_interval() and self._may_begin(ticket)
        return self._wait_for_interval() and self._may_begin(ticket) and self._lease_is_fresh()

    def _wait_for_interval(self) -> bool:
        """Wait until the interval since the last start is over; False at a stop."""
        while (seconds := self._next_start - self._monotonic()) > 0:
            if self._closed.wait(seconds):
                return False
        return not self._closed.is_set()

    def _may_begin(self, ticket: Ticket) -> bool:
        """Whether LINE may still be called: the end of another call may have opened the breaker."""
        with self._lock:
            return self._order.may_begin(ticket, alone=self.breaker.is_probed)

    def begin(self, ticket: Ticket) -> None:
        """Begin a holder's call; the next one keeps its interval from now on."""
        with self._lock:
            before, now = self._last_start, self._monotonic()
            self._last_start = ticket.began = now
            self._next_start = now + self.interval_seconds
            self._order.begin(ticket)
            self._end_use()
            seconds = self._arm()
        # Only if more than one call may be under way.
        self._call_thread(seconds)
        since_last_ms = (now - before) * 1000
        log.debug("turn since_last_access_ms=%.1f waiting=%d", since_last_ms, self.waiting)

    def give_back(self, ticket: Ticket) -> None:
        """End a holder's turn, whether LINE was called in it or not."""
        began = ticket.began
        with self._lock:
            if not self._order.leave(ticket, called=began is not None):
                return
            if began is not None:
                took = self._monotonic() - began
                self._call_seconds += (took - self._call_seconds) / 8
                left = max(self._last_start, self._sent_at())
                self._next_start = max(self._next_start, left + self.interval_seconds)
            self._end_use()
            refused = self._order.refuse_impatient() if self.breaker.held_seconds() else []
            seconds = self._arm()
        # First, because the next turn begins with it.
        self._call_thread(seconds)
        if began is not None:
            self._turn_taken(ticket.waited_seconds)
        for one in refused:
            one.refused(one)

    def _end_use(self) -> None:
        """Under the lock: note that it has a turn to give once its interval is over."""
        if self._order.state is not GateState.HELD:
            self._use.end(max(self._monotonic(), self._next_start))
