"""How long to wait before trying again: exponential with full jitter, by tenacity's arithmetic."""

from __future__ import annotations

from tenacity import RetryCallState, wait_random_exponential


def pause_seconds(failures: int, *, first: float = 0.1, most: float = 5.0) -> float:
    """Seconds to wait after `failures` in a row (1 and up).

    Drawn evenly between 0 and `first` doubled with each failure, never above `most`.
    """
    state = RetryCallState(None, None, (), {})  # type: ignore[arg-type]
    state.attempt_number = failures
    return float(wait_random_exponential(multiplier=first, max=most)(state))
