"""The circuit breaker of a channel: no calls while LINE fails, or refuses the access token.

It is told of every call's end, under the gate, and tells the gate how long to call nothing. After
a pause the gate serves one entry, the most urgent: that call is the probe, and its end decides.
Calls that began before a pause was over decide nothing about it, so many at a time that fail
together count as one failure.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from linedesk.runtime.backoff import growing_seconds

log = logging.getLogger(__name__)

# In a row, and of two conversations at least: a message that LINE always fails on has to stop
# nobody else's.
FAILURES_TO_OPEN = 5


@dataclass(frozen=True)
class BreakerLimits:
    """How long nothing is called before the next probe."""

    first_pause_seconds: float = 1.0
    """Before the first probe; the pause grows with each further one."""
    longest_pause_seconds: float = 60.0
    unauthorized_pause_seconds: float = 60.0
    """While LINE refuses the access token."""


LIMITS = BreakerLimits()


class BreakerState(Enum):
    """Whether LINE is called."""

    CLOSED = "closed"
    """All calls are made."""
    OPEN = "open"
    """LINE failed again and again: no call until the pause is over."""
    HALF_OPEN = "half-open"
    """The pause is over: the next call is the probe."""
    UNAUTHORIZED = "unauthorized"
    """LINE refuses the access token: nothing but a probe a minute."""


class Breaker:
    """One per process and host. Any thread may ask, and calls may end at the same time.

    `began` is the monotonic time at which a call began. One that began before the end of the last
    pause is *old*: it was under way as the pause began. Without a time it counts as none of these.

    | state | answered | failed | 401 |
    | --- | --- | --- | --- |
    | CLOSED | the count begins anew | counted; OPEN by FAILURES_TO_OPEN of two | UNAUTHORIZED |
    | OPEN, HALF_OPEN | CLOSED | OPEN, for longer | UNAUTHORIZED |
    | UNAUTHORIZED | CLOSED | UNAUTHORIZED, anew | UNAUTHORIZED, anew |

    An old call changes nothing, except that its 401 makes UNAUTHORIZED of any other state.
    """

    def __init__(
        self,
        *,
        limits: BreakerLimits = LIMITS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._monotonic = monotonic
        self._lock = threading.Lock()
        # All below under _lock.
        self._state = BreakerState.CLOSED
        self._failures = 0
        self._failed: set[str] = set()
        self._opened_at = 0.0
        self._probes = 0
        self._until = 0.0

    @property
    def state(self) -> BreakerState:
        """Whether LINE is called just now."""
        with self._lock:
            if self._state is BreakerState.OPEN and self._monotonic() >= self._until:
                return BreakerState.HALF_OPEN
            return self._state

    def held_seconds(self) -> float:
        """How long to begin no call; 0 where one may be made, were it as a probe."""
        with self._lock:
            if self._state is BreakerState.CLOSED:
                return 0.0
            return max(0.0, self._until - self._monotonic())

    @property
    def is_probed(self) -> bool:
        """Whether no call may be made but one that finds out whether LINE is back."""
        with self._lock:
            return self._state is not BreakerState.CLOSED

    def answered(self, *, began: float = math.inf) -> None:
        """LINE answered a call, if only with a refusal of that one request."""
        with self._lock:
            if began < self._until:
                return
            before, self._state = self._state, BreakerState.CLOSED
            self._failures = 0
            self._failed.clear()
            seconds, probes = self._monotonic() - self._opened_at, self._probes
        if before is not BreakerState.CLOSED:
            log.info("LINE answers again, calls go on seconds=%.1f probes=%d", seconds, probes)

    def failed(self, whose: str, *, began: float = math.inf) -> None:
        """A call failed on LINE's side or on the way; `whose` names its conversation."""
        with self._lock:
            # guard: old-calls-decide-nothing
            if began < self._until:
                return
            self._failures += 1
            if self._state is BreakerState.CLOSED:
                self._failed.add(whose)
                if self._failures < FAILURES_TO_OPEN or len(self._failed) < 2:
                    return
            opens = self._hold(
                BreakerState.OPEN if self._state is BreakerState.CLOSED else self._state
            )
            failures, seconds = self._failures, self._until - self._monotonic()
        if opens:
            log.warning(
                "LINE fails, no calls but probes until it answers failures=%d seconds=%.1f",
                failures,
                seconds,
            )

    def unauthorized(self, *, began: float = math.inf) -> None:
        """LINE refused the access token, which concerns all calls alike."""
        with self._lock:
            before = self._state
            if before is BreakerState.UNAUTHORIZED and began < self._until:
                return
            self._hold(BreakerState.UNAUTHORIZED)
        if before is not BreakerState.UNAUTHORIZED:
            log.error(
                "LINE refuses the channel access token, no calls but one probe a minute: put a "
                "valid one into LINE_CHANNEL_ACCESS_TOKEN and restart, nothing is lost "
                "probe_seconds=%.0f",
                self._limits.unauthorized_pause_seconds,
            )

    def _hold(self, state: BreakerState) -> bool:
        """Under the lock: no calls for a pause; whether they went on until now."""
        opens = self._state is BreakerState.CLOSED
        self._probes = 0 if opens else self._probes + 1
        if opens:
            self._opened_at = self._monotonic()
        self._state = state
        self._until = self._monotonic() + self._pause_seconds()
        return opens

    def _pause_seconds(self) -> float:
        if self._state is BreakerState.UNAUTHORIZED:
            return self._limits.unauthorized_pause_seconds
        return growing_seconds(
            self._probes + 1,
            first=self._limits.first_pause_seconds,
            most=self._limits.longest_pause_seconds,
        )
