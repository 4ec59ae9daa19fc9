"""Timers as documents: the permanent name of a firing, and its event. Also the next time of a daily
timer, with clock changes and skipped days.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linedesk.store.client import aware_options
from linedesk.store.documents import Document
from linedesk.store.timers import EPOCH, Daily, due_event_id, make_timer_document

DUE = datetime(2026, 11, 21, 7, 30, 0, 5_000, tzinfo=UTC)
NOW = datetime(2026, 11, 21, 7, 30, 0, 17_000, tzinfo=UTC)


def a_row(**fields: Any) -> Document:
    row = {
        "_id": "main/U1/medicine",
        "channel": "main",
        "key": "U1",
        "name": "medicine",
        "n": 7,
        "runAt": DUE,
        "every": None,
        "data": {"asked": 2},
        "source": {"type": "user", "userId": "U1"},
        "setBy": "E1",
    }
    return {**row, **fields}


def test_a_timer_event_is_named_by_its_row_its_number_and_its_time() -> None:
    assert due_event_id(a_row()) == "timer:main/U1/medicine:7:2026-11-21T07:30:00.005Z"
    others = [a_row(n=8), a_row(runAt=DUE + timedelta(milliseconds=1)), a_row(_id="main/U2/x")]
    assert len({due_event_id(row) for row in [a_row(), *others]}) == 4


@given(st.integers(min_value=0, max_value=4 * 10**12))
def test_a_timer_event_has_its_time_to_the_millisecond(milliseconds: int) -> None:
    row = a_row(runAt=EPOCH + timedelta(milliseconds=milliseconds))
    read_back = bson.decode(bson.encode(row), aware_options())
    assert make_timer_document(read_back, accept_time=NOW)["event"]["timestamp"] == milliseconds
    assert due_event_id(read_back) == due_event_id(row)


# With and without summer time, by half an hour (Lord Howe), at midnight (Cairo, Havana), into the
# next day (Nuuk), with a day left out (Apia), and with odd hours (Kathmandu, Chatham).
ZONES = (
    "Asia/Tokyo",
    "UTC",
    "Europe/London",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "America/Havana",
    "America/Nuuk",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "Pacific/Chatham",
    "Africa/Casablanca",
)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def rings(at: str, tz: str, moment: datetime, count: int) -> list[str]:
    """The next times after the moment, in local time of the zone."""
    daily, seen = Daily.parse(at, tz), []
    for _ in range(count):
        moment = daily.after(moment)
        seen.append(moment.astimezone(daily.zone).isoformat(sep=" ", timespec="minutes"))
    return seen


@pytest.mark.parametrize(
    ("at", "tz", "moment", "seen"),
    [
        pytest.param(
            *("02:30", "Europe/Berlin", "2026-03-27T12:00"),
            ["2026-03-28 02:30+01:00", "2026-03-29 03:30+02:00", "2026-03-30 02:30+02:00"],
            id="skipped in spring",
        ),
        pytest.param(
            *("02:30", "Europe/Berlin", "2026-10-24T12:00"),
            ["2026-10-25 02:30+02:00", "2026-10-26 02:30+01:00", "2026-10-27 02:30+01:00"],
            id="twice in autumn",
        ),
        pytest.param(
            # Between the two: it does not fire the second time.
            *("02:30", "Europe/Berlin", "2026-10-25T01:00"),
            ["2026-10-26 02:30+01:00"],
            id="set between the two",
        ),
        pytest.param(
            *("02:15", "Australia/Lord_Howe", "2026-10-02T20:00"),
            ["2026-10-04 02:45+11:00", "2026-10-05 02:15+11:00"],
            id="skipped by half an hour",
        ),
        pytest.param(
            *("00:30", "Africa/Cairo", "2026-04-22T12:00"),
            ["2026-04-23 00:30+02:00", "2026-04-24 01:30+03:00", "2026-04-25 00:30+03:00"],
            id="midnight skipped",
        ),
        pytest.param(
            *("23:30", "America/Nuuk", "2024-03-29T12:00"),
            ["2024-03-29 23:30-02:00", "2024-03-31 00:30-01:00", "2024-03-31 23:30-01:00"],
            id="skipped into the next day",
        ),
        pytest.param(
            *("07:30", "Pacific/Apia", "2011-12-28T12:00"),
            ["2011-12-28 07:30-10:00", "2011-12-29 07:30-10:00", "2011-12-31 07:30+14:00"],
            id="a day left out",
        ),
    ],
)
def test_it_fires_once_a_day_however_the_clocks_are_set(
    at: str, tz: str, moment: str, seen: list[str]
) -> None:
    assert rings(at, tz, utc(moment), len(seen)) == seen


dailies = st.builds(
    lambda hour, minute, tz: Daily(time(hour, minute), ZoneInfo(tz)),
    st.integers(0, 23),
    st.integers(0, 59),
    st.sampled_from(ZONES),
)
moments = st.datetimes(datetime(2005, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC))


@given(dailies, moments, st.floats(0, 1))
def test_the_next_time_is_later_and_there_is_none_in_between(
    daily: Daily, moment: datetime, share: float
) -> None:
    following = daily.after(moment)
    assert following > moment
    between = moment + (following - moment) * share
    assert daily.after(min(between, following - timedelta(microseconds=1))) == following


LAST_BEFORE_SAMOAS_LEAP = date(2011, 12, 29)


def day_of(daily: Daily, ring: datetime) -> date:
    """The day of a firing: the day before, if its time was skipped over midnight."""
    return ring.date() - timedelta(days=ring.time() < daily.at)


@given(dailies, moments)
def test_each_day_has_one_time_or_one_as_long_after_midnight(
    daily: Daily, moment: datetime
) -> None:
    seen = [daily.after(moment)]
    while len(seen) < 5:
        seen.append(daily.after(seen[-1]))
    here = [one.astimezone(daily.zone) for one in seen]
    for ring in here:
        skipped = ring.replace(hour=daily.at.hour, minute=daily.at.minute, fold=0)
        exists = skipped.astimezone(UTC).astimezone(daily.zone).time() == daily.at
        # Of a repeated time it is the first; a skipped one may be a day's last.
        assert (ring.time() == daily.at and ring.fold == 0) or not exists or ring.hour == 0
    for one, other in pairwise(day_of(daily, ring) for ring in here):
        assert other - one == timedelta(days=1) or one == LAST_BEFORE_SAMOAS_LEAP


@pytest.mark.parametrize(
    "every",
    [
        {},
        {"at": "07:30"},
        {"tz": "Asia/Tokyo"},
        *({"at": at, "tz": "Asia/Tokyo"} for at in ("24:00", "7:60", "7", "07:30:00", "", "７:30")),
        *({"at": "07:30", "tz": tz} for tz in ("Asia/Edo", "Asia", "", "../UTC", "/UTC", 9, None)),
    ],
)
def test_what_is_no_time_of_day_in_a_zone_is_refused(every: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="not a time"):
        Daily.from_document(every)
