"""The gate: one call of a LINE host at a time, and at least the interval between two starts.

All who want to call are served by deadline, so a reply whose token is about to expire goes
before a push that can wait. An entry waits as an object, not as a blocked thread; when its turn
comes, a thread of the pool is woken for it. A handler that reads from LINE on its own thread
waits in the same order, by `turn`. While LINE must not be called at all the patient ones wait
here, and the others are sent away.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jobworker.errors import GateClosed, LineAway
from jobworker.handler_call import can_run_again, require_wanted
from jobworker.line.entry import GateEntry
from jobworker.metrics import GateMetrics, Used, WorkerMetrics

log = logging.getLogger(__name__)

# A thread is woken this long before its turn, so that what has to be written down before the
# call does not cost part of the interval.
LEAD_SECONDS = 0.005
LEASE_AGAIN_SECONDS = 0.1
# Nobody waits longer than this for a turn on a thread: by then something is wrong.
TURN_SECONDS = 120.0
HANDLER_TURN_SECONDS = 20.0


class Gate:
    """See the module's words. `step` has a thread of the pool do something, `later` after a time.

    `lease_is_fresh` is asked before each call: a process that may have been replaced calls
    nothing (architecture: G7). `held_seconds` says how long LINE must not be called; it may
    change only by a call (see `jobworker.line.breaker`). `sent_at` says when the thread last sent
    something: on a busy machine, or while it connects, a call leaves well after its turn began,
    and LINE would see the next one too close.

    A handler that can run again waits `handler_turn_seconds` at most, and comes back later: a queue
    behind slow downloads would else use up its time, be taken for a failure of its own, and keep
    the threads from everybody else.
    """

    def __init__(
        self,
        interval_seconds: float,
        *,
        step: Callable[[Callable[[], None]], None],
        later: Callable[[float, Callable[[], None]], None],
        lease_is_fresh: Callable[[], bool],
        held_seconds: Callable[[], float] = lambda: 0.0,
        sent_at: Callable[[], float] = lambda: 0.0,
        handler_turn_seconds: float = HANDLER_TURN_SECONDS,
        figures: GateMetrics | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interval_seconds = interval_seconds
        self.handler_turn_seconds = handler_turn_seconds
        self._step = step
        self._later = later
        self._lease_is_fresh = lease_is_fresh
        self._held_seconds = held_seconds
        self._sent_at = sent_at
        self._monotonic = monotonic
        self._figures = figures or WorkerMetrics().of_gate("api")
        self._closed = threading.Event()
        self._lock = threading.Lock()
        # All below under _lock.
        # Each by its deadline, with the time since which it waits.
        self._waiting: list[tuple[float, int, GateEntry | _Turn, float]] = []
        self._numbers = itertools.count()
        self._busy = False
        self._called_for = False
        self._next_start = 0.0
        self._last_start = 0.0
        self._call_seconds = 0.0
        self._used = Used()
        # Since when the one whose turn it is had waited for it.
        self._waits_since = 0.0

    def enter(self, entry: GateEntry | _Turn, *, since: float | None = None) -> None:
        """Wait for a turn; entering again with an earlier deadline moves it forward.

        `since`: the monotonic time of its first entering, where this is another one.
        """
        with self._lock:
            if self._closed.is_set() and isinstance(entry, _Turn):
                entry.granted.set()
            waits = entry.patient or not self._held_seconds()
            if waits:
                began = self._monotonic() if since is None else since
                heapq.heappush(self._waiting, (entry.deadline, next(self._numbers), entry, began))
                self._arrange()
        if not waits:
            entry.sent_away()

    @property
    def waiting(self) -> int:
        """How many wait for a turn; an entry that was moved forward may count twice."""
        return len(self._waiting)

    @property
    def turn_seconds(self) -> float:
        """How long a turn takes of late: the interval, or the calls themselves if slower."""
        return max(self.interval_seconds, self._call_seconds)

    @property
    def used_seconds(self) -> float:
        """How long it was busy or kept its interval, since it was made."""
        with self._lock:
            return self._used.seconds(self._monotonic())

    def close(self) -> None:
        """Begin no more calls; one under way ends by itself."""
        with self._lock:
            self._closed.set()
            waiting, self._waiting = self._waiting, []
        for _, _, entry, _ in waiting:
            if isinstance(entry, _Turn):
                entry.granted.set()

    @contextmanager
    def turn(self, *, within_seconds: float = 60.0) -> Iterator[None]:
        """Hold the gate for one call made on this thread.

        Raises GateClosed at a stop, where the lease is no longer fresh, for a handler that was
        abandoned and where others call for too long, LineAway while LINE must not be called.
        """
        require_wanted()
        turn = _Turn(self._monotonic() + within_seconds)
        seconds = self.handler_turn_seconds if can_run_again() else TURN_SECONDS
        self.enter(turn)
        turn.granted.wait(seconds)
        # guard: give-up-then-look ->
        #     was_away, gives_up = turn.away, self._gives_up(turn)
        #     turn.away = was_away
        gives_up = self._gives_up(turn)
        # Only now: it may be sent away between the end of its wait and its giving up.
        if turn.away:
            raise LineAway("LINE is not called for now")
        if turn.given_up:
            raise GateClosed(f"no turn at the gate within {seconds:g} s")
        called = False
        try:
            if gives_up or not self._may_call():
                raise GateClosed("no turn at the gate: the process is stopping or was replaced")
            require_wanted()
            called = self._start()
            yield
        finally:
            if turn.granted.is_set():
                self._leave(called=called)

    def _gives_up(self, turn: _Turn) -> bool:
        """Whether the thread goes without its turn; the gate then skips it."""
        with self._lock:
            turn.given_up = not turn.granted.is_set()
            return turn.given_up or self._closed.is_set()

    def _arrange(self) -> None:
        """Under the lock: have somebody called when the next turn comes."""
        if self._busy or self._called_for or not self._waiting or self._closed.is_set():
            return
        self._called_for = True
        seconds = self._next_start - LEAD_SECONDS - self._monotonic()
        seconds = max(seconds, self._held_seconds())
        if seconds <= 0:
            self._step(self._serve)
        else:
            self._later(seconds, lambda: self._step(self._serve))

    def _serve(self) -> None:
        """On a thread of the pool: give the turn to the most urgent that still wants it."""
        if not self._lease_is_fresh():
            self._later(LEASE_AGAIN_SECONDS, lambda: self._step(self._serve))
            return
        while (entry := self._take()) is not None:
            if isinstance(entry, _Turn):
                return
            if entry.prepare():
                self._call(entry)
                return

    def _take(self) -> GateEntry | _Turn | None:
        """The most urgent entry, and the gate with it; None frees the gate."""
        with self._lock:
            self._called_for = False
            self._used.begin(self._monotonic())
            while self._waiting and not self._closed.is_set():
                self._busy = True
                _, _, entry, self._waits_since = heapq.heappop(self._waiting)
                if not isinstance(entry, _Turn):
                    return entry
                if not entry.given_up:
                    entry.granted.set()
                    return entry
            self._used.end(max(self._monotonic(), self._next_start))
            self._busy = False
        return None

    def _call(self, entry: GateEntry) -> None:
        """The entry's call, in its time. An entry that must not call now waits again."""
        may_call = self._may_call()
        try:
            if may_call:
                self._start()
                entry.call()
        finally:
            self._leave(called=may_call)
        if may_call:
            entry.after()
        elif self._closed.is_set() and entry.patient:
            entry.sent_away()
        else:
            self.enter(entry)

    def _may_call(self) -> bool:
        """Whether to call, after the wait for the interval; the lease is asked last."""
        # guard: lease-asked-last -> return self._wait_for_interval()
        return self._wait_for_interval() and self._lease_is_fresh()

    def _wait_for_interval(self) -> bool:
        """Wait until the interval since the last start is over; False at a stop."""
        while (seconds := self._next_start - self._monotonic()) > 0:
            if self._closed.wait(seconds):
                return False
        return not self._closed.is_set()

    def _start(self) -> bool:
        with self._lock:
            before, self._last_start = self._last_start, self._monotonic()
            self._next_start = self._last_start + self.interval_seconds
        since_last_ms = (self._last_start - before) * 1000
        log.debug("turn since_last_access_ms=%.1f waiting=%d", since_last_ms, len(self._waiting))
        return True

    def _leave(self, *, called: bool) -> None:
        with self._lock:
            if called:
                took = self._monotonic() - self._last_start
                self._call_seconds += (took - self._call_seconds) / 8
                left = max(self._last_start, self._sent_at())
                self._next_start = left + self.interval_seconds
            waited = self._last_start - self._waits_since
            self._used.end(max(self._monotonic(), self._next_start))
            self._busy = False
            away = self._take_impatient() if self._held_seconds() else []
            self._arrange()
        if called:
            self._figures.turns.inc()
            self._figures.wait.observe(waited)
        for entry in away:
            entry.sent_away()

    def _take_impatient(self) -> list[GateEntry | _Turn]:
        """Under the lock: take out those who do not wait until LINE may be called again."""
        away = [one[2] for one in self._waiting if not one[2].patient]
        if away:
            self._waiting = [one for one in self._waiting if one[2].patient]
            heapq.heapify(self._waiting)
        return away


class _Turn:
    """A thread that waits for the gate itself."""

    patient = False

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.granted = threading.Event()
        self.given_up = False
        self.away = False

    def sent_away(self) -> None:
        """Have the thread go on without its turn."""
        self.away = True
        self.granted.set()
