"""A scheduler's figures: fired timers, their delay, and the time until the next one."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter

from linedesk.runtime.metrics import SECONDS_BUCKETS, Figure, Histogram, Measured, Values

NEXT_TIMER = Figure(
    "next_timer_seconds",
    "Time until the next timer is due; negative if it is late, absent if none waits.",
)


class SchedulerMetrics:
    """The figures of one scheduler, on the registry of its process."""

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        registry = registry or CollectorRegistry()
        self._fired = Counter(
            "linedesk_rung_timers",
            "Timers that fired: their events were stored in recvq.",
            registry=registry,
        )
        self._late = Histogram(
            "linedesk_ring_late_seconds",
            "Time from a timer's due time until its event was stored in recvq.",
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        Measured(registry, [NEXT_TIMER], ask=self._ask)
        self._monotonic = monotonic
        # Only the scheduler's thread writes it.
        self.fired = 0
        """The number of timers fired since the start of the process."""
        # The monotonic time at which the next one is due; replaced as a whole.
        self._due_at: float | None = None

    def observe_fired(self, late_seconds: float) -> None:
        """Record that a timer fired `late_seconds` after its time."""
        self.fired += 1
        self._fired.inc()
        self._late.observe(max(0.0, late_seconds))

    def next_in(self, seconds: float | None) -> None:
        """Set the seconds until the next timer is due; None: none waits."""
        self._due_at = None if seconds is None else self._monotonic() + seconds

    def _ask(self) -> Values:
        due_at = self._due_at
        if due_at is None:
            return {}
        return {NEXT_TIMER.name: round(due_at - self._monotonic(), 3)}
