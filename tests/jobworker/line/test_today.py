"""How many messages LINE has counted today: a day is Japan's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from jobworker.line.today import Today, midnight

# Five past midnight in Japan.
NOW = datetime(2026, 11, 22, 15, 5, tzinfo=UTC)


def test_the_count_restarts_at_midnight_in_japan() -> None:
    today = Today()
    assert today.messages(NOW) == 0
    today.add(3, NOW - timedelta(minutes=6))
    assert today.messages(NOW - timedelta(minutes=6)) == 3
    assert today.messages(NOW) == 0
    today.add(1, NOW)
    today.add(300, NOW + timedelta(hours=23))
    assert today.messages(NOW + timedelta(hours=23)) == 301
    assert midnight(NOW) == NOW - timedelta(minutes=5)


def test_a_call_of_yesterday_that_is_reported_late_does_not_count() -> None:
    today = Today()
    today.add(2, NOW)
    today.add(5, NOW - timedelta(minutes=6))
    assert today.messages(NOW) == 2
