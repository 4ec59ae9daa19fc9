"""The sends of today and of this month: both are Japan's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from jobworker.line.today import Sent, SentHere, day_of, midnight, sent_id, sent_in

# Five past midnight in Japan, on the 30th.
NOW = datetime(2026, 11, 29, 15, 5, tzinfo=UTC)
YESTERDAY = NOW - timedelta(minutes=6)


def of(*processes: SentHere, now: datetime, month: bool = False) -> Sent:
    document = {"_id": sent_id(now), **{str(n): one.part(now) for n, one in enumerate(processes)}}
    return sent_in(document, day=None if month else day_of(now))


def test_the_day_restarts_at_midnight_in_japan_and_the_month_goes_on() -> None:
    here = SentHere()
    here.add(Sent(pushes=3), YESTERDAY)
    assert of(here, now=YESTERDAY).pushes == 3
    assert of(here, now=NOW) == Sent()
    here.add(Sent(groups=300, unknown=1), NOW)
    assert of(here, now=NOW) == Sent(groups=300, unknown=1)
    assert of(here, now=NOW, month=True) == Sent(pushes=3, groups=300, unknown=1)
    assert midnight(NOW) == NOW - timedelta(minutes=5)


def test_the_month_restarts_in_japan() -> None:
    here, later = SentHere(), NOW + timedelta(days=1)
    here.add(Sent(pushes=3), NOW)
    assert (sent_id(NOW), sent_id(later)) == ("sent/2026-11", "sent/2026-12")
    assert here.part(later) == {}
    here.add(Sent(replies=1), later)
    assert of(here, now=later, month=True) == Sent(replies=1)
    # The last call of the old month is reported late.
    here.add(Sent(pushes=9), NOW)
    assert of(here, now=later, month=True) == Sent(replies=1)


def test_a_call_of_yesterday_that_is_reported_late_counts_for_the_month_only() -> None:
    here = SentHere()
    here.add(Sent(pushes=2), NOW)
    here.add(Sent(pushes=5), YESTERDAY)
    assert of(here, now=NOW).pushes == 2
    assert of(here, now=NOW, month=True).pushes == 7


def test_processes_are_added_up_by_their_latest_day() -> None:
    one, other = SentHere(), SentHere()
    one.add(Sent(pushes=4), YESTERDAY)
    other.add(Sent(pushes=1), NOW)
    assert of(one, other, now=NOW).pushes == 1
    assert of(one, other, now=NOW, month=True).pushes == 5
