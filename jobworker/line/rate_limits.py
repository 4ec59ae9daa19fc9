"""What LINE's rate limit holds back: the endpoints that answered 429, each for its own time.

LINE counts per channel and endpoint, whoever the call is for (reference, "Rate limits").
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from jobworker.errors import LineError
from jobworker.line.answer import LineAnswer, is_endpoint_limit
from linedesk.runtime.backoff import growing_seconds

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0


class RateLimits:
    """Endpoints by their path template. Any thread may ask."""

    def __init__(
        self,
        *,
        first_pause_seconds: float = FIRST_PAUSE_SECONDS,
        longest_pause_seconds: float = LONGEST_PAUSE_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._first_pause_seconds = first_pause_seconds
        self._longest_pause_seconds = longest_pause_seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        # All below under _lock.
        self._limited: dict[str, int] = {}
        self._until: dict[str, float] = {}

    def seconds(self, endpoint: str) -> float:
        """How long the endpoint must not be called; 0 where it may be."""
        with self._lock:
            return max(0.0, self._until.get(endpoint, 0.0) - self._monotonic())

    def note(self, endpoint: str, answer: LineAnswer | LineError) -> None:
        """What a call of the endpoint came to: the limit is used up, or it took a call again.

        It is held back as long as LINE says, else longer with each time in a row.
        """
        if not isinstance(answer, LineAnswer):
            return
        if is_endpoint_limit(answer):
            self._hold(endpoint, answer.retry_after)
            return
        with self._lock:
            self._limited.pop(endpoint, None)

    def _hold(self, endpoint: str, retry_after: float | None) -> None:
        with self._lock:
            times = self._limited[endpoint] = self._limited.get(endpoint, 0) + 1
            # A Retry-After of 0 must not make a hot loop of it.
            seconds = retry_after or growing_seconds(
                times, first=self._first_pause_seconds, most=self._longest_pause_seconds
            )
            self._until[endpoint] = self._monotonic() + seconds
        log.warning(
            "rate limit, endpoint held back endpoint=%s times=%d seconds=%.1f",
            endpoint,
            times,
            seconds,
        )
