"""Timers as documents: the permanent name of a firing, and its event. Also the next time of a
repeating timer, with clock changes and skipped days.
"""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import bson
import pytest
from dateutil.rrule import rrulestr
from hypothesis import given
from hypothesis import strategies as st

from linedesk.store.client import aware_options
from linedesk.store.documents import Document
from linedesk.store.recurrence import WEEKDAYS, Recurrence
from linedesk.store.timers import EPOCH, due_event_id, make_timer_document

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
    rule, seen = Recurrence.parse(at, tz, now=moment), []
    while len(seen) < count and (following := rule.after(moment)):
        moment = following
        seen.append(moment.astimezone(rule.zone).isoformat(sep=" ", timespec="minutes"))
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


moments = st.datetimes(datetime(2005, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC))


@pytest.mark.parametrize(
    "every",
    [
        {},
        {"at": "07:30"},
        {"tz": "Asia/Tokyo"},
        *({"at": at, "tz": "Asia/Tokyo"} for at in ("24:00", "7:60", "7", "07:30:00", "", "月")),
        *({"at": "07:30", "tz": tz} for tz in ("Asia/Edo", "Asia", "", "../UTC", "/UTC", 9, None)),
    ],
)
def test_what_is_no_time_of_day_in_a_zone_is_refused(every: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="not a time"):
        Recurrence.from_document(every)


SUNDAY = "2026-11-29T03:10"  # 12:10 in Tokyo


@pytest.mark.parametrize(
    ("at", "seen"),
    [
        ("毎日 7:30", ["11-30 07:30", "12-01 07:30"]),
        ("月 12:00", ["11-30 12:00", "12-07 12:00"]),
        ("毎週火曜日と金曜日１２：００", ["12-01 12:00", "12-04 12:00"]),
        ("月・水、土 12:00", ["11-30 12:00", "12-02 12:00", "12-05 12:00"]),
        ("土日 9:00", ["12-05 09:00", "12-06 09:00", "12-12 09:00"]),
        ("平日 7:30 until 2026-12-01", ["11-30 07:30", "12-01 07:30"]),
        ("毎月1日 9:00", ["12-01 09:00", "01-01 09:00"]),
        ("毎月31日・末日 9:00", ["11-30 09:00", "12-31 09:00", "01-31 09:00", "02-28 09:00"]),
        ("0 12 * * mon", ["11-30 12:00", "12-07 12:00"]),
        ("*/20 9-10 1 jan,dec *", ["12-01 09:00", "12-01 09:20", "12-01 09:40", "12-01 10:00"]),
        ("0 0 1,15 * fri", ["12-01 00:00", "12-04 00:00", "12-11 00:00", "12-15 00:00"]),
        ("0 0 * * sat-mon", ["11-30 00:00", "12-05 00:00", "12-06 00:00"]),
        # Several times of one night become one; the end of the quiet hours is not quiet.
        ("0 */3 * * * quiet 21:00-7:30", ["11-29 15:00", "11-29 18:00", "11-30 07:30"]),
        ("freq=daily;count=2", ["11-29 12:11", "11-30 12:11"]),
        ("RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO;BYHOUR=9;BYMINUTE=0", ["12-07 09:00"]),
        ("FREQ=DAILY;BYHOUR=9;BYMINUTE=0;UNTIL=20261201", ["11-30 09:00", "12-01 09:00"]),
        ("FREQ=DAILY;BYHOUR=9;BYMINUTE=0;UNTIL=20261130T000000Z", ["11-30 09:00"]),
        ("DTSTART:20200101T090000\nRRULE:FREQ=MONTHLY;BYDAY=-1FR", ["12-25 09:00", "01-29 09:00"]),
    ],
)
def test_a_rule_in_words_fires_when_it_says(at: str, seen: list[str]) -> None:
    ends = any(word in at for word in ("until", "UNTIL", "count"))
    found = rings(at, "Asia/Tokyo", utc(SUNDAY), len(seen) + ends)
    assert [one[5:16] for one in found] == seen
    rule = Recurrence.parse(at, "Asia/Tokyo", now=utc(SUNDAY))
    assert Recurrence.from_document(rule.as_document()) == rule
    assert rule.has_end == ends


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("every monday", "valid are a time of day"),
        ("毎月32日 9:00", "1 to 31"),
        ("61 * * * *", "minute: '61' is not in 0 to 59"),
        ("0 0 * * 9-1", "day of the week"),
        ("0 0 * * */0", "day of the week"),
        ("FREQ=HOURLY", "a cron line fires more often"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL is 1 or more"),
        ("FREQ=DAILY;BYDAY=XX", "BYDAY"),
        ("DTSTART;TZID=Asia/Tokyo:20270101T090000 RRULE:FREQ=DAILY", "in local time"),
        ("7:30 until 2027-02-30", "day"),
        ("7:30 quiet 7:00-7:00", "never end"),
        ("7:30" + " " * 600, "characters"),
    ],
)
def test_what_is_no_rule_is_refused_in_plain_words(at: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Recurrence.parse(at, "Asia/Tokyo", now=NOW)


@pytest.mark.parametrize(
    ("at", "moment", "seen"),
    [
        # An hour that is skipped falls together with the next one; one that comes twice counts
        # once.
        ("0 * * * *", "2026-03-29T00:30", ["03:00+02:00", "04:00+02:00"]),
        ("0 * * * *", "2026-10-24T23:30", ["02:00+02:00", "03:00+01:00"]),
        # A skipped time moves behind a regular one.
        ("45 2 * * * quiet 12:00-13:00", "2026-03-29T00:30", ["03:45+02:00"]),
        ("15,45 2,3 * * *", "2026-03-29T00:30", ["03:15+02:00", "03:45+02:00", "02:15+02:00"]),
        ("30 1 * * * quiet 1:00-2:30", "2026-10-24T22:00", ["02:30+01:00"]),
        ("FREQ=DAILY;COUNT=2", "2026-10-25T01:30", ["03:31+01:00", "03:31+01:00"]),
        ("30 1 * * * quiet 1:00-2:30", "2026-03-28T23:00", ["03:30+02:00"]),
    ],
)
def test_rules_when_the_clocks_are_set(at: str, moment: str, seen: list[str]) -> None:
    found = rings(at, "Europe/Berlin", utc(moment), len(seen))
    assert [one[11:] for one in found] == seen


codes = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
weekdays = st.sets(st.integers(0, 6), min_size=1)


def by_dateutil(rule: str, tz: str, moment: datetime, count: int) -> list[datetime]:
    """The times of a rule, each as a moment: of a time that comes twice the first one."""
    zone = ZoneInfo(tz)
    start = moment.astimezone(zone).replace(tzinfo=None) - timedelta(days=2)
    clocks = rrulestr(rule, dtstart=start.replace(hour=0, minute=0, second=0, microsecond=0))
    found: set[datetime] = set()
    for clock in clocks:
        found.add(clock.replace(tzinfo=zone).astimezone(UTC))
        # A skipped time may come behind the next ones.
        if len(after := sorted(one for one in found if one > moment)) > count + 50:
            return after[:count]
    raise AssertionError("it has an end")


@given(weekdays, st.sets(st.integers(1, 28)), st.integers(0, 23), moments, st.sampled_from(ZONES))
def test_days_and_cron_lines_fire_as_the_same_rule_of_dateutil(
    days: set[int], of_month: set[int], hour: int, moment: datetime, tz: str
) -> None:
    times = f"BYHOUR={hour};BYMINUTE=10,50;BYSECOND=0"
    by_day = f"FREQ=DAILY;BYDAY={','.join(codes[one] for one in days)};{times}"
    cron_days = ",".join(str((one + 1) % 7) for one in days)
    forms = {f"10,50 {hour} * * {cron_days}": by_day}
    if of_month:
        listed = ",".join(map(str, of_month))
        forms[f"10,50 {hour} {listed} * *"] = f"FREQ=DAILY;BYMONTHDAY={listed};{times}"
        whole = "・".join(f"{one}日" for one in of_month)
        once = f"FREQ=DAILY;BYMONTHDAY={listed};BYHOUR={hour};BYMINUTE=10;BYSECOND=0"
        forms[f"毎月{whole} {hour}:10"] = once
    words = "".join(WEEKDAYS[one] for one in sorted(days))
    forms[f"{words} {hour}:50"] = by_day.replace("10,50", "50")
    forms[f"{hour}:10"] = f"FREQ=DAILY;BYHOUR={hour};BYMINUTE=10;BYSECOND=0"
    for form, rule in forms.items():
        one, seen, at = Recurrence.parse(form, tz), list[datetime](), moment
        while len(seen) < 4:
            at = one.after(at) or moment
            seen.append(at)
        assert seen == by_dateutil(rule, tz, moment, 4), form


@given(
    st.sampled_from(("DAILY", "WEEKLY", "MONTHLY", "YEARLY")),
    st.integers(1, 5),
    st.datetimes(datetime(1990, 1, 1), datetime(2030, 1, 1)),
    moments,
)
def test_a_rule_that_began_long_ago_fires_as_that_of_dateutil(
    freq: str, interval: int, start: datetime, moment: datetime
) -> None:
    """It does not walk through all the years."""
    start, told = start.replace(microsecond=0), f"FREQ={freq};INTERVAL={interval}"
    one = Recurrence.parse(f"DTSTART:{start:%Y%m%dT%H%M%S} RRULE:{told}", "UTC")
    expected = rrulestr(told, dtstart=start).after(moment.replace(tzinfo=None))
    assert one.after(moment) == expected.replace(tzinfo=UTC)
