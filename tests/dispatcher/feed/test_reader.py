"""The reader's states: the table in its docstring, and the invariants on every way through it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bson.timestamp import Timestamp
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dispatcher.feed.feed import FeedLimits, PositionLost
from dispatcher.feed.reader import ReaderMachine, ReaderState
from dispatcher.feed.rescan import ScanPass

HEALTHY_SECONDS = FeedLimits().healthy_seconds
LOST = PositionLost("MongoDB error 286")
START = ScanPass(Timestamp(7, 1))
START.note("met by the scan")

Event = Callable[[ReaderMachine], object]
EVENTS: dict[str, Event] = {
    "scanned": lambda one: one.scanned(START),
    "opened": lambda one: one.opened(0.0),
    "delivered": lambda one: one.delivered("later" if one.reads else None),
    "moved": lambda one: one.moved("later"),
    "lost": lambda one: one.lost(LOST, 0.0),
    "unavailable": lambda one: one.unavailable(0.0),
    "stalled": lambda one: one.stalled(0.0),
    "paused": lambda one: one.paused(),
    "stopped": lambda one: one.stopped(),
}
# One way into each state.
WAYS: dict[str, list[str]] = {
    "SCANNING": ["lost", "paused"],
    "OPENING": [],
    "READING": ["opened"],
    "BACKOFF": ["unavailable"],
}


def after(*events: str, token: Any = "token") -> ReaderMachine:
    """One that began with this token, and to which these have happened."""
    one = ReaderMachine(token)
    for event in events:
        EVENTS[event](one)
    return one


def table() -> Iterator[tuple[str, str, str]]:
    """Event, state and next state of each cell in the docstring; "" where it cannot happen."""
    rows = re.findall(r"^ *\|(.*)\|$", ReaderMachine.__doc__ or "", re.MULTILINE)
    (_, *states), _, *lines = ([cell.strip() for cell in row.split("|")] for row in rows)
    for event, *cells in lines:
        yield from ((event, state, cell) for state, cell in zip(states, cells, strict=True))


@pytest.mark.parametrize(("event", "before", "expected"), list(table()))
def test_each_cell_of_the_table_is_what_happens(event: str, before: str, expected: str) -> None:
    one = after(*WAYS[before])
    assert one.state.name == before
    if expected == "":
        with pytest.raises(RuntimeError, match=f"while {one.state.value}"):
            EVENTS[event](one)
        assert one.state.name == before
        return
    EVENTS[event](one)
    assert one.state.name == ("OPENING" if expected == "RESUME" else expected)


def test_the_table_names_each_event_and_state() -> None:
    assert {event for event, _, _ in table()} == EVENTS.keys()
    states = {state for _, state, _ in table()}
    assert states == WAYS.keys() == {one.name for one in ReaderState} - {"STOPPED"}


@pytest.mark.parametrize(
    ("token", "events", "resumed"),
    [
        ("token", ["unavailable"], ReaderState.OPENING),
        ("token", ["opened", "delivered", "unavailable"], ReaderState.OPENING),
        ("token", ["lost"], ReaderState.SCANNING),
        (None, ["unavailable"], ReaderState.SCANNING),
        (None, ["scanned", "unavailable"], ReaderState.SCANNING),
        # It was opened behind the scan, and no position is known yet.
        (None, ["scanned", "opened", "unavailable"], ReaderState.SCANNING),
        (None, ["scanned", "opened", "moved", "unavailable"], ReaderState.OPENING),
    ],
)
def test_after_a_pause_it_continues_with_unfinished_work(
    token: Any, events: list[str], resumed: ReaderState
) -> None:
    one = after(*events, token=token)
    assert one.state is ReaderState.BACKOFF
    one.paused()
    assert one.state is resumed


def test_a_scan_is_good_for_one_opening() -> None:
    one = after("scanned", token=None)
    assert one.start is START
    one.opened(0.0)
    assert (one.start, one.seen) == (None, START.seen)
    one.moved("later")
    one.lost(LOST, 0.0)
    assert one.seen == (), "the next scan begins anew"
    one = after("scanned", "unavailable", token=None)
    assert one.start is None


def test_why_it_scans_is_known_until_the_feed_is_open_again() -> None:
    one = after("opened", "lost", "paused", "scanned", "unavailable", "paused")
    assert one.cause is LOST
    one.scanned(START)
    one.opened(0.0)
    assert one.cause is None


def test_more_documents_of_the_same_place_move_the_token_with_the_last() -> None:
    one = after("opened")
    one.delivered(None)
    assert one.token == "token"
    one.delivered("later")
    assert one.token == "later"


def test_failures_are_counted_from_zero_only_after_the_feed_was_open_for_a_while() -> None:
    one = after()
    for failures in (1, 2, 3):
        one.opened(100.0)
        one.unavailable(100.0 + HEALTHY_SECONDS)
        assert one.failures == failures
        one.paused()
    one.unavailable(1e6)
    assert one.failures == 4, "it was not open meanwhile"
    one.paused()
    one.opened(200.0)
    one.unavailable(201.0 + HEALTHY_SECONDS)
    assert one.failures == 1


def test_that_it_answers_again_is_news_once_and_only_after_a_failure() -> None:
    one = after("opened")
    assert not one.answered()
    one.unavailable(0.0)
    one.paused()
    one.opened(0.0)
    assert [one.answered(), one.answered()] == [True, False]


def test_a_mute_feed_is_mute_until_something_comes() -> None:
    one = after("opened", "stalled", "paused", "opened", "moved")
    assert one.is_mute
    one.delivered("later")
    assert not one.is_mute


class AnyCourse(RuleBasedStateMachine):
    """Whatever happens, in whatever order it can."""

    def __init__(self) -> None:
        super().__init__()
        self.one = ReaderMachine(None)
        self.now = 0.0
        self.tokens = 0
        # Events since the last opening, failure or scan.
        self.is_paused = True
        self.is_scanned = False

    def state(self, *states: ReaderState) -> bool:
        return self.one.state in states

    @precondition(lambda self: self.state(ReaderState.SCANNING))
    @rule()
    def scan(self) -> None:
        assert self.is_paused, "nothing is tried again without a pause"
        self.is_scanned = True
        self.one.scanned(ScanPass(Timestamp(int(self.now), 1)))

    @precondition(lambda self: self.state(ReaderState.OPENING))
    @rule()
    def open(self) -> None:
        assert self.is_paused
        assert self.is_scanned or self.one.token is not None, "it has to begin somewhere"
        assert (self.one.start is not None) == (self.one.token is None)
        self.is_paused = self.is_scanned = False
        self.one.opened(self.now)

    @precondition(lambda self: self.one.reads)
    @rule(has_token=st.booleans())
    def deliver(self, has_token: bool) -> None:
        self.tokens += 1
        before = self.one.token
        self.one.delivered(self.tokens if has_token else None)
        assert self.one.token == (self.tokens if has_token else before)

    @precondition(lambda self: self.one.reads)
    @rule()
    def be_quiet(self) -> None:
        self.tokens += 1
        self.one.moved(self.tokens)

    @precondition(lambda self: self.state(ReaderState.OPENING) or self.one.reads)
    @rule()
    def lose_position(self) -> None:
        self.is_paused = self.is_scanned = False
        self.one.lost(PositionLost("token refused"), self.now)

    @precondition(lambda self: not self.state(ReaderState.BACKOFF))
    @rule()
    def fail(self) -> None:
        before = self.one.token
        self.is_paused = self.is_scanned = False
        self.one.unavailable(self.now)
        assert self.one.token == before, "an outage costs no position"

    @precondition(lambda self: self.one.reads)
    @rule()
    def stall(self) -> None:
        self.is_paused = self.is_scanned = False
        self.one.stalled(self.now)

    @precondition(lambda self: self.state(ReaderState.BACKOFF))
    @rule()
    def pause(self) -> None:
        assert self.one.failures > 0
        self.is_paused = True
        self.one.paused()

    @rule(seconds=st.floats(0.0, 2 * HEALTHY_SECONDS))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def it_reads_nothing_without_a_position(self) -> None:
        assert self.one.start is None or self.state(ReaderState.OPENING)


TestAnyCourse = AnyCourse.TestCase
TestAnyCourse.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
