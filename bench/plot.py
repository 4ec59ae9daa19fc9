"""Plots of reports as SVG files."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from bench.report import Report, Row

mpl.use("svg")

from matplotlib import pyplot as plt  # after the choice of what it draws with

SETTINGS = {
    # The same figures give the same file, and its text stays text.
    "svg.hashsalt": "linedesk",
    "svg.fonttype": "none",
    "font.family": ["sans-serif"],
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def write_svg(reports: Sequence[Report], path: Path) -> None:
    """One picture a report, one below the other."""
    with mpl.rc_context(SETTINGS), warnings.catch_warnings():
        # The program that shows the file draws the letters, with fonts that may well have them.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        heights = [_height(report) for report in reports]
        figure, axes = plt.subplots(
            len(reports),
            1,
            figsize=(8, sum(heights)),
            height_ratios=heights,
            layout="constrained",
            squeeze=False,
        )
        for report, axis in zip(reports, axes[:, 0], strict=True):
            _draw(report, axis)
        figure.savefig(path, metadata={"Date": None, "Creator": None})
        plt.close(figure)


def _height(report: Report) -> float:
    return 4.0 if _along(report) else 1.2 + 0.35 * len(report.rows)


def _along(report: Report) -> str:
    """The setting that the x axis shows, if numbers of one setting were tried; '' otherwise."""
    names = {name for row in report.rows for name in row.case}
    for name in sorted(names):
        values = {row.case.get(name) for row in report.rows}
        if len(values) > 2 and all(isinstance(value, int | float) for value in values):
            return name
    return ""


def _draw(report: Report, axis: Any) -> None:
    figure = next(iter(report.rows[0].rounds[0]))
    axis.set_title(report.title, loc="left")
    along = _along(report)
    if not along:
        shared = {name for row in report.rows for name in row.case if _is_shared(name, report)}
        labels = [_label(row, without=shared) for row in report.rows]
        axis.barh(labels, [row.median(figure) for row in report.rows], xerr=_errors(report, figure))
        axis.invert_yaxis()
        axis.set_xlabel(figure)
        return
    lines: dict[str, list[Row]] = {}
    for row in report.rows:
        lines.setdefault(_label(row, without={along}), []).append(row)
    for label, rows in lines.items():
        x = [row.case[along] for row in rows]
        axis.plot(x, [row.median(figure) for row in rows], marker="o", label=label)
    numbers = [float(row.case[along]) for row in report.rows]
    if min(numbers) > 0 and max(numbers) / min(numbers) > 20:
        axis.set_xscale("log")
    heights = [row.median(figure) for row in report.rows]
    if min(heights) > 0 and max(heights) / min(heights) > 200:
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0)
    axis.set_xlabel(along)
    axis.set_ylabel(figure)
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def _is_shared(name: str, report: Report) -> bool:
    """Whether all rows have the same value of a setting, so that it distinguishes none."""
    return len({row.case.get(name) for row in report.rows}) == 1


def _label(row: Row, without: Collection[str] = ()) -> str:
    said = ", ".join(f"{name} {value}" for name, value in row.case.items() if name not in without)
    return f"{row.variant}, {said}" if said else row.variant


def _errors(report: Report, figure: str) -> list[list[float]]:
    lower, upper = [], []
    for row in report.rows:
        values = [one[figure] for one in row.rounds]
        lower.append(row.median(figure) - min(values))
        upper.append(max(values) - row.median(figure))
    return [lower, upper]
