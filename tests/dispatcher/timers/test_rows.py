"""The result of a due row."""

import errno
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument

from dispatcher.timer_rows import BrokenRow, FiredTimer, fired_timer, regular_at
from linedesk.store import recurrence
from linedesk.store.client import AS_STORED
from linedesk.store.limits import MOST_DOCUMENT_BYTES
from tests.dispatcher.timers.conftest import DAILY, NOON, a_row


def stored(row: Any) -> RawBSONDocument:
    return RawBSONDocument(bson.encode(row), AS_STORED)


def ring(row: Any, now: datetime = NOON) -> FiredTimer:
    return fired_timer(stored(row), now=now, accept_time=now)


def test_a_timer_becomes_an_event_of_its_conversation_and_ends() -> None:
    one = ring(a_row())
    document = bson.decode(one.document.raw, AS_STORED.with_options(document_class=dict))
    assert document["eventId"] == one.event_id == "timer:main/U1/tea:1:2026-04-19T12:00:00.000Z"
    assert (document["channel"], document["key"]) == ("main", "U1")
    assert document["event"]["timer"]["data"] == {"cups": 2}
    assert one.as_read == {"_id": "main/U1/tea", "n": 1, "runAt": NOON}
    assert one.next_at is None


@pytest.mark.parametrize("days_missed", [0, 1, 30])
def test_a_daily_timer_fires_once_for_all_missed_times(days_missed: int) -> None:
    now = NOON + timedelta(days=days_missed, minutes=5)
    one = ring(a_row(every=DAILY), now)
    assert one.run_at == NOON
    assert one.next_at == NOON + timedelta(days=days_missed + 1)


def test_in_quiet_hours_a_missed_timer_waits_for_their_end() -> None:
    row = a_row(every=DAILY | {"at": "21:00 quiet 22:00-7:00"})
    late = ring(row, NOON + timedelta(hours=6))
    assert late.document is None
    assert late.next_at == NOON + timedelta(hours=10)
    morning = ring(row | {"runAt": late.next_at}, late.next_at)
    assert morning.document is not None
    assert morning.next_at == NOON + timedelta(days=1)


@pytest.mark.parametrize(
    "at",
    [
        "21:00 until 2026-04-19",
        # dateutil raises an error for these.
        "DTSTART:99990101T000000 RRULE:FREQ=DAILY",
        "DTSTART:20260101T000000 RRULE:FREQ=YEARLY;BYDAY=60MO",
    ],
)
def test_a_rule_without_a_further_time_ends_its_row(at: str) -> None:
    assert ring(a_row(every=DAILY | {"at": at})).next_at is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"_id": 7}, "_id is no text"),
        ({"n": True}, "n is no whole number"),
        ({"runAt": [NOON]}, "runAt is no date"),
        ({"data": None}, "data is no object"),
        ({"data": {"when": DatetimeMS(-(10**15))}}, "a date or text in it cannot be read"),
        ({"every": {"at": "25:00", "tz": "Asia/Tokyo"}}, "every is not a time"),
        ({"every": {"at": "07:30", "tz": "Asia"}}, "every is not a time zone"),
    ],
)
def test_a_row_that_can_never_fire_has_a_reason(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(BrokenRow, match=words):
        ring(a_row() | changed)


def test_a_row_that_makes_too_large_a_document_is_broken() -> None:
    with pytest.raises(BrokenRow, match="too large"):
        ring(a_row(data={"text": "x" * MOST_DOCUMENT_BYTES}))


def test_a_daily_row_fires_at_its_next_time_but_at_none_that_has_fired() -> None:
    early = NOON - timedelta(hours=6)
    assert regular_at(stored(a_row(every=DAILY)), now=early) == NOON
    assert regular_at(stored(a_row(every=DAILY, rang=NOON)), now=early) == NOON + timedelta(days=1)
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    assert regular_at(stored(a_row(every=DAILY, rang=long_ago)), now=early) == NOON


def test_a_row_waits_while_its_zone_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as with too many open files: it is sound, and is not set aside for good."""

    def no_file(name: str) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(recurrence, "ZoneInfo", no_file)
    with pytest.raises(OSError, match="Too many open files"):
        ring(a_row(every=DAILY))
