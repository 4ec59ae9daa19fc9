"""A scheduler's figures: what rang, how late, and when the next one is due."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter

from linedesk.runtime.metrics import SECONDS_BUCKETS, Figure, Histogram, Measured, Values

NEXT_TIMER = Figure(
    "next_timer_seconds",
    "Until the next timer is due; negative if that is late, absent where none waits.",
)


class SchedulerMetrics:
    """Those of one scheduler, on the registry of its process."""

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        registry = registry or CollectorRegistry()
        self._fired = Counter(
            "linedesk_rung_timers", "Rings of timers that were stored in recvq.", registry=registry
        )
        self._late = Histogram(
            "linedesk_ring_late_seconds",
            "From when a timer was due until it was stored in recvq.",
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        Measured(registry, [NEXT_TIMER], ask=self._ask)
        self._monotonic = monotonic
        # Only the scheduler's thread writes it.
        self.fired = 0
        """How many timers rang since the start of the process."""
        # When the next one is due, as a monotonic time; replaced as a whole.
        self._due_at: float | None = None

    def observe_fired(self, late_seconds: float) -> None:
        """A timer rang, so many seconds after its time."""
        self.fired += 1
        self._fired.inc()
        self._late.observe(max(0.0, late_seconds))

    def next_in(self, seconds: float | None) -> None:
        """The next one is due in so many seconds; None: none waits."""
        self._due_at = None if seconds is None else self._monotonic() + seconds

    def _ask(self) -> Values:
        due_at = self._due_at
        if due_at is None:
            return {}
        return {NEXT_TIMER.name: round(due_at - self._monotonic(), 3)}
