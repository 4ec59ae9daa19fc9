"""The metrics of handlers in worker processes: the leader's, and each worker's."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter

from linedesk.runtime.metrics import SECONDS_BUCKETS, Figure, Histogram, Measured, Values

OF_LEADER = {
    "workers": Figure("workers", "Worker processes that get jobs."),
    "idle": Figure(
        "workers_without_jobs",
        "Worker processes that get no jobs: they stop, or have another version or contract.",
    ),
    "threads": Figure("worker_threads", "Threads of the workers that get jobs."),
    "out": Figure("worker_jobs_out", "Jobs that workers have."),
    "lost": Figure(
        "worker_jobs_lost",
        "Jobs handed out again, since they or their worker were lost.",
        is_count=True,
    ),
    "dropped": Figure(
        "worker_decisions_dropped",
        "Decisions of attempts that no longer count, and messages that were not understood.",
        is_count=True,
    ),
    "broker": Figure("broker_up", "1 while RabbitMQ is connected and takes messages."),
}


def watch_workers(
    registry: CollectorRegistry | None, ask: Callable[[], Mapping[str, float]]
) -> None:
    """Read the leader's numbers with the figures."""

    def values() -> Values:
        return {OF_LEADER[name].name: float(value) for name, value in ask().items()}

    Measured(registry or CollectorRegistry(), tuple(OF_LEADER.values()), ask=values)


class HandlerMetrics:
    """The metrics of a worker process."""

    def __init__(self, registry: CollectorRegistry, *, abandoned: Callable[[], int]) -> None:
        self._seconds = Histogram(
            "linedesk_worker_handler_seconds",
            "How long handlers run in this worker.",
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        self._failed = Counter(
            "linedesk_worker_failed_handlers",
            "Handlers that raised an error, or did not return in time.",
            registry=registry,
        )
        figure = Figure(
            "worker_abandoned_threads",
            "Threads whose handler did not return in time, or was released.",
            is_count=True,
        )
        Measured(registry, (figure,), ask=lambda: {figure.name: float(abandoned())})

    def observe(self, seconds: float, has_failed: bool) -> None:
        """Count a handler that has ended."""
        self._seconds.observe(seconds)
        if has_failed:
            self._failed.inc()
