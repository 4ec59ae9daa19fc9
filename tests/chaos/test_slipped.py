"""Which overlaps a frozen dispatcher excuses."""

import pytest

from linesim.judge.conduct import overlaps
from linesim.model.calls import Call
from tests.chaos.slipped import Freeze, without_slipped

FREEZE = Freeze(began=100.0, ended=107.0)
OLD, NEW, LATER = 1, 2, 3


def a_call(number: int, started: float, finished: float, connection: int | None) -> Call:
    return Call(
        number=number,
        started=started,
        at=started,
        endpoint="push",
        method="POST",
        path="/",
        request_id="",
        status=200,
        connection=connection,
        finished=finished,
    )


def left(*calls: tuple[float, float, int | None], freezes: tuple[Freeze, ...] = (FREEZE,)) -> int:
    """How many overlaps remain of calls that started, finished, and came by a connection."""
    made = [a_call(n, *one) for n, one in enumerate(sorted(calls, key=lambda one: one[0]), 1)]
    return len(without_slipped(list(overlaps(made)), made, freezes))


BEFORE = (99.0, 99.01, OLD)
CAUGHT = (99.99, 107.02, OLD)
SUCCESSORS = ((104.0, 104.01, NEW), (104.1, 104.2, NEW), (107.01, 107.015, NEW))
TAKEN_OVER = ((104.0, 104.01, NEW),)
AT_THE_THAW = (*TAKEN_OVER, (106.9, 107.2, NEW), (107.05, 107.3, OLD))
ON_A_NEW_ONE = (*TAKEN_OVER, (106.9, 107.2, NEW), (107.05, 107.3, LATER))


@pytest.mark.parametrize(
    "calls", [(BEFORE, CAUGHT, *SUCCESSORS), (BEFORE, *AT_THE_THAW), (BEFORE, *ON_A_NEW_ONE)]
)
def test_one_call_of_a_frozen_process_may_slip_out(
    calls: tuple[tuple[float, float, int | None], ...],
) -> None:
    assert left(*calls) == 0
    assert left(*calls, freezes=()) > 0


@pytest.mark.parametrize(
    ("calls", "count"),
    [
        # A second one of the same process.
        ((BEFORE, *AT_THE_THAW, (107.1, 107.4, OLD)), 1),
        # Two of two successors.
        ((*TAKEN_OVER, (104.5, 104.6, LATER), (106.9, 107.2, NEW), (107.05, 107.3, LATER)), 1),
        # Of an unknown process.
        (((99.99, 107.02, None), (104.0, 104.01, NEW)), 1),
    ],
)
def test_nothing_else_may_overlap(
    calls: tuple[tuple[float, float, int | None], ...], count: int
) -> None:
    assert left(*calls) == count
