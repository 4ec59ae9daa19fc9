"""The gate: one call at a time, the interval between two starts, and no waiting thread."""

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from dispatcher.commit.tracker import ProgressTracker
from dispatcher.conversations.mailbox import JobResult
from dispatcher.delayed_calls import DelayedCalls
from dispatcher.pool.mailboxes import Mailboxes
from dispatcher.pool.pool import Pool
from jobworker.errors import LineAway
from jobworker.line import gate as gate_module
from jobworker.line import side_call
from jobworker.line.gate import Gate
from jobworker.line.gate_order import Standing, Ticket
from jobworker.line.rate_limits import RateLimits
from linedesk.store.records.calls import TurnClass
from tests.waiting import eventually

# By hand: one thread, a clock that the test moves, and steps that the test runs.


class Hand:
    """The pool and the clock of a gate, moved by the test."""

    def __init__(
        self,
        interval_seconds: float = 1.0,
        *,
        concurrency: int = 1,
        turn_taken: Callable[[float], None] = lambda wait_seconds: None,
    ) -> None:
        self.now = 100.0
        self.fresh = True
        self.held_until = 0.0
        self.probed = False
        self.sent_at = 0.0
        self.steps: deque[Callable[[], None]] = deque()
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.gate = Gate(
            interval_seconds,
            concurrency=concurrency,
            step=self.steps.append,
            later=self.later,
            lease_is_fresh=lambda: self.fresh,
            turn_taken=turn_taken,
            monotonic=lambda: self.now,
        )
        # The clock does not advance while a thread would wait for the rest of the interval.
        self.gate._lead_seconds = 0.0
        self.gate._sent_at = lambda: self.sent_at
        self.gate.breaker = self  # type: ignore[assignment]

    # As a breaker.

    def held_seconds(self) -> float:
        return max(0.0, self.held_until - self.now)

    @property
    def is_probed(self) -> bool:
        return self.probed

    def line(self, **client: Callable[..., Any]) -> side_call.Line:
        """Its gate with what a call needs besides; `client` has functions in place of LINE's."""
        made: Any = SimpleNamespace(**client)
        limits = RateLimits(monotonic=lambda: self.now)
        return side_call.Line(
            self.gate,
            made,
            limits,
            step=lambda act: self.step(act),
            later=self.later,
            monotonic=lambda: self.now,
        )

    def step(self, act: Callable[[], None]) -> None:
        """Run it with the next steps."""
        self.steps.append(act)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Run it once this much time has passed."""
        heapq.heappush(self._later, (self.now + seconds, next(self._numbers), action))

    def run(self) -> None:
        while self.steps:
            self.steps.popleft()()

    def advance(self, seconds: float) -> None:
        """Let time pass, everything due on the way being done in its moment."""
        end = self.now + seconds
        self.run()
        while self._later and self._later[0][0] <= end:
            due, _, function = heapq.heappop(self._later)
            self.now = max(self.now, due)
            function()
            self.run()
        self.now = end


@dataclass
class Note:
    """A caller that notes the gate's calls."""

    hand: Hand
    name: str
    place: float = 0.0
    takes: float = 0.0
    patient: bool = True
    story: list[str] = field(default_factory=list)
    called: list[float] = field(default_factory=list)
    on_prepare: Callable[[], None] = lambda: None
    on_call: Callable[[], None] = lambda: None

    def enter(self) -> Ticket:
        """Wait for a turn at the gate, as sends do."""
        standing = Standing(TurnClass.CHAT, self.place)
        ticket = Ticket(
            standing, patient=self.patient, granted=self._take_turn, refused=self._refused
        )
        self.hand.gate.enter(ticket)
        return ticket

    def _refused(self, ticket: Ticket) -> None:
        self.story.append(f"away {self.name}")

    def _take_turn(self, ticket: Ticket) -> None:
        with self.hand.gate.holding(ticket):
            self.story.append(f"prepare {self.name}")
            self.on_prepare()
            if self.hand.gate.may_call(ticket):
                self.hand.gate.begin(ticket)
                self._call()
        if ticket.began is not None:
            self.story.append(f"after {self.name}")
        elif not self.hand.gate.is_closed:
            self.enter()

    def _call(self) -> None:
        self.story.append(f"call {self.name}")
        self.called.append(self.hand.now)
        self.on_call()
        self.hand.now += self.takes


@pytest.fixture
def hand() -> Hand:
    return Hand()


def test_the_interval_counts_from_when_the_call_really_left(hand: Hand) -> None:
    """Connecting takes a while, or the thread does not run: LINE hears of it only then."""
    slow, following = Note(hand, "slow", takes=0.4), Note(hand, "following", place=1)
    slow.on_call = lambda: setattr(hand, "sent_at", hand.now + 0.3)
    slow.enter()
    following.enter()
    hand.advance(10)
    assert (slow.called, following.called) == ([100.0], [101.3])


def test_a_lease_lost_while_preparing_stops_the_call(hand: Hand) -> None:
    entry = Note(hand, "a")
    entry.on_prepare = lambda: setattr(hand, "fresh", False)
    entry.enter()
    hand.advance(5)
    assert entry.called == []
    entry.on_prepare = lambda: None
    hand.fresh = True
    hand.advance(1)
    assert len(entry.called) == 1
    assert entry.story.count("after a") == 1


# With real threads.


@dataclass
class Line:
    """LINE, as far as the gate is concerned: it notes each caller, and simultaneous calls."""

    gate: Gate
    starts: list[float] = field(default_factory=list)
    """As the gate itself dates them: a later reading by a thread is later by chance."""
    names: list[str] = field(default_factory=list)
    together: int = 0
    _inside: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def called(self, name: str) -> Iterator[None]:
        with self._lock:
            self.starts.append(self.gate._last_start)
            self.names.append(name)
            self._inside += 1
            self.together = max(self.together, self._inside)
        yield
        with self._lock:
            self._inside -= 1

    @property
    def closest(self) -> float:
        return min(b - a for a, b in itertools.pairwise(self.starts))


@dataclass
class Caller:
    """It calls Line by a ticket."""

    line: Line
    name: str
    place: float
    takes: float = 0.0

    def enter(self) -> None:
        standing = Standing(TurnClass.CHAT, self.place)
        self.line.gate.enter(Ticket(standing, granted=self._take_turn))

    def _take_turn(self, ticket: Ticket) -> None:
        with self.line.gate.holding(ticket):
            if self.line.gate.may_call(ticket):
                self.line.gate.begin(ticket)
                with self.line.called(self.name):
                    threading.Event().wait(self.takes)


@dataclass
class Real:
    """A gate on a real pool and clock."""

    gate: Gate
    pool: Pool
    line: Line


@pytest.fixture
def real() -> Iterator[Callable[..., Real]]:
    ends: list[Callable[[], object]] = []

    def make(interval_seconds: float, **limits: Any) -> Real:
        clock = DelayedCalls()
        pool = Pool(
            lambda task: JobResult.DONE, Mailboxes(ProgressTracker()), threads=4, later=clock.later
        )
        gate = Gate(
            interval_seconds,
            step=pool.step,
            later=clock.later,
            lease_is_fresh=lambda: True,
            **limits,
        )
        clock.start()
        pool.start()
        ends.extend((gate.close, pool.stop, clock.stop))
        ends.extend((lambda: pool.threads.join(time.monotonic() + 5), lambda: clock.join(5)))
        return Real(gate, pool, Line(gate))

    yield make
    for end in ends:
        end()


def crowd(room: Real, *, seconds: float) -> Line:
    """Eight threads call three times each, beside forty that wait without one."""
    line = room.line

    def on_a_thread(n: int) -> None:
        for turn in range(3):
            with room.gate.turn(), line.called(f"thread {n} {turn}"):
                threading.Event().wait(seconds * (n % 3 + 1) / 4)

    threads = [threading.Thread(target=on_a_thread, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for n in range(40):
        Caller(line, str(n), n, takes=seconds * (n % 8 + 1) / 8).enter()
    for thread in threads:
        thread.join(20)
    eventually(lambda: len(line.starts) == 64)
    return line


def test_never_two_calls_at_once_and_never_too_close(real: Callable[..., Real]) -> None:
    line = crowd(real(0.005), seconds=0.008)
    assert line.together == 1
    assert line.closest >= 0.005


@pytest.mark.parametrize("interval_seconds", [0.005, 0.0])
def test_never_more_calls_at_once_than_may_be_and_never_too_close(
    real: Callable[..., Real], monkeypatch: pytest.MonkeyPatch, interval_seconds: float
) -> None:
    room = real(interval_seconds, concurrency=3)
    starts: list[float] = []
    begin = room.gate.begin

    def noted(ticket: Ticket) -> None:
        begin(ticket)
        starts.append(ticket.began or 0.0)

    monkeypatch.setattr(room.gate, "begin", noted)
    assert crowd(room, seconds=0.02).together == 3
    starts.sort()
    assert min(b - a for a, b in itertools.pairwise(starts)) >= interval_seconds


def test_a_thread_that_is_sent_away_as_it_gives_up_does_not_call(
    real: Callable[..., Real], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The breaker opens between the end of its wait and its giving up: it has no turn."""
    monkeypatch.setattr(gate_module, "TURN_SECONDS", 0.01)
    gate = real(0.0).gate
    cancel = gate.cancel

    def refused_first(ticket: Ticket) -> bool:
        with gate._lock:
            assert gate._order.refuse_impatient() == [ticket]
        return cancel(ticket)

    with gate.turn():
        monkeypatch.setattr(gate, "cancel", refused_first)
        with pytest.raises(LineAway), gate.turn():
            pytest.fail("it called beside the one that holds the gate")


def test_a_thousand_that_wait_hold_no_thread(real: Callable[..., Real]) -> None:
    room = real(3600.0)
    line = room.line
    for n in range(1000):
        Caller(line, str(n), n).enter()
    eventually(lambda: len(line.starts) == 1)
    # Four steps at once, on all four threads: none of them waits at the gate.
    barrier = threading.Barrier(5)

    def meet() -> None:
        barrier.wait(5)

    for _ in range(4):
        room.pool.step(meet)
    barrier.wait(5)
    assert room.gate.waiting == 999
