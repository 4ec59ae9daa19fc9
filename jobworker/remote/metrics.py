"""The metrics of handlers in worker processes: the leader's, and each worker's."""

from __future__ import annotations

from linedesk.runtime.metrics import COUNTER, GAUGE, HISTOGRAM, Figure

OF_LEADER = (
    Figure("workers", GAUGE, "Worker processes that get jobs."),
    Figure(
        "workers_without_jobs",
        GAUGE,
        "Worker processes that get no jobs: they stop, or have another version or contract.",
    ),
    Figure("worker_threads", GAUGE, "Threads of the workers that get jobs."),
    Figure("worker_jobs_out", GAUGE, "Jobs that workers have."),
    Figure(
        "worker_jobs_lost", COUNTER, "Jobs handed out again, since they or their worker were lost."
    ),
    Figure(
        "worker_decisions_dropped",
        COUNTER,
        "Decisions of attempts that no longer count, and messages that were not understood.",
    ),
    Figure("broker_up", GAUGE, "1 while RabbitMQ is connected and takes messages."),
)
OF_WORKER = (
    Figure("worker_handler_seconds", HISTOGRAM, "How long handlers run in this worker."),
    Figure(
        "worker_failed_handlers",
        COUNTER,
        "Handlers that raised an error, or did not return in time.",
    ),
    Figure(
        "worker_abandoned_threads",
        COUNTER,
        "Threads whose handler did not return in time, or was released.",
    ),
)
