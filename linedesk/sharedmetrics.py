"""The figures of several processes that share a port: whichever is asked tells of all of them.

Each writes its own into a file of the group's folder. prometheus_client's mode for this maps its
files into memory: on a full disk the next count ends the process (SIGBUS), and every count takes
longer. Here a file that cannot be written only makes the figures stand still.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from linedesk.metrics import MetricsServer
from recvq.boottime import boottime
from recvq.status import FRESH_SECONDS

log = logging.getLogger(__name__)

EVERY_SECONDS = 1.0
JOIN_SECONDS = 1.0
# Taking a place takes a millisecond or two, on a busy machine more.
CLAIM_SECONDS = 2.0
CLAIM_LOOK_SECONDS = 0.01
MOST_PROCESSES = 64
COUNTS = frozenset({"counter", "histogram"})


@contextmanager
def serve_shared(shared: SharedMetrics, host: str, port: int) -> Iterator[None]:
    """Answer for all of them at a port that all of them listen on."""
    with shared, MetricsServer(shared, host, port, share_port=True) as server:
        server.start()
        yield


@dataclass(frozen=True)
class Gauges:
    """How gauges of several processes become one, by name: the largest counts but for these."""

    summed: frozenset[str] = frozenset()
    smallest: frozenset[str] = frozenset()


class SharedMetrics:
    """The registry of this process together with those of the others in `folder`.

    What is counted never goes back, whoever is asked and whoever was killed meanwhile, as long as
    one process of the group lives: who comes next goes on from the counts of one that ended. What
    is measured is of living processes only.
    """

    def __init__(self, registry: CollectorRegistry, folder: Path, gauges: Gauges) -> None:
        self._registry = registry
        self._folder = folder
        self._gauges = gauges
        self._lock = threading.Lock()  # guards all below
        self._place: _Place | None = None
        self._counted: list[Metric] = []
        self._told: str | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics-share", daemon=True)

    def __enter__(self) -> SharedMetrics:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        # A disk may hang, and nothing depends on the last word.
        self._thread.join(JOIN_SECONDS)

    def collect(self) -> Iterable[Metric]:
        """The figures of all; raises OSError while this process has no place in the folder."""
        with self._lock:
            own = list(self._registry.collect())
            self._write(own)
            if self._place is None:
                raise OSError(errno.EAGAIN, "no place among the others yet")
            # Not what is counted but what the others can read of it: else it would go back when
            # one of them is asked next.
            parts = [self._counted, _measured(own), *self._place.others()]
        return _merged(parts, self._gauges)

    def _run(self) -> None:
        while not self._stop.is_set():
            with self._lock:
                self._write(list(self._registry.collect()))
            self._stop.wait(EVERY_SECONDS)
        with self._lock:
            self._write(_counts(self._registry.collect()))
            if self._place is not None:
                self._place.leave()

    def _write(self, own: list[Metric]) -> None:
        try:
            if self._place is None:
                self._place = _Place.take(self._folder)
            counted = _merged([_counts(own), self._place.before], self._gauges)
            self._place.write([*counted, *_measured(own)])
        except OSError as error:
            reason = error.strerror or type(error).__name__
            if self._told != reason:
                self._told = reason
                words = 'metrics not shared, trying again folder="%s" reason="%s"'
                log.error(words, self._folder, reason)  # noqa: TRY400  # expected
        else:
            self._counted, self._told = counted, None


@dataclass(frozen=True)
class _Place:
    """One process's place among those of a folder: a file, and a lock that lives as it does."""

    folder: Path
    number: int
    lock: int
    before: list[Metric]
    """What was counted here by those that had the place before."""

    @staticmethod
    def take(folder: Path) -> _Place:
        """The first place that is free; raises OSError. Where nobody lives it forgets the dead."""
        folder.mkdir(mode=0o700, exist_ok=True)
        with _locked(folder / "claim.lock"):
            if not any(_held(path) for path in folder.glob("[0-9]*.lock")):
                for path in folder.glob("*.json"):
                    path.unlink()
            for number in range(MOST_PROCESSES):
                if (lock := _tried(_lock_of(folder, number))) is not None:
                    return _Place(folder, number, lock, _counts(_read(_file_of(folder, number))))
        raise OSError(errno.EUSERS, f"there are {MOST_PROCESSES} processes already")

    def write(self, metrics: Iterable[Metric]) -> None:
        """Let the others read these; raises OSError, and what stood there stays."""
        content = {"at": boottime(), "metrics": [_as_json(metric) for metric in metrics]}
        new = self.folder / f"{self.number}.new"
        new.write_text(json.dumps(content), "utf-8")
        new.replace(_file_of(self.folder, self.number))

    def others(self) -> Iterator[list[Metric]]:
        """What the others have written: of those that no longer live, or hang, only the counts."""
        for path in self.folder.glob("[0-9]*.json"):
            if path.stem == str(self.number):
                continue
            yield _read(path) if _held(path.with_suffix(".lock")) else _counts(_read(path))

    def leave(self) -> None:
        """Let another one have it."""
        os.close(self.lock)


def _merged(parts: Iterable[Iterable[Metric]], gauges: Gauges) -> list[Metric]:
    """One metric of all that have the same name: counts are added up."""
    whole: dict[str, Metric] = {}
    values: dict[tuple[str, str, tuple[tuple[str, str], ...]], float] = {}
    for metric in (metric for part in parts for metric in part):
        whole.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
        for sample in metric.samples:
            place = metric.name, sample.name, tuple(sample.labels.items())
            before = values.get(place)
            new = sample.value
            values[place] = new if before is None else _joined(metric, before, new, gauges)
    for (name, sample_name, labels), value in values.items():
        whole[name].add_sample(sample_name, dict(labels), value)
    return list(whole.values())


def _joined(metric: Metric, one: float, other: float, gauges: Gauges) -> float:
    if metric.type in COUNTS or metric.name in gauges.summed:
        return one + other
    return min(one, other) if metric.name in gauges.smallest else max(one, other)


def _counts(metrics: Iterable[Metric]) -> list[Metric]:
    return [metric for metric in metrics if metric.type in COUNTS]


def _measured(metrics: Iterable[Metric]) -> list[Metric]:
    return [metric for metric in metrics if metric.type not in COUNTS]


def _as_json(metric: Metric) -> list[Any]:
    samples = [[sample.name, sample.labels, sample.value] for sample in metric.samples]
    return [metric.name, metric.documentation, metric.type, samples]


def _read(path: Path) -> list[Metric]:
    """What one process wrote; nothing where it is no such file, and no gauge of one that hangs."""
    try:
        content = json.loads(path.read_text("utf-8"))
        metrics = [_from_json(*written) for written in content["metrics"]]
        fresh = 0 <= boottime() - content["at"] <= FRESH_SECONDS
    except (OSError, ValueError, TypeError, KeyError):
        return []
    return metrics if fresh else _counts(metrics)


def _from_json(name: str, documentation: str, kind: str, samples: Iterable[Any]) -> Metric:
    metric = Metric(name, documentation, kind)
    for sample_name, labels, value in samples:
        metric.add_sample(sample_name, labels, float(value))
    return metric


def _file_of(folder: Path, number: int) -> Path:
    return folder / f"{number}.json"


def _lock_of(folder: Path, number: int) -> Path:
    return folder / f"{number}.lock"


def _tried(path: Path) -> int | None:
    """A lock that the kernel frees at kill -9, too; None while another process has it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except OSError:
        os.close(lock)
        raise
    return lock


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Waits a moment for whoever takes a place just now; raises BlockingIOError after that."""
    until = time.monotonic() + CLAIM_SECONDS
    while (lock := _tried(path)) is None:
        if time.monotonic() > until:
            raise BlockingIOError(errno.EAGAIN, "a process stands still amid taking its place")
        threading.Event().wait(CLAIM_LOOK_SECONDS)
    try:
        yield
    finally:
        os.close(lock)


def _held(path: Path) -> bool:
    """Whether a living process has it. Who takes a place at this very moment gets the next one."""
    lock = _tried(path)
    if lock is not None:
        os.close(lock)
    return lock is None
