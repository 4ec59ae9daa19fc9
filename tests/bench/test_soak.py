"""How the soak judges growth, and the answers it expects of its own bot."""

from __future__ import annotations

import random

import pytest

from bench.soak import trend_of


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


def test_growth_at_the_beginning_alone_is_warm_up() -> None:
    points = [(at, min(90.0, 50 + at / 10)) for at in range(0, 3600, 10)]

    assert not trend_of("frontdesk RSS MB", [(float(at), value) for at, value in points]).grew
