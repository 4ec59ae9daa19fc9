"""A dispatcher's figures: its metrics and their sources. None of them asks MongoDB.

The pool's own counts are only read, once a second, so that no document pays for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry

from linedesk.runtime.metrics import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    Figure,
    Metrics,
    MetricsSnapshots,
    Values,
)
from linedesk.store.queue.usage import Depth

OF_PROCESS = (
    Figure("leading", GAUGE, "1 where the process holds the lease, else 0."),
    Figure("saved_progress", COUNTER, "Saves of progress that succeeded."),
    Figure("save_seconds", HISTOGRAM, "How long a save of progress takes."),
)
IN_HAND = (
    Figure("read_documents", COUNTER, "Documents that were read and queued."),
    Figure("finished_documents", COUNTER, "Documents that were decided."),
    Figure(
        "in_hand_documents",
        GAUGE,
        "Documents that are read and not decided, without those in held.",
    ),
    Figure(
        "window_documents",
        GAUGE,
        "Documents from the oldest undecided one to the newest that was read, decided ones "
        "included. Reading pauses at 10000, and at 64 MB.",
    ),
    Figure(
        "held_documents",
        GAUGE,
        "Documents in held: they have waited so long that they left the window.",
    ),
    Figure("held_keys", GAUGE, "Keys that have documents in held."),
    Figure(
        "waiting_keys",
        GAUGE,
        "Keys with documents that cannot run: paused by an operator; again, waiting for the next "
        "try of the first; save, waiting for a save of progress; held, moving to held.",
        ("why",),
    ),
    Figure(
        "pauses", GAUGE, "Pauses in force: of everything, a channel or a conversation.", ("scope",)
    ),
    Figure("oldest_pause_seconds", GAUGE, "Age of the oldest of these; 0 without one.", ("scope",)),
    Figure("threads", GAUGE, "Threads that decide documents and call LINE."),
    Figure("busy_threads", GAUGE, "Threads that are busy."),
    Figure("abandoned_threads", COUNTER, "Threads whose handler did not return in time."),
    Figure(
        "lost_history", COUNTER, "How many times the feed lost its position and recvq was scanned."
    ),
)
DEPTH = (
    Figure(
        "lag_documents", GAUGE, "Documents stored in recvq that the feed has not delivered yet."
    ),
    Figure("lag_seconds", GAUGE, "Age of the oldest document that the feed has not delivered yet."),
    Figure("queue_documents", GAUGE, "All documents that are stored and not decided."),
    Figure("oldest_unfinished_seconds", GAUGE, "Age of the oldest document that is not decided."),
    Figure(
        "behind_seconds",
        GAUGE,
        "Age of the oldest undecided document outside held. Documents of paused or stuck keys "
        "wait in held.",
    ),
    Figure(
        "unpaused_documents", GAUGE, "The same as queue_documents, without paused ones in held."
    ),
    Figure("unpaused_oldest_seconds", GAUGE, "Age of the oldest of these."),
    Figure(
        "recvq_unread_share",
        GAUGE,
        "Share of recvq that is not finished, 0 to 1; at 0.95 it closes.",
    ),
    Figure(
        "recvq_left_seconds",
        GAUGE,
        "Until recvq would overwrite unfinished documents, at the present rate; at most 30 days.",
    ),
    Figure(
        "oplog_left_seconds",
        GAUGE,
        "Until the oplog would no longer reach back to progress, at the present rate; at most 30 "
        "days.",
    ),
    Figure(
        "retention_measured_seconds",
        GAUGE,
        "The time over which the rate of these two is measured; up to an hour.",
    ),
)
TABLE = (*OF_PROCESS, *IN_HAND, *DEPTH)


class DispatcherMetrics(Metrics):
    """The figures of one process; where `leads` is false, only that it does not lead."""

    def __init__(
        self, registry: CollectorRegistry | None = None, *, leads: Callable[[], bool]
    ) -> None:
        super().__init__(TABLE, registry)
        self.put(_none_of(IN_HAND))
        self.set("leading", leads)
        self.leads = leads
        self.snapshots = MetricsSnapshots(self.registry)

    def know(self, depth: Depth | None) -> None:
        """Set the last measurement of the backlog; None if it is not known any more."""
        self.put(depth or _none_of(DEPTH))


def _none_of(figures: Iterable[Figure]) -> Values:
    return dict.fromkeys(figure.name for figure in figures)


OF_TIMERS = (
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


class TimerMetrics:
    """Fired timers, their delay, and the time until the next one."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._metrics = Metrics(OF_TIMERS, registry)
        self._metrics.set("next_timer_seconds", self._next_seconds)
        # Only the timers' thread writes it.
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
        self._due_at = None if seconds is None else time.monotonic() + seconds

    def _next_seconds(self) -> float | None:
        due_at = self._due_at
        return None if due_at is None else round(due_at - time.monotonic(), 3)
