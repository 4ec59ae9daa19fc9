"""The results of a bench, and their output: a table and a JSON file.

All variants run by turns, once a round, so that other load slows all of them. A ratio is taken
within a round; its median and its spread show how reliable a figure is.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from linedesk.store.client import connect

PACKAGES = (
    "linedesk",
    "pymongo",
    "fastapi",
    "uvicorn",
    "uvloop",
    "line-bot-sdk",
    "pydantic",
    "pika",
)

Case = Mapping[str, float | str]
Figures = Mapping[str, float]


class BenchFailed(Exception):
    """A step of a bench did not work; its text names the step."""


@dataclass(frozen=True)
class Row:
    """One variant in one case: its figures, round by round."""

    variant: str
    rounds: Sequence[Figures]
    case: Case = field(default_factory=dict)
    """The settings of this row, such as `{"connections": 32}`."""

    def median(self, figure: str) -> float:
        """Of all rounds."""
        return statistics.median(one[figure] for one in self.rounds)


@dataclass(frozen=True)
class Report:
    """All rows of one table."""

    title: str
    rows: Sequence[Row]
    baseline: str = ""
    """The variant whose first figure the others' are divided by; none with ''."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """By variant: the guarantees that it lacks."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of other parts than Python's packages, such as MongoDB."""
    settings: Mapping[str, object] = field(default_factory=dict)

    def ratios(self, row: Row, figure: str = "") -> list[float]:
        """This figure, or its first one, divided by the baseline's of the same case and round."""
        base = next(
            (r for r in self.rows if r.variant == self.baseline and r.case == row.case), None
        )
        if base is None or base is row:
            return []
        figure = figure or next(iter(row.rounds[0]))
        pairs = zip(row.rounds, base.rounds, strict=True)
        return [ours[figure] / theirs[figure] for ours, theirs in pairs if theirs[figure]]


def by_turns(
    variants: Mapping[str, Callable[[], Figures]],
    rounds: int,
    console: Console,
    *,
    case: Case | None = None,
) -> list[Row]:
    """Run all of them once a round, every other round from the last to the first.

    Raises BenchFailed, which names the variant that did not work.
    """
    figures: dict[str, list[Figures]] = {name: [] for name in variants}
    turns = [
        name
        for number in range(rounds)
        for name in (list(variants) if number % 2 == 0 else reversed(list(variants)))
    ]
    said = ", ".join(f"{name} {value}" for name, value in (case or {}).items())
    for name in track(turns, said or "measuring", console=console):
        try:
            figures[name].append(variants[name]())
        except BenchFailed as error:
            raise BenchFailed(f"{name}: {error}") from error
        except Exception as error:
            raise BenchFailed(f"{name}: {type(error).__name__}: {error}") from error
    return [Row(name, measured, case or {}) for name, measured in figures.items()]


def percentiles(milliseconds: Sequence[float]) -> Figures:
    """The figures of many waits; of fewer than two there are none, which raises BenchFailed."""
    if len(milliseconds) < 2:
        raise BenchFailed(f"{len(milliseconds)} times were measured, which is too few")
    cuts = statistics.quantiles(milliseconds, n=100)
    longest = max(milliseconds)
    # Between the values that were seen: the cuts of few values can lie beyond them.
    p50, p90, p99 = (min(cuts[place], longest) for place in (49, 89, 98))
    return {"p50 ms": p50, "p90 ms": p90, "p99 ms": p99, "max ms": longest}


def table_of(report: Report) -> Table:
    """Medians of all figures, and the ratio to the baseline with its spread."""
    cases = list(dict.fromkeys(name for row in report.rows for name in row.case))
    figures = list(dict.fromkeys(name for row in report.rows for name in row.rounds[0]))
    table = Table(title=report.title)
    for name in cases:
        table.add_column(name, justify="right")
    table.add_column("")
    for name in figures:
        table.add_column(name, justify="right")
    if report.baseline:
        table.add_column(f"ratio to {report.baseline} (min to max)", justify="right")
    if report.lacks:
        table.add_column("does not promise")
    for row in report.rows:
        cells = [str(row.case.get(name, "")) for name in cases] + [row.variant]
        cells += [number(row.median(name)) if name in row.rounds[0] else "" for name in figures]
        if report.baseline:
            cells.append(spread(report.ratios(row)))
        if report.lacks:
            cells.append(report.lacks.get(row.variant, ""))
        table.add_row(*cells)
    return table


def number(value: float) -> str:
    """With the significant digits."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread(ratios: Sequence[float]) -> str:
    """Their median, and how far they lie apart."""
    if not ratios:
        return ""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def write_json(
    reports: Sequence[Report],
    path: Path,
    options: Mapping[str, object],
    *,
    compared: Sequence[Mapping[str, object]] | None = None,
) -> None:
    """All data to judge the figures or to draw them."""
    content = {
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "options": dict(options),
        "reports": [asdict(report) for report in reports],
    }
    if compared is not None:
        content["compared"] = compared
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1, default=str) + "\n", "utf-8")


def server_version(uri: str) -> str:
    """The version of the MongoDB server behind a URI, for a closing report."""
    with connect(uri, app_name="linedesk") as client:
        return str(client.server_info()["version"])


def machine() -> dict[str, object]:
    """The processor, the memory and the load of other work; nothing that identifies the machine."""
    cpu = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    models = [line.partition(":")[2].strip() for line in cpu if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_average": os.getloadavg(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
