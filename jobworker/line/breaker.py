"""The circuit breaker of a channel: no calls while LINE fails or refuses the access token.

The gate reports every call's end to it and asks it how long to make no calls. After a pause the
gate serves one entry, the most urgent: that call is the probe, and its end decides. Calls that
began before the end of a pause decide nothing about it, so simultaneous calls that fail together
count as one failure.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from enum import Enum

from jobworker.line.answer import is_no_verdict
from linedesk.runtime.backoff import growing_seconds

log = logging.getLogger(__name__)

# In a row, and of at least two conversations: a message on which LINE always fails must not stop
# other conversations.
FAILURES_TO_OPEN = 5
# The pause before the first probe; it grows with each further one.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
# The pause while LINE refuses the access token.
UNAUTHORIZED_PAUSE_SECONDS = 60.0


class BreakerState(Enum):
    """Whether LINE is called."""

    CLOSED = "closed"
    """All calls are made."""
    OPEN = "open"
    """LINE failed repeatedly: no calls until the pause is over; the next call is the probe."""
    UNAUTHORIZED = "unauthorized"
    """LINE refuses the access token: only one probe a minute."""


class Breaker:
    """One for each gate, whose `lock` it changes under. Any thread may ask without the lock.

    `began` is the monotonic time at which a call began. A call that began before the end of the
    last pause is *old*: it was under way as the pause began. A call without a time is not old.

    | state | answered | failed | 401 |
    | --- | --- | --- | --- |
    | CLOSED | the count begins again | counted; OPEN by FAILURES_TO_OPEN of two | UNAUTHORIZED |
    | OPEN | CLOSED | OPEN, for longer | UNAUTHORIZED |
    | UNAUTHORIZED | CLOSED | UNAUTHORIZED, again | UNAUTHORIZED, again |

    An old call changes nothing, except that its 401 makes UNAUTHORIZED of any other state.
    """

    def __init__(
        self, lock: threading.Lock, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._monotonic = monotonic
        self._lock = lock
        # All below are changed under _lock.
        self.state = BreakerState.CLOSED
        self._failures = 0
        self._failed: set[str] = set()
        self._opened_at = 0.0
        self._probes = 0
        self._until = 0.0

    def held_seconds(self) -> float:
        """Return how long to make no calls; 0 if one may be made, even as a probe."""
        if self.state is BreakerState.CLOSED:
            return 0.0
        return max(0.0, self._until - self._monotonic())

    @property
    def is_probed(self) -> bool:
        """Whether only a call that tests whether LINE is back may be made."""
        return self.state is not BreakerState.CLOSED

    def ended(self, status: int, whose: str, *, began: float = math.inf) -> None:
        """A call ended with this status, 0 without an answer; `whose` names its conversation."""
        if status == 401:
            self.unauthorized(began=began)
        elif is_no_verdict(status):
            self.failed(whose, began=began)
        else:
            self.answered(began=began)

    def answered(self, *, began: float = math.inf) -> None:
        """LINE answered a call, even if it refused that one request."""
        with self._lock:
            if began < self._until:
                return
            before, self.state = self.state, BreakerState.CLOSED
            self._failures = 0
            self._failed.clear()
            seconds, probes = self._monotonic() - self._opened_at, self._probes
        if before is not BreakerState.CLOSED:
            log.info("LINE answers again, calls resume seconds=%.1f probes=%d", seconds, probes)

    def failed(self, whose: str, *, began: float = math.inf) -> None:
        """A call failed at LINE or on the way."""
        with self._lock:
            # guard: old-calls-decide-nothing
            if began < self._until:
                return
            self._failures += 1
            if self.state is BreakerState.CLOSED:
                self._failed.add(whose)
                if self._failures < FAILURES_TO_OPEN or len(self._failed) < 2:
                    return
            opens = self.state is BreakerState.CLOSED
            seconds = self._hold(BreakerState.OPEN if opens else self.state)
            failures = self._failures
        if opens:
            log.warning(
                "LINE fails, only probes are sent until it answers failures=%d seconds=%.1f",
                failures,
                seconds,
            )

    def unauthorized(self, *, began: float = math.inf) -> None:
        """LINE refused the access token, which affects all calls."""
        with self._lock:
            before = self.state
            if before is BreakerState.UNAUTHORIZED and began < self._until:
                return
            self._hold(BreakerState.UNAUTHORIZED)
        if before is not BreakerState.UNAUTHORIZED:
            log.error(
                "LINE refuses the channel access token, only one probe a minute is sent: set a "
                "valid LINE_CHANNEL_ACCESS_TOKEN and restart, nothing is lost "
                "probe_seconds=%.0f",
                UNAUTHORIZED_PAUSE_SECONDS,
            )

    def _hold(self, state: BreakerState) -> float:
        """Under the lock: begin a pause without calls; returns its seconds."""
        now = self._monotonic()
        if self.state is BreakerState.CLOSED:
            self._opened_at, self._probes = now, 0
        else:
            self._probes += 1
        seconds = UNAUTHORIZED_PAUSE_SECONDS
        if state is not BreakerState.UNAUTHORIZED:
            seconds = growing_seconds(
                self._probes + 1, first=FIRST_PAUSE_SECONDS, most=LONGEST_PAUSE_SECONDS
            )
        # In this order: a thread that asks meanwhile finds no pause, or all of it.
        self._until = now + seconds
        self.state = state
        return seconds
