"""A scheduler's figures: fired timers, their delay, and the time until the next one."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry

from linedesk.runtime.metrics import COUNTER, GAUGE, HISTOGRAM, Figure, Metrics

TABLE = (
    Figure("rung_timers", COUNTER, "Timers that fired: their events were stored in recvq."),
    Figure(
        "ring_late_seconds",
        HISTOGRAM,
        "Time from a timer's due time until its event was stored in recvq.",
    ),
    Figure(
        "next_timer_seconds",
        GAUGE,
        "Time until the next timer is due; negative if it is late, absent if none waits.",
    ),
)


class SchedulerMetrics:
    """The figures of one scheduler, on the registry of its process."""

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = Metrics(TABLE, registry)
        self._metrics.set("next_timer_seconds", self._next_seconds)
        self._monotonic = monotonic
        # Only the scheduler's thread writes it.
        self.fired = 0
        """The number of timers fired since the start of the process."""
        # The monotonic time at which the next one is due; replaced as a whole.
        self._due_at: float | None = None

    def observe_fired(self, late_seconds: float) -> None:
        """Record that a timer fired `late_seconds` after its time."""
        self.fired += 1
        self._metrics.add("rung_timers")
        self._metrics.observe("ring_late_seconds", max(0.0, late_seconds))

    def next_in(self, seconds: float | None) -> None:
        """Set the seconds until the next timer is due; None: none waits."""
        self._due_at = None if seconds is None else self._monotonic() + seconds

    def _next_seconds(self) -> float | None:
        due_at = self._due_at
        return None if due_at is None else round(due_at - self._monotonic(), 3)
