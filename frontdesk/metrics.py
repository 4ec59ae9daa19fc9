"""The metrics of one front desk process, on the registry of the process.

The event loop only adds to plain numbers. A metric of prometheus-client takes ten times as long,
and an answer would wait for it. The reader of the registry turns the numbers into metrics.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import accumulate
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from linedesk.runtime.metrics import (
    PREFIX,
    SECONDS_BUCKETS,
    BoundedMetric,
    Extremes,
    MetricsSnapshot,
    Refusals,
)
from linedesk.store.queue.guard import NOT_LOOKED_AT, Guard
from linedesk.store.spool.drain import oldest_seconds
from linedesk.store.spool.spool import SpoolContents

log = logging.getLogger(__name__)

REASONS = ("signature", "body", "size", "slow", "store", "overload", "evicted", "http")

BOUNDS = (*map(str, SECONDS_BUCKETS), "+Inf")

Reading = Callable[[], float | None]
"""The value of a gauge, from any thread; None while it has none."""


class Spooling(Protocol):
    """The figures of a spool."""

    @property
    def held(self) -> SpoolContents:
        """The spool's content."""

    @property
    def no_spool(self) -> str | None:
        """Why the spool takes no documents; None while it would."""

    @property
    def spooled_events(self) -> int:
        """How many events this process has stored there."""


class FrontdeskMetrics:
    """The counts belong to the event loop; `collect` belongs to the registry's reader."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.accepted_events = 0
        self.duplicate_events = 0
        self.refused = dict.fromkeys(REASONS, 0)
        self.refusals = Refusals(log)
        self._stored_in = [0] * len(BOUNDS)
        self._stored_seconds = 0.0
        self._store_extremes = Extremes()
        self._spooling: Spooling | None = None
        self._gauges: list[tuple[str, str, Reading]] = []
        self.registry.register(self)

    def accepted(self, events: int, duplicates: int, seconds: float) -> None:
        """Count one request that is answered 200, with its time since arrival."""
        self.accepted_events += events
        self.duplicate_events += duplicates
        if events:
            self._store_extremes.note(seconds)
            self._stored_in[bisect_left(SECONDS_BUCKETS, seconds)] += 1
            self._stored_seconds += seconds

    def refuse(self, counted_as: str, reason: str, client: str) -> None:
        """Count one request or connection as one of REASONS; the log gets reason and address."""
        self.refused[counted_as] += 1
        self.refusals.note(reason, client)

    # --- gauges: read from their owner whenever the registry is read

    def watch_spool(self, spooling: Spooling, *, max_bytes: int) -> None:
        """Measure the spool, which may hold `max_bytes`."""
        self._spooling = spooling
        self._measure(
            "spool_documents",
            "Documents in the host's spool, which wait for MongoDB.",
            lambda: spooling.held.documents,
        )
        self._measure(
            "spool_bytes", "BSON bytes of the documents in the spool.", lambda: spooling.held.bytes
        )
        self._measure(
            "spool_oldest_seconds",
            "Age of the oldest document in the spool; 0 while it is empty.",
            lambda: oldest_seconds(spooling.held),
        )
        self._measure(
            "spool_available",
            "1 while the spool would take documents; 0 while an outage of MongoDB would have "
            "webhooks refused.",
            lambda: spooling.no_spool is None,
        )
        self._measure(
            "spool_max_bytes",
            "How much of the disk the spool may take (SPOOL_MAX_MB).",
            lambda: max_bytes,
        )

    def watch_guard(self, guard: Guard) -> None:
        """Measure the unread share of recvq, once it was measured."""

        def closed() -> bool | None:
            reason = guard.closed
            return None if reason == NOT_LOOKED_AT else reason is not None

        self._measure(
            "recvq_unread_share",
            "Share of recvq that is not finished, 0 to 1; at 0.95 it closes.",
            lambda: guard.share,
        )
        self._measure(
            "recvq_closed",
            "1 while recvq takes no inserts, since unread events would be overwritten or it is "
            "not as it must be; webhooks go to the spool meanwhile.",
            closed,
        )

    def watch_connections(self, count: Callable[[], int]) -> None:
        """Measure the number of open connections."""
        self._measure("connections", "Open connections of clients.", count)

    def watch_certificate(self, ends: Callable[[], float]) -> None:
        """Measure when the certificate expires; a time of time.time()."""
        self._measure(
            "certificate_ends_seconds",
            "Unix time at which the certificate in use expires.",
            ends,
        )

    def _measure(self, name: str, help_text: str, reading: Reading) -> None:
        self._gauges.append((PREFIX + name, help_text, reading))

    # --- the registry's side

    def collect(self) -> Iterator[Metric]:
        """All current figures."""
        yield from self._counts()
        for name, help_text, reading in self._gauges:
            value = reading()
            if value is not None:
                yield GaugeMetricFamily(name, help_text, float(value))

    def _take_extremes(self) -> Mapping[tuple[str, ...], tuple[float, float]]:
        taken = self._store_extremes.take()
        return {} if taken is None else {(): taken}

    def _counts(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            f"{PREFIX}accepted_events",
            "Events of requests that were answered 200: stored, or stored before.",
            self.accepted_events,
        )
        yield CounterMetricFamily(
            f"{PREFIX}duplicate_events",
            "Events among the accepted ones that were stored before: LINE delivered them again.",
            self.duplicate_events,
        )
        yield self._refusals()
        stored = HistogramMetricFamily(
            f"{PREFIX}store_seconds",
            "From the arrival of a request to the moment when all its events were stored. LINE "
            "gives up after 2 s.",
            list(zip(BOUNDS, accumulate(self._stored_in), strict=True)),
            self._stored_seconds,
        )
        yield BoundedMetric.of(stored, self._take_extremes)
        if self._spooling is not None:
            yield CounterMetricFamily(
                f"{PREFIX}spooled_events",
                "Events that were stored in the spool, since MongoDB did not confirm in time.",
                self._spooling.spooled_events,
            )

    def _refusals(self) -> Metric:
        family = CounterMetricFamily(
            f"{PREFIX}refused_requests",
            "Requests and connections that were refused: wrong signature, unusable body, too "
            "large (size), too slow, not stored, too many at once (overload), ended in favour of "
            "others before they proved anything (evicted), or not the HTTP that this server "
            "speaks (http: a wrong path or method, a failed TLS handshake).",
            labels=["reason"],
        )
        for reason, count in self.refused.items():
            family.add_metric([reason], count)
        return family


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


def clock_time(seconds: float) -> str:
    """A time of time.time() in the form of status lines."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
