"""The figures of a process: counted in memory, read once a second, the same for all readers.

They are tables of metrics on one registry of prometheus-client. Scrapes read that registry. So does
the snapshot for `status`, systemd's status line and the console. A figure's name in MongoDB is the
metric's without `linedesk_` and `_total`, in camel case: `linedesk_accepted_events_total` is
`acceptedEvents`. Values of labels nest in it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

PREFIX = "linedesk_"
COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
# Rates cover the last RATE_SECONDS, latencies the last LATELY_SECONDS.
RATE_SECONDS = 10.0
LATELY_SECONDS = 60.0
# Percentiles are those of a minute up to 100 values a second.
MOST_RECENT = 6_000
# Refusals are logged in at most one line for this time, whatever their number.
REFUSALS_SECONDS = 1.0
# The numbers of reasons and addresses that are counted between two lines, and that a line names.
MOST_COUNTED = 1_000
MOST_NAMED = 5
# A proxy can report any address.
MOST_LETTERS = 80
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
# From half a millisecond to LINE's own limits: 1 s for the store, 2 s for the answer, 10 s a call;
# then to an hour, since events wait as long while a dispatcher is away.
SECONDS_BUCKETS = (
    *(0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0),
)

Labels = tuple[str, ...]
"""The values of a metric's labels, in the order of their names."""
Value = float | Callable[[], float | None] | None
"""A gauge's value, or the function that returns it; None while it is unknown."""
Values = Mapping[str, Value | Mapping[str, float]]
"""Values by names without `linedesk_`; of a metric with one label, by the values of that label."""
Series = tuple[str, Labels]
"""A figure's name and the values of its labels."""


class Figure(NamedTuple):
    """A row of a table of metrics."""

    name: str
    """Without `linedesk_`; a counter's without `_total`."""
    kind: str
    """COUNTER, GAUGE or HISTOGRAM."""
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = SECONDS_BUCKETS
    """The upper bounds of a histogram."""
    begin: tuple[str, ...] = ()
    """The values of a counter's label that are 0 from the start."""


class _Histogram:
    """All values in buckets, and the latest ones as they are."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.recent: deque[float] = deque(maxlen=MOST_RECENT)

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value
        self.recent.append(value)

    def copy(self) -> _Histogram:
        taken = _Histogram(self.bounds)
        taken.counts, taken.sum, taken.recent = self.counts.copy(), self.sum, self.recent.copy()
        return taken


class _Family(Metric):
    """A metric at one moment, for prometheus-client and for `MetricsSnapshots`."""

    def __init__(self, figure: Figure, series: Mapping[Labels, Any]) -> None:
        super().__init__(PREFIX + figure.name, figure.help, figure.kind)
        self.series = series
        for labels, value in series.items():
            named = dict(zip(figure.labels, labels, strict=True))
            if not isinstance(value, _Histogram):
                self.add_sample(self.name + "_total" * (figure.kind == COUNTER), named, value)
                continue
            upto = list(accumulate(value.counts))
            for bound, count in zip((*map(str, value.bounds), "+Inf"), upto, strict=True):
                self.add_sample(f"{self.name}_bucket", {**named, "le": bound}, count)
            self.add_sample(f"{self.name}_count", named, upto[-1])
            self.add_sample(f"{self.name}_sum", named, value.sum)


class Metrics:
    """The metrics of one table, on a registry. Thread-safe."""

    def __init__(self, table: Iterable[Figure], registry: CollectorRegistry | None = None) -> None:
        self.registry = CollectorRegistry() if registry is None else registry
        self._table = tuple(table)
        self._asked: list[Callable[[], Values]] = []
        self._lock = threading.Lock()
        # Under _lock: for each metric, by its labels, a value or _Histogram.
        self._series = {figure.name: _series_of(figure) for figure in self._table}
        self.registry.register(self)

    def add(self, name: str, *labels: str, by: float = 1) -> None:
        with self._lock:
            self._series[name][labels] += by

    def observe(self, name: str, value: float, *labels: str) -> None:
        with self._lock:
            self._series[name][labels].add(value)

    def set(self, name: str, value: Value, *labels: str) -> None:
        with self._lock:
            self._series[name][labels] = value

    def put(self, values: Values) -> None:
        """Set values that were measured together; each replaces all values of its metric."""
        with self._lock:
            for name, value in values.items():
                if isinstance(value, Mapping):
                    self._series[name] = {(label,): one for label, one in value.items()}
                else:
                    self._series[name] = {(): value}

    def ask(self, values: Callable[[], Values]) -> None:
        """Put what the function returns, each time that the metrics are read."""
        self._asked.append(values)

    def describe(self) -> list[Metric]:
        """The names, so that the registry rejects duplicates."""
        return [_Family(figure, {}) for figure in self._table]

    def collect(self) -> Iterator[Metric]:
        """All current values that are known."""
        for values in self._asked:
            self.put(values())
        for figure in self._table:
            with self._lock:
                series = {
                    labels: value.copy() if isinstance(value, _Histogram) else value
                    for labels, value in self._series[figure.name].items()
                }
            # Outside the lock: the functions take locks of their own.
            found = {labels: one() if callable(one) else one for labels, one in series.items()}
            yield _Family(figure, {of: one for of, one in found.items() if one is not None})


def _series_of(figure: Figure) -> dict[Labels, Any]:
    first = partial(_Histogram, figure.buckets) if figure.kind == HISTOGRAM else float
    begin = [()] if figure.kind != GAUGE and not figure.labels else [(of,) for of in figure.begin]
    return defaultdict(first, {labels: first() for labels in begin})


@dataclass(frozen=True)
class MetricsSnapshot:
    """All figures of one moment. Figures without a value are omitted."""

    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    figures: dict[str, Any] = field(default_factory=dict)
    """Counts since the start of the process, and measured figures; count and sum of histograms."""
    per_second: dict[str, Any] = field(default_factory=dict)
    """The rate of each count over the last RATE_SECONDS."""
    lately: dict[str, Any] = field(default_factory=dict)
    """Each histogram over the last LATELY_SECONDS: count; with any values also sum, and p50, p90,
    p99 and max of the last MOST_RECENT of them.
    """


@dataclass
class _Reading:
    """One reading of the registry."""

    values: dict[Series, float] = field(default_factory=dict)
    counts: dict[Series, float] = field(default_factory=dict)
    """Those of the values that are counts."""
    totals: dict[Series, tuple[int, float]] = field(default_factory=dict)
    """The count and the sum of histograms."""


class MetricsSnapshots:
    """The snapshots of one registry. `take` belongs to one thread; `latest` is thread-safe."""

    def __init__(
        self, registry: CollectorRegistry, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry = registry
        self._monotonic = monotonic
        self._readings: deque[tuple[float, _Reading]] = deque()
        self.latest = MetricsSnapshot()
        """The last snapshot; replaced as a whole."""

    def take(self) -> MetricsSnapshot:
        """Read every figure; call it once a second."""
        now, (reading, recent) = self._monotonic(), _read(self._registry)
        self._readings.append((now, reading))
        while len(self._readings) > 2 and self._readings[1][0] <= now - LATELY_SECONDS:
            self._readings.popleft()
        totals = {
            series: {"count": count, "sum": round(total, 6)}
            for series, (count, total) in reading.totals.items()
        }
        self.latest = MetricsSnapshot(
            figures=_nested({**reading.values, **totals}),
            per_second=_nested(dict(self._rates(now, reading))),
            lately=_nested(dict(self._lately(reading, recent))),
        )
        return self.latest

    def _rates(self, now: float, reading: _Reading) -> Iterator[tuple[Series, float]]:
        then, before = self._readings[0]
        for at, earlier in self._readings:
            if at > now - RATE_SECONDS:
                break
            then, before = at, earlier
        seconds = max(now - then, 1.0)
        for series, value in reading.counts.items():
            yield series, round((value - before.counts.get(series, 0.0)) / seconds, 3)

    def _lately(
        self, reading: _Reading, recent: Mapping[Series, deque[float]]
    ) -> Iterator[tuple[Series, dict[str, Any]]]:
        before = self._readings[0][1] if len(self._readings) > 1 else _Reading()
        for series, (count, total) in reading.totals.items():
            count_before, total_before = before.totals.get(series, (0, 0.0))
            lately: dict[str, Any] = {"count": (fresh := count - count_before)}
            if fresh:
                lately |= spread(list(recent[series])[-fresh:])
                lately["sum"] = round(total - total_before, 6)
            yield series, lately


class Refusals:
    """Logs refused requests: at most one line a second, with bounded memory.

    The first refusal after a quiet second is logged at once. All methods belong to one thread.
    """

    def __init__(
        self, log: logging.Logger, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._monotonic = monotonic
        self._told_at = -REFUSALS_SECONDS
        self._clear()

    def note(self, reason: str, address: str) -> None:
        """Count a refusal; the reason must not quote the client's input."""
        self._requests += 1
        for counter, name in ((self._reasons, reason), (self._addresses, address)):
            counter[name[:MOST_LETTERS]] += 1
            if len(counter) > MOST_COUNTED:
                # Keep the most frequent ones; of those with one refusal the older half is dropped.
                for rare, _ in counter.most_common()[MOST_COUNTED // 2 :]:
                    del counter[rare]
        self.tell_in_time()

    def tell_in_time(self) -> None:
        """Log, unless a line was logged within the last second; call it repeatedly."""
        if self._monotonic() >= self._told_at + REFUSALS_SECONDS:
            self.tell()

    def tell(self) -> None:
        """Log all refusals since the last line, if any; also called at the end of the process."""
        if self._requests:
            self._log.warning(
                'refused requests=%d reasons="%s" busiest="%s"',
                self._requests,
                _most(self._reasons),
                _most(self._addresses),
            )
            self._told_at = self._monotonic()
            self._clear()

    def _clear(self) -> None:
        self._requests = 0
        self._reasons, self._addresses = Counter[str](), Counter[str]()


def _most(counter: Counter[str]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counter.most_common(MOST_NAMED))


def spread(values: Iterable[float]) -> dict[str, float]:
    """The p50, p90, p99 and max of at least one value; each is one of the values."""
    ordered = sorted(values)
    places = {name: math.ceil(part * len(ordered)) - 1 for name, part in QUANTILES.items()}
    return {name: round(ordered[place], 6) for name, place in {**places, "max": -1}.items()}


def figure_name(metric: str) -> str:
    """The name of a metric's figure in MongoDB."""
    first, *others = metric.removeprefix(PREFIX).removesuffix("_total").split("_")
    return first + "".join(word.capitalize() for word in others)


def _read(registry: CollectorRegistry) -> tuple[_Reading, dict[Series, deque[float]]]:
    """A reading, and the latest values of the histograms."""
    reading, recent = _Reading(), dict[Series, deque[float]]()
    for family in registry.collect():
        if not isinstance(family, _Family):
            continue
        for labels, value in family.series.items():
            series = figure_name(family.name), labels
            if isinstance(value, _Histogram):
                reading.totals[series] = sum(value.counts), value.sum
                recent[series] = value.recent
                continue
            reading.values[series] = float(value)
            if family.type == COUNTER:
                reading.counts[series] = float(value)
    return reading, recent


def _nested(values: Mapping[Series, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for (name, labels), value in values.items():
        *outer, last = (name, *labels)
        place = document
        for part in outer:
            place = place.setdefault(part, {})
        place[last] = int(value) if isinstance(value, float) and value.is_integer() else value
    return document
