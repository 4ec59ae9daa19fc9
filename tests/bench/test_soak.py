"""How the soak judges growth, and the answers it expects of its own bot."""

from __future__ import annotations

import random

import pytest

from bench.soak import RESTARTS, RESTARTS_UNTIL, expected, restarts_in, trend_of


def samples(*, start: float, per_hour: float, noise: float = 0.5) -> list[tuple[float, float]]:
    """An hour of samples, one each ten seconds."""
    chance = random.Random(1)
    return [
        (at, start + per_hour * at / 3600 + chance.uniform(-noise, noise))
        for at in range(0, 3600, 10)
    ]


def test_a_steady_figure_has_not_grown() -> None:
    trend = trend_of("dispatcher RSS MB", samples(start=90, per_hour=0))

    assert not trend.grew
    assert abs(trend.per_hour) < 0.5


def test_a_leak_has_grown_and_its_rate_is_known() -> None:
    trend = trend_of("dispatcher RSS MB", samples(start=90, per_hour=12))

    assert trend.grew
    assert trend.per_hour == pytest.approx(12, abs=0.5)


def test_a_figure_that_shrinks_has_not_grown() -> None:
    assert not trend_of("mongod's disk MB", samples(start=300, per_hour=-100)).grew


def test_a_few_points_far_off_change_nothing() -> None:
    points = samples(start=90, per_hour=0)
    points[-5:] = [(at, 900.0) for at, _ in points[-5:]]

    assert not trend_of("mongod RSS MB", points).grew


def test_growth_at_the_beginning_alone_is_warm_up() -> None:
    points = [(at, min(90.0, 50 + at / 10)) for at in range(0, 3600, 10)]

    assert not trend_of("frontdesk RSS MB", [(float(at), value) for at, value in points]).grew


def test_one_thread_a_minute_has_grown() -> None:
    points = [(float(at), float(20 + at // 60)) for at in range(0, 3600, 10)]

    assert trend_of("frontdesk threads", points).grew


def test_too_few_points_are_an_error() -> None:
    with pytest.raises(ValueError, match="too few"):
        trend_of("spool MB", [(0.0, 1.0)] * 7)


def test_restarts_end_before_growth_is_looked_for_and_meet_both_processes_both_ways() -> None:
    restarts = list(restarts_in(7200))

    assert len(restarts) == RESTARTS
    assert restarts[-1][0] <= 7200 * RESTARTS_UNTIL
    assert len({(place, number) for _, place, number in restarts}) == 4


@pytest.mark.parametrize(
    ("event", "texts"),
    [
        ({"type": "message", "message": {"text": "reply 1"}}, ["reply 1"]),
        ({"type": "message", "message": {"text": "both 2"}}, ["both 2", "both 2+"]),
        ({"type": "postback", "postback": {"data": "tap 3"}}, ["tap 3"]),
        ({"type": "follow", "webhookEventId": "E"}, ["welcome E"]),
        ({"type": "unfollow", "webhookEventId": "F"}, []),
    ],
)
def test_the_expected_answers_of_the_bot(event: dict[str, object], texts: list[str]) -> None:
    assert expected(event) == texts
