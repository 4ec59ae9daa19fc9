"""The figures of a process: counted in memory, read once a second, the same for all readers.

They are metrics of prometheus-client on one registry. Scrapes read that registry. So does the
snapshot for `status`, systemd's status line and the console. A figure's name in MongoDB is the
metric's without `linedesk_` and `_total`, in camel case: `linedesk_accepted_events_total` is
`acceptedEvents`. Values of labels nest in it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as PrometheusHistogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

PREFIX = "linedesk_"
# Rates cover the last RATE_SECONDS, latencies the last LATELY_SECONDS.
RATE_SECONDS = 10.0
LATELY_SECONDS = 60.0
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
# A percentile of one of these lies above the last bound; rows of older releases have the first.
OPEN_BOUNDS = (300.0, SECONDS_BUCKETS[-1])

Series = tuple[str, tuple[str, ...]]
"""A figure's name and the values of its labels, in the order of their names."""


@dataclass(frozen=True)
class Figure:
    """A metric that is measured together with others; with a `label` it has a value for each."""

    name: str
    """Without `linedesk_`; a counter's without `_total`."""
    help: str
    label: str | None = None
    is_count: bool = False

    def family(self, value: float | Mapping[str, float] | None) -> Metric:
        """As prometheus-client renders it; without a value there is nothing below its name."""
        made = CounterMetricFamily if self.is_count else GaugeMetricFamily
        labels = [] if self.label is None else [self.label]
        family = made(PREFIX + self.name, self.help, labels=labels)
        if isinstance(value, Mapping):
            for of, one in value.items():
                family.add_metric([of], one)
        elif value is not None:
            family.add_metric([], value)
        return family


Values = Mapping[str, float | Mapping[str, float] | None]


class Measured:
    """Figures that are measured together, and omitted everywhere while they are unknown.

    Their values are the last ones set; or, with `ask`, the values that it returns each time.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        figures: Sequence[Figure],
        *,
        ask: Callable[[], Values] | None = None,
    ) -> None:
        self._figures = figures
        self._values: Values = {}
        self._ask = ask or (lambda: self._values)
        registry.register(self)

    def set(self, values: Values) -> None:
        """Set the values by names without `linedesk_`; figures not included become unknown."""
        self._values = values

    def describe(self) -> list[Metric]:
        """The names, so that the registry rejects duplicates."""
        return [figure.family(None) for figure in self._figures]

    def collect(self) -> list[Metric]:
        """All figures of one moment, for the registry."""
        values = self._ask()
        return [figure.family(values.get(figure.name)) for figure in self._figures]


class Extremes:
    """The smallest and the largest value since the last `take`; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: tuple[float, float] | None = None  # written under _lock

    def note(self, value: float) -> None:
        """Add a value."""
        seen = self._seen
        if seen is not None and seen[0] <= value <= seen[1]:
            return
        with self._lock:
            low, high = self._seen or (value, value)
            self._seen = min(low, value), max(high, value)

    def take(self) -> tuple[float, float] | None:
        """Return both and reset them; None without values."""
        with self._lock:
            taken, self._seen = self._seen, None
        return taken


TakeExtremes = Callable[[], Mapping[tuple[str, ...], tuple[float, float]]]
"""For each series, by the values of its labels, the extremes since the last call."""


class BoundedMetric(Metric):
    """A histogram's samples, with its extreme values, beyond which no percentile lies.

    Only `MetricsSnapshots` takes them: one for each registry.
    """

    take_extremes: TakeExtremes

    @classmethod
    def of(cls, metric: Metric, take_extremes: TakeExtremes) -> BoundedMetric:
        """The metric's samples with their extreme values."""
        bounded = cls(metric.name, metric.documentation, metric.type, metric.unit)
        bounded.samples = metric.samples
        bounded.take_extremes = take_extremes
        return bounded


class Histogram(PrometheusHistogram):
    """prometheus-client's, which also keeps its extreme values."""

    def _metric_init(self) -> None:
        super()._metric_init()
        self._extremes = Extremes()

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        """Count one value, from any thread."""
        # Noted before it is counted: a snapshot then knows the size of every value it counts.
        self._extremes.note(amount)
        super().observe(amount, exemplar)

    def collect(self) -> list[Metric]:
        """The samples, with the function that takes the extreme values."""
        return [BoundedMetric.of(metric, self._take_extremes) for metric in super().collect()]

    def _take_extremes(self) -> Mapping[tuple[str, ...], tuple[float, float]]:
        each: dict[tuple[str, ...], Any] = {(): self}
        if self._labelnames:
            with self._lock:
                each = {tuple(labels): one for labels, one in self._metrics.items()}
        taken = {labels: one._extremes.take() for labels, one in each.items()}
        return {labels: value for labels, value in taken.items() if value is not None}


@dataclass(frozen=True)
class MetricsSnapshot:
    """All figures of one moment. Figures without a value are omitted."""

    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    figures: dict[str, Any] = field(default_factory=dict)
    """Counts since the start of the process, and measured figures; count and sum of histograms."""
    per_second: dict[str, Any] = field(default_factory=dict)
    """The rate of each count over the last RATE_SECONDS."""
    lately: dict[str, Any] = field(default_factory=dict)
    """Each histogram over the last LATELY_SECONDS: count; with any values also sum, p50, p90, p99,
    and max if known.
    """


@dataclass
class _Reading:
    """One reading of the registry."""

    counts: dict[Series, float] = field(default_factory=dict)
    gauges: dict[Series, float] = field(default_factory=dict)
    sums: dict[Series, float] = field(default_factory=dict)
    buckets: dict[Series, list[tuple[float, float]]] = field(default_factory=dict)
    """Upper bounds in seconds, with how many observations were below each."""
    extremes: dict[Series, tuple[float, float]] = field(default_factory=dict)
    """The smallest and the largest observation since the reading before."""


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
        now, reading = self._monotonic(), _read(self._registry)
        self._readings.append((now, reading))
        while len(self._readings) > 2 and self._readings[1][0] <= now - LATELY_SECONDS:
            self._readings.popleft()
        self.latest = MetricsSnapshot(
            figures=_nested({**reading.gauges, **reading.counts, **_totals(reading)}),
            per_second=_nested(dict(self._rates(now, reading))),
            lately=_nested(dict(self._lately(reading))),
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

    def _lately(self, reading: _Reading) -> Iterator[tuple[Series, dict[str, Any]]]:
        before = self._readings[0][1] if len(self._readings) > 1 else _Reading()
        for series, buckets in reading.buckets.items():
            earlier = dict(before.buckets.get(series, ()))
            since = [(le, count - earlier.get(le, 0.0)) for le, count in buckets]
            told = spread(since, extremes=self._extremes(series))
            if told["count"]:
                told["sum"] = round(reading.sums[series] - before.sums.get(series, 0.0), 6)
            yield series, told

    def _extremes(self, series: Series) -> tuple[float, float] | None:
        """The extreme observations after the first reading; of all, if there is only one."""
        readings = [reading for _, reading in self._readings]
        found = [one.extremes[series] for one in readings[1:] or readings if series in one.extremes]
        return (min(low for low, _ in found), max(high for _, high in found)) if found else None


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


def spread(
    buckets: Sequence[tuple[float, float]], *, extremes: tuple[float, float] | None = None
) -> dict[str, Any]:
    """The distribution of observations: count, p50, p90 and p99, from cumulative buckets ending at
    +Inf.

    Values are assumed to be evenly distributed within their bucket, as in Prometheus's
    histogram_quantile, but within the extremes, if known; the largest is then returned as max.
    """
    count = buckets[-1][1] if buckets else 0.0
    if not count:
        return {"count": 0}
    least, most = extremes or (0.0, 0.0)
    quantiles = {name: _quantile(buckets, part * count, most) for name, part in QUANTILES.items()}
    if extremes is None:
        return {"count": int(count), **quantiles}
    bounded = {name: round(min(max(one, least), most), 6) for name, one in quantiles.items()}
    return {"count": int(count), **bounded, "max": round(most, 6)}


def _quantile(buckets: Sequence[tuple[float, float]], rank: float, most: float) -> float:
    for (low, below), (high, upto) in pairwise([(0.0, 0.0), *buckets]):
        if upto >= rank:
            inside = (rank - below) / (upto - below) if upto > below else 1.0
            # Only the largest value bounds those above the last bound.
            end = max(low, most) if high == float("inf") else high
            return round(low + (end - low) * inside, 6)
    return buckets[-1][0]


def figure_name(metric: str) -> str:
    """The name of a metric's figure in MongoDB."""
    first, *others = metric.removeprefix(PREFIX).removesuffix("_total").split("_")
    return first + "".join(word.capitalize() for word in others)


def _read(registry: CollectorRegistry) -> _Reading:
    reading = _Reading()
    for family in registry.collect():
        if family.name.startswith(PREFIX):
            _enter(reading, family)
    return reading


def _enter(reading: _Reading, family: Metric) -> None:
    name = figure_name(family.name)
    if isinstance(family, BoundedMetric):
        reading.extremes |= {(name, of): both for of, both in family.take_extremes().items()}
    for sample in family.samples:
        labels = {key: value for key, value in sample.labels.items() if key != "le"}
        series = name, tuple(labels.values())
        if family.type == "gauge":
            reading.gauges[series] = sample.value
        elif sample.name.endswith("_total"):
            reading.counts[series] = sample.value
        elif sample.name.endswith("_bucket"):
            bound = float(sample.labels["le"])
            reading.buckets.setdefault(series, []).append((bound, sample.value))
        elif sample.name.endswith("_sum"):
            reading.sums[series] = sample.value


def _totals(reading: _Reading) -> dict[Series, dict[str, Any]]:
    return {
        series: {"count": int(buckets[-1][1]), "sum": round(reading.sums.get(series, 0.0), 6)}
        for series, buckets in reading.buckets.items()
    }


def _nested(values: Mapping[Series, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for (name, labels), value in values.items():
        *outer, last = (name, *labels)
        place = document
        for part in outer:
            place = place.setdefault(part, {})
        place[last] = int(value) if isinstance(value, float) and value.is_integer() else value
    return document
