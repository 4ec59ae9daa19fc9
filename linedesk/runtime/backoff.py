"""Pauses before a retry, by tenacity's arithmetic."""

from __future__ import annotations

import random

from tenacity import RetryCallState, wait_exponential, wait_random_exponential


def pause_seconds(failures: int, *, first: float = 0.1, most: float = 5.0) -> float:
    """Seconds to wait after `failures` in a row (1 and up): exponential with full jitter.

    Uniformly distributed between 0 and `first` doubled with each failure, never above `most`.
    """
    return float(wait_random_exponential(multiplier=first, max=most)(_after(failures)))


def growing_seconds(failures: int, *, first: float, most: float) -> float:
    """Seconds to wait after `failures` in a row (1 and up): each longer than the last.

    `first` doubled with each failure, up to `most`, less a fifth of it at random.
    """
    longest = float(wait_exponential(multiplier=first, max=most)(_after(failures)))
    return longest * random.uniform(0.8, 1.0)


def _after(failures: int) -> RetryCallState:
    state = RetryCallState(None, None, (), {})  # type: ignore[arg-type]
    state.attempt_number = failures
    return state
