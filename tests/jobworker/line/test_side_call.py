"""The states of a call beside the sends."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from jobworker.line import side_call
from jobworker.line.side_call import AGAIN, CLOSE, DUE, OVER, PUT_OFF, SideCall, SideState
from tests.jobworker.line.test_gate import Hand
from tests.jobworker.line.test_gate import hand as hand

RESTING, WAITING, CALLING, LAST_CALL, ENDED = SideState
TURN = side_call.TURN


@pytest.mark.parametrize(
    ("state", "event", "then"),
    [
        (RESTING, DUE, WAITING),
        (RESTING, CLOSE, ENDED),
        *((RESTING, event, RESTING) for event in (TURN, PUT_OFF, AGAIN, OVER)),
        (WAITING, TURN, CALLING),
        (WAITING, PUT_OFF, RESTING),
        (WAITING, CLOSE, ENDED),
        *((WAITING, event, WAITING) for event in (DUE, AGAIN, OVER)),
        (CALLING, AGAIN, RESTING),
        (CALLING, OVER, ENDED),
        (CALLING, CLOSE, LAST_CALL),
        *((CALLING, event, CALLING) for event in (DUE, TURN, PUT_OFF)),
        (LAST_CALL, OVER, ENDED),
        *((LAST_CALL, event, LAST_CALL) for event in (DUE, TURN, PUT_OFF, AGAIN, CLOSE)),
        *((ENDED, event, ENDED) for event in (DUE, TURN, PUT_OFF, AGAIN, OVER, CLOSE)),
    ],
)
def test_the_table_of_states(
    hand: Hand, state: SideState, event: Mapping[SideState, SideState], then: SideState
) -> None:
    call = SideCall(hand.line(), "/v2/bot/info")
    call._state = state
    assert call._go(event) is (then is not state)
    assert call._state is then
