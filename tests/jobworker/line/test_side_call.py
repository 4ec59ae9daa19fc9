"""A call beside the sends, and what its end or an earlier `close` leaves of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobworker.errors import LineError
from jobworker.line.answer import LineAnswer
from jobworker.line.side_call import SideCall
from tests.jobworker.line.test_gate import Hand
from tests.jobworker.line.test_gate import hand as hand


class Counted(SideCall):
    """It is called every ten seconds."""

    def __init__(self, hand: Hand) -> None:
        super().__init__(hand.line(), "/v2/bot/info", call_seconds=0.01)
        self.calls = 0
        self.during: Callable[[], object] = lambda: None

    def request(self) -> LineAnswer:
        self.calls += 1
        self.during()
        return LineAnswer(200)

    def answered(self, answer: LineAnswer | LineError) -> float:
        return 10.0


@pytest.fixture
def call(hand: Hand) -> Counted:
    return Counted(hand)


def test_it_is_called_again_after_each_answer(hand: Hand, call: Counted) -> None:
    call.due()
    hand.advance(25)
    assert call.calls == 3


def test_a_second_begin_changes_nothing_while_it_waits(hand: Hand, call: Counted) -> None:
    call.due()
    call.due()
    hand.advance(5)
    assert call.calls == 1


def test_closed_before_its_begin_or_between_two_calls_it_is_not_called(
    hand: Hand, call: Counted
) -> None:
    call.due()
    hand.advance(5)
    assert (call.close(), call.close()) == (True, False)
    call.due()
    hand.advance(50)
    assert (call.calls, call.finish()) == (1, True)


def test_closed_while_it_waits_it_gives_its_place_back(hand: Hand, call: Counted) -> None:
    call.due()
    assert (call.close(), hand.gate.waiting) == (True, 0)
    hand.advance(50)
    assert (call.calls, call.finish()) == (0, True)


def test_a_call_under_way_ends_by_itself_and_is_the_last(hand: Hand, call: Counted) -> None:
    ended: list[bool] = []
    call.during = lambda: ended.extend((call.close(), call.close(), call.finish()))
    call.due()
    hand.advance(50)
    # During the call, `finish` waits in vain: the call is on its own thread here.
    assert (call.calls, ended, call.finish()) == (1, [True, False, False], True)


def test_settled_before_its_answer_is_dealt_with_it_is_the_last(hand: Hand, call: Counted) -> None:
    call.due()
    call.during = lambda: call.finish() or call.settle()
    hand.advance(50)
    assert (call.calls, call.finish()) == (1, True)
