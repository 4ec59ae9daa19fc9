"""The rules of the month: when pushes are closed and opened, the rest, and the next reading."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobworker.errors import OutcomeUnknown
from jobworker.line.answer import LineAnswer
from jobworker.line.month import Month, MonthlyQuota, MonthState, limit_in, used_in

# Half past nine in the evening in Japan, on the last day of a month.
NOW = datetime(2027, 1, 31, 12, 30, tzinfo=UTC)
NEXT_MONTH = NOW + timedelta(hours=2, minutes=30)
OPEN, REFUSED, ASKED, CLOSED = MonthState


def a_month(*acts: str, limit: int | None = 500) -> Month:
    """One to which these happened, by the words of the table in `Month`."""
    month = Month()
    for act in acts:
        does(month, act, limit=limit)
    return month


def does(month: Month, act: str, *, limit: int | None = 500) -> None:
    match act:
        case "refused":
            month.refused(NOW)
        case "begins":
            month.begin(NOW)
        case "room":
            month.told(limit, 499, NOW)
        case "none":
            month.told(500, 500, NOW)
        case "fails":
            month.failed(NOW)
        case "new month":
            month.quota(NEXT_MONTH)


WAYS = {
    OPEN: ["begins"],
    REFUSED: ["begins", "refused"],
    ASKED: ["refused", "begins"],
    CLOSED: ["refused", "begins", "none", "begins"],
}


@pytest.mark.parametrize(
    ("state", "act", "then"),
    [
        *((OPEN, act, OPEN) for act in ("begins", "room", "none", "fails", "new month")),
        (OPEN, "refused", REFUSED),
        *((REFUSED, act, REFUSED) for act in ("refused", "room", "none", "fails")),
        (REFUSED, "begins", ASKED),
        (REFUSED, "new month", OPEN),
        *((ASKED, act, ASKED) for act in ("refused", "begins")),
        (ASKED, "room", OPEN),
        (ASKED, "none", CLOSED),
        (ASKED, "fails", REFUSED),
        (ASKED, "new month", OPEN),
        *((CLOSED, act, CLOSED) for act in ("refused", "begins", "none", "fails")),
        (CLOSED, "room", OPEN),
        (CLOSED, "new month", OPEN),
    ],
)
def test_the_table_of_states(state: MonthState, act: str, then: MonthState) -> None:
    month = a_month(*WAYS[state])
    assert month.state is state
    does(month, act)
    assert month.state is then
    is_closed = then is CLOSED
    assert (month.closed_since is not None) is is_closed
    quota = month.quota(NEXT_MONTH if act == "new month" else NOW)
    assert quota.is_closed is is_closed
    assert quota.left == 0 or not is_closed


def test_sends_since_the_reading_are_counted_down() -> None:
    month = a_month()
    month.paid(7, NOW)
    month.begin(NOW)
    # LINE may have counted it already, or not: it counts until the next reading.
    month.paid(20, NOW)
    month.told(500, 100, NOW)
    assert month.quota(NOW) == MonthlyQuota(500, 120)
    month.paid(300, NOW)
    assert month.quota(NOW).left == 80
    month.paid(300, NOW)
    assert month.quota(NOW).left == 0
    month.begin(NOW)
    month.told(500, 430, NOW)
    assert month.quota(NOW).left == 70


def answer(told: Any) -> LineAnswer:
    return LineAnswer(200, json.dumps(told))


GARBAGE = [
    LineAnswer(500),
    LineAnswer(429, '{"message":"The API rate limit has been exceeded."}'),
    LineAnswer(200, "<html>"),
    LineAnswer(200, ""),
    LineAnswer(200, "[" * 200_000),
    OutcomeUnknown("gone"),
    *map(answer, ([], None, {}, {"type": "limited"}, {"type": "many", "value": 5})),
    *(answer({"type": "limited", "value": one, "totalUsage": one}) for one in ("5", True, 1.5, -1)),
]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_anything_else_is_no_figure(garbage: Any) -> None:
    for reads in (limit_in, used_in):
        with pytest.raises(ValueError, match=r"."):
            reads(garbage)
