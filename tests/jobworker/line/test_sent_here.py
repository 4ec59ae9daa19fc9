"""The sends of today and of this month: both are Japan's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from jobworker.line.call_log import SentHere
from linedesk.operate.overview import Sent, sent_in
from linedesk.store.limits import midnight, sent_id

# Five past midnight in Japan, on the 30th.
NOW = datetime(2026, 11, 29, 15, 5, tzinfo=UTC)
YESTERDAY = NOW - timedelta(minutes=6)


def of(*processes: SentHere, now: datetime) -> Sent:
    return sent_in(
        {"_id": sent_id(now), **{str(n): one.part(now) for n, one in enumerate(processes)}}
    )


def test_the_day_restarts_at_midnight_in_japan_and_the_month_goes_on() -> None:
    here = SentHere()
    here.add("pushes", 3, YESTERDAY)
    assert here.part(YESTERDAY) == {"day": 29, "today": 3, "pushes": 3}
    here.add("groups", 300, NOW)
    here.add("replies", 1, NOW)
    assert here.part(NOW) == {"day": 30, "today": 300, "pushes": 3, "groups": 300, "replies": 1}
    assert of(here, now=NOW) == Sent(replies=1, pushes=3, groups=300)
    assert midnight(NOW) == NOW - timedelta(minutes=5)


def test_the_month_restarts_in_japan() -> None:
    here, later = SentHere(), NOW + timedelta(days=1)
    here.add("pushes", 3, NOW)
    assert (sent_id(NOW), sent_id(later)) == ("sent/2026-11", "sent/2026-12")
    assert here.part(later) == {}
    here.add("replies", 1, later)
    assert of(here, now=later) == Sent(replies=1)


def test_processes_are_added_up() -> None:
    one, other = SentHere(), SentHere()
    one.add("pushes", 4, YESTERDAY)
    other.add("pushes", 1, NOW)
    assert of(one, other, now=NOW) == Sent(pushes=5)
