"""The metrics of one front desk process, on the registry of the process.

The event loop only adds to plain numbers, since an answer would wait for more. The registry's
reader turns the numbers into metrics.
"""

from __future__ import annotations

import logging

from prometheus_client import CollectorRegistry

from frontdesk.group_commit import GroupCommit
from linedesk.runtime.metrics import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    Figure,
    Metrics,
    MetricsSnapshot,
    Refusals,
)
from linedesk.store.queue.guard import NOT_LOOKED_AT, Guard

log = logging.getLogger(__name__)

REASONS = ("signature", "body", "size", "slow", "store", "overload", "evicted", "http")
TABLE = (
    Figure(
        "accepted_events",
        COUNTER,
        "Events of requests that were answered 200: stored, or stored before.",
    ),
    Figure(
        "duplicate_events",
        COUNTER,
        "Events among the accepted ones that were stored before: LINE delivered them again.",
    ),
    Figure(
        "refused_requests",
        COUNTER,
        "Requests and connections that were refused: wrong signature, unusable body, too large "
        "(size), too slow, not stored, too many at once (overload), ended in favour of others "
        "before they proved anything (evicted), or not the HTTP that this server speaks (http: a "
        "wrong path or method, a failed TLS handshake).",
        ("reason",),
    ),
    Figure(
        "store_seconds",
        HISTOGRAM,
        "From the arrival of a request to the moment when all its events were stored. LINE gives "
        "up after 2 s.",
    ),
    Figure("connections", GAUGE, "Open connections of clients."),
    Figure(
        "certificate_ends_seconds",
        GAUGE,
        "Unix time at which the certificate in use expires.",
    ),
    Figure(
        "recvq_unread_share",
        GAUGE,
        "Share of recvq that is not finished, 0 to 1; at 0.95 it closes.",
    ),
    Figure(
        "recvq_closed",
        GAUGE,
        "1 while recvq takes no inserts, since unread events would be overwritten or it is not as "
        "it must be; webhooks go to the spool meanwhile.",
    ),
    Figure("spool_documents", GAUGE, "Documents in the host's spool, which wait for MongoDB."),
    Figure("spool_bytes", GAUGE, "BSON bytes of the documents in the spool."),
    Figure(
        "spool_oldest_seconds",
        GAUGE,
        "Age of the oldest document in the spool; 0 while it is empty.",
    ),
    Figure(
        "spool_available",
        GAUGE,
        "1 while the spool would take documents; 0 while an outage of MongoDB would have webhooks "
        "refused.",
    ),
    Figure("spool_max_bytes", GAUGE, "How much of the disk the spool may take (SPOOL_MAX_MB)."),
    Figure(
        "spooled_events",
        COUNTER,
        "Events that were stored in the spool, since MongoDB did not confirm in time.",
    ),
)


class FrontdeskMetrics(Metrics):
    """Its counts are plain numbers of the event loop, which any reader may read."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        super().__init__(TABLE, registry)
        self.accepted_events = 0
        self.duplicate_events = 0
        self.refused = dict.fromkeys(REASONS, 0)
        self.refusals = Refusals(log)
        self.ask(
            lambda: {
                "accepted_events": self.accepted_events,
                "duplicate_events": self.duplicate_events,
                "refused_requests": self.refused,
            }
        )

    def accepted(self, events: int, duplicates: int, seconds: float) -> None:
        """Count one request that is answered 200, with its time since arrival."""
        self.accepted_events += events
        self.duplicate_events += duplicates
        if events:
            self.observe("store_seconds", seconds)

    def refuse(self, counted_as: str, reason: str, client: str) -> None:
        """Count one request or connection as one of REASONS; the log gets reason and address."""
        self.refused[counted_as] += 1
        self.refusals.note(reason, client)

    def watch_spool(self, store: GroupCommit, *, max_bytes: int) -> None:
        """Measure the spool, which may hold `max_bytes`."""
        self.ask(
            lambda: {
                "spool_documents": store.held.documents,
                "spool_bytes": store.held.bytes,
                "spool_oldest_seconds": store.held.oldest_seconds,
                "spool_available": store.no_spool is None,
                "spool_max_bytes": max_bytes,
                "spooled_events": store.spooled_events,
            }
        )

    def watch_guard(self, guard: Guard) -> None:
        """Measure the unread share of recvq, once it was measured."""

        def closed() -> bool | None:
            reason = guard.closed
            return None if reason == NOT_LOOKED_AT else reason is not None

        self.ask(lambda: {"recvq_unread_share": guard.share, "recvq_closed": closed()})


def status_words(snapshot: MetricsSnapshot, *, trouble: str | None) -> str:
    """The status line for operators, from the same figures as the metrics."""
    figures = snapshot.figures
    spooled = figures.get("spoolDocuments", 0)
    spool = "spool empty" if figures.get("spoolAvailable", 1) else "no spool"
    parts = [
        f"{figures.get('acceptedEvents', 0):,} events accepted",
        f"{snapshot.per_second.get('acceptedEvents', 0.0):.1f}/s",
        f"{sum(figures.get('refusedRequests', {}).values()):,} requests refused",
        f"spool {spooled:,} documents" if spooled else spool,
    ]
    return " · ".join([trouble, *parts] if trouble else parts)
