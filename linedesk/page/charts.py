"""Curves of the last hours as SVG: axes with units, gaps without data, texts for a hover.

Texts are in the language of the context. This module computes; the template draws. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

from linedesk.operate.format import for_long
from linedesk.operate.history import Mark, gaps
from linedesk.page.format import number, rate, seconds
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark
from linedesk.store.documents import Document
from linedesk.store.records.history import (
    CALL_RATE,
    DECIDED_RATE,
    HANDLER_P50,
    HANDLER_P99,
    HELD_DOCUMENTS,
    LAG_DOCUMENTS,
    LAG_SECONDS,
    LINE_FAILS,
    OLDEST_SECONDS,
    OLDEST_SEND_SECONDS,
    OUTBOX_EFFECTS,
    QUEUE_DOCUMENTS,
    READ_RATE,
    WAIT_P50,
    WAIT_P99,
)

Row = Mapping[str, Any]
HOURS = (1, 6, 24)
# Of a picture of 560 x 135, whose frame is in templates/charts.html.
LEFT, RIGHT, TOP, BOTTOM = 52.0, 552.0, 10.0, 111.0
# A hover covers one slice of time.
SLICES = 90
# A dispatcher writes a row each ten seconds; a longer pause is a gap.
ROW_SECONDS = 10.0
STEPS = {1: timedelta(minutes=10), 6: timedelta(hours=1), 24: timedelta(hours=4)}
# The smallest top of an axis.
LEAST_TOP = 5.0


class Curve(NamedTuple):
    """One line: its label, the field it shows, and its colour's number."""

    label: str
    field: str
    colour: int


class Kind(NamedTuple):
    """The content of a chart. A logarithmic axis is for values from milliseconds to minutes."""

    id: str
    title: str
    curves: tuple[Curve, ...]
    words: Callable[[float | None], str]
    logarithmic: bool = False


KINDS = (
    Kind(
        "depth",
        mark("Unfinished events, and answers to send"),
        (
            Curve(mark("all"), QUEUE_DOCUMENTS, 1),
            Curve(mark("not read yet"), LAG_DOCUMENTS, 2),
            Curve(mark("held"), HELD_DOCUMENTS, 3),
            Curve(mark("to send"), OUTBOX_EFFECTS, 4),
        ),
        number,
    ),
    Kind(
        "age",
        mark("Age of the oldest event that is unfinished, unread or has an answer to send"),
        (
            Curve(mark("unfinished"), OLDEST_SECONDS, 1),
            Curve(mark("not read yet"), LAG_SECONDS, 2),
            Curve(mark("to send"), OLDEST_SEND_SECONDS, 4),
        ),
        seconds,
    ),
    Kind(
        "latency",
        mark("Wait from arrival to handler, and the handler itself, each in the minute before"),
        (
            Curve(mark("wait p99"), WAIT_P99, 2),
            Curve(mark("wait p50"), WAIT_P50, 1),
            Curve(mark("handler p99"), HANDLER_P99, 4),
            Curve(mark("handler p50"), HANDLER_P50, 3),
        ),
        seconds,
        logarithmic=True,
    ),
    Kind(
        "rates",
        mark("Events and calls of LINE"),
        (
            Curve(mark("read"), READ_RATE, 1),
            Curve(mark("decided"), DECIDED_RATE, 2),
            Curve(mark("calls"), CALL_RATE, 3),
        ),
        rate,
    ),
)


class Tick(NamedTuple):
    """A mark on an axis; on a time axis also with its moment."""

    at: float
    label: str
    moment: datetime | None = None


class Hover(NamedTuple):
    """A slice of time, its last moment, with the value of each curve then, and its whole minutes as
    the query of a list's address.
    """

    x: float
    width: float
    moment: datetime
    lines: list[str]
    period: str


class Drawn(NamedTuple):
    """A curve's path, broken where data is missing, and its newest value."""

    curve: Curve
    path: str
    newest: str


class Chart(NamedTuple):
    """One chart, ready for its template."""

    kind: Kind
    newest_at: datetime | None
    """The moment of the newest values."""
    marks: list[Tick]
    """Starts, pauses, outages of LINE and times without data, in time order."""
    drawn: list[Drawn]
    across: list[Tick]
    up: list[Tick]
    hovers: list[Hover]

    @property
    def is_empty(self) -> bool:
        """Whether the period has no data."""
        return not any(one.path for one in self.drawn)


XOf = Callable[[datetime], float]


def charts(
    rows: Sequence[Document], *, hours: int, now: datetime, marks: Sequence[Mark] = ()
) -> list[Chart]:
    """Return all charts for rows of `history` in time order."""
    since, span = now - timedelta(hours=hours), hours * 3600.0
    gap_seconds = max(3 * ROW_SECONDS, 2.5 * span / 360)

    def x_of(moment: datetime) -> float:
        return LEFT + (RIGHT - LEFT) * (moment - since).total_seconds() / span

    newest_at = rows[-1]["at"] if rows else None
    gone = gaps(rows, longest_seconds=gap_seconds)
    marked = sorted([*marks, *gone, *_outages(rows, now, gap_seconds)])
    ticks = [Tick(x_of(at), words, at) for at, words in marked]
    across = list(_across(since, now, STEPS[hours], x_of))
    found = []
    for kind in KINDS:
        values = [v for row in rows for one in kind.curves if (v := _value(row, one)) is not None]
        y_of, up = (_logarithmic if kind.logarithmic else _linear)(kind, values)
        drawn = []
        for one in kind.curves:
            points = [(row["at"], _value(row, one)) for row in rows]
            newest = kind.words(points[-1][1] if points else None)
            drawn.append(Drawn(one, _polyline(points, x_of, y_of, gap_seconds), newest))
        hovers = list(_hovers(kind, rows, x_of, span))
        found.append(Chart(kind, newest_at, ticks, drawn, across, up, hovers))
    return found


def _value(row: Row, curve: Curve) -> float | None:
    value = row.get(curve.field)
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _linear(kind: Kind, values: Sequence[float]) -> tuple[Callable[[float], float], list[Tick]]:
    # A quiet hour is a quiet line.
    largest = max([*values, LEAST_TOP])
    step = nice_step(largest / 4)
    top = step * math.ceil(largest / step)

    def y_of(value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * min(max(value, 0.0), top) / top

    marks = [step * n for n in range(round(top / step) + 1)]
    return y_of, [Tick(y_of(mark), _label(kind, mark)) for mark in marks]


def _logarithmic(
    kind: Kind, values: Sequence[float]
) -> tuple[Callable[[float], float], list[Tick]]:
    some = [value for value in values if value > 0] or [0.001, 1.0]
    low = math.floor(math.log10(max(min(some), 0.0001)))
    high = max(math.ceil(math.log10(max(some))), low + 1)

    def y_of(value: float) -> float:
        power = min(max(math.log10(max(value, 0.00001)), low), high)
        return BOTTOM - (BOTTOM - TOP) * (power - low) / (high - low)

    powers = range(low, high + 1)
    return y_of, [Tick(y_of(10.0**power), _label(kind, 10.0**power)) for power in powers]


def _label(kind: Kind, value: float) -> str:
    """Return the label of a mark: an axis has room for one unit."""
    if kind.words is seconds and value >= 10:
        return _("{count} s").format(count=f"{value:,.0f}")
    return kind.words(value)


def nice_step(least: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is at least this."""
    power: float = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * 0.9999)


def _polyline(
    points: Sequence[tuple[datetime, float | None]],
    x_of: XOf,
    y_of: Callable[[float], float],
    gap_seconds: float,
) -> str:
    parts: list[str] = []
    before: datetime | None = None
    for at, value in points:
        if value is None:
            before = None
            continue
        joined = before is not None and (at - before).total_seconds() <= gap_seconds
        point = f"{x_of(at):.1f} {y_of(value):.1f}"
        # A point between two gaps is visible, too: its end is round.
        parts.append(f"L{point}" if joined else f"M{point}h.01")
        before = at
    return "".join(parts)


def _outages(rows: Sequence[Row], now: datetime, gap_seconds: float) -> Iterator[Mark]:
    """Each row holds until the next one; before a gap only for its moment."""
    found: list[tuple[datetime, datetime, float]] = []
    for row, end in zip(rows, [*(one["at"] for one in rows[1:]), now], strict=False):
        if not (cause := row.get(LINE_FAILS)):
            continue
        since = row["at"]
        until = end if (end - since).total_seconds() <= gap_seconds else since
        if found and found[-1][1:] == (since, cause):
            since = found.pop()[0]
        found.append((since, until, cause))
    for since, until, cause in found:
        words = _("LINE refused the access token") if cause == 2 else _("LINE failed")
        lasted = for_long((until - since).total_seconds())
        yield since, _("{outage} for {time}").format(outage=words, time=lasted)


def _across(since: datetime, now: datetime, step: timedelta, x_of: XOf) -> Iterator[Tick]:
    local = since.astimezone()
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    mark = midnight + step * math.ceil((local - midnight) / step)
    while mark <= now:
        yield Tick(x_of(mark), f"{mark.astimezone():%H:%M}", mark.astimezone(UTC))
        mark += step


def _hovers(kind: Kind, rows: Sequence[Row], x_of: XOf, span: float) -> Iterator[Hover]:
    width = (RIGHT - LEFT) / SLICES
    # The newest row of each slice.
    by_slice = {int((x_of(row["at"]) - LEFT) // width): row for row in rows}
    for n, row in by_slice.items():
        if 0 <= n < SLICES:
            at, slice_ = row["at"], timedelta(seconds=span / SLICES)
            told = [f"{at.astimezone():%H:%M:%S}"]
            told += [f"{_(one.label)}: {kind.words(_value(row, one))}" for one in kind.curves]
            ends = {"from": at - slice_, "to": at + timedelta(minutes=1)}
            minutes = {
                name: end.replace(second=0, microsecond=0).isoformat() for name, end in ends.items()
            }
            yield Hover(LEFT + n * width, width, at, told, urlencode(minutes))
