"""Pauses before a retry."""

from __future__ import annotations

import random


def pause_seconds(failures: int, *, first: float = 0.1, most: float = 5.0) -> float:
    """Seconds to wait after `failures` in a row (1 and up): exponential with full jitter.

    Uniformly distributed between 0 and `first` doubled with each failure, never above `most`.
    """
    return random.uniform(0.0, _longest(failures, first, most))


def growing_seconds(failures: int, *, first: float, most: float) -> float:
    """Seconds to wait after `failures` in a row (1 and up): each longer than the last.

    `first` doubled with each failure, up to `most`, less a fifth of it at random.
    """
    return _longest(failures, first, most) * random.uniform(0.8, 1.0)


def _longest(failures: int, first: float, most: float) -> float:
    # A float has no room for the doublings of a long outage.
    return min(most, first * 2.0 ** min(failures - 1, 100))
