"""Waits between tries."""

from __future__ import annotations

import itertools

from linedesk.runtime.backoff import growing_seconds, pause_seconds


def test_growing_waits_grow_up_to_their_limit() -> None:
    for _ in range(100):
        waits = [growing_seconds(n, first=1.0, most=30.0) for n in range(1, 6)]
        assert all(later > earlier for earlier, later in itertools.pairwise(waits))
    assert all(growing_seconds(50, first=1.0, most=30.0) <= 30.0 for _ in range(100))


def test_pauses_spread_from_nothing_to_a_limit_that_doubles() -> None:
    for failures, limit in ((1, 0.1), (2, 0.2), (5, 1.6), (60, 5.0)):
        waits = [pause_seconds(failures) for _ in range(300)]
        assert limit * 0.8 < max(waits) <= limit
        assert min(waits) < limit * 0.2
