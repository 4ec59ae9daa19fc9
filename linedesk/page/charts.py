"""Curves of the last hours as SVG: axes with units, gaps without data, texts for a hover.

Texts are in the language of the context. This module computes; the template draws. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

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
# The smallest span of an axis, so that a quiet hour is a quiet line.
LEAST_TOP = 5.0


@dataclass(frozen=True)
class Curve:
    """One line: its label, the field it shows, and its colour's number."""

    label: str
    field: str
    colour: int


@dataclass(frozen=True)
class Kind:
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


@dataclass(frozen=True)
class Tick:
    """A mark on an axis; on a time axis also with its moment."""

    at: float
    label: str
    moment: datetime | None = None


@dataclass(frozen=True)
class Hover:
    """A slice of time, its last moment, and the value of each curve at it."""

    x: float
    width: float
    moment: datetime
    lines: list[str]
    seconds: float

    @property
    def period(self) -> str:
        """Its whole minutes as the query of a list's address."""
        since = (self.moment - timedelta(seconds=self.seconds)).replace(second=0, microsecond=0)
        until = self.moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
        return urlencode({"from": since.isoformat(), "to": until.isoformat()})


@dataclass(frozen=True)
class Drawn:
    """A curve's path, broken where data is missing, and its newest value."""

    curve: Curve
    path: str
    newest: str


@dataclass(frozen=True)
class Outage:
    """A period in which LINE failed or refused the token; `until` is None while it lasts."""

    x: float
    width: float
    since: datetime
    until: datetime | None
    cause: float = 1
    """The value of `lineFails`."""


@dataclass(frozen=True)
class Chart:
    """One chart, ready for its template."""

    kind: Kind
    newest_at: datetime | None
    """The moment of the newest values."""
    outages: list[Outage]
    marks: list[Tick]
    """Starts, pauses and times without data, in time order."""
    drawn: list[Drawn]
    across: list[Tick]
    up: list[Tick]
    hovers: list[Hover]

    @property
    def is_empty(self) -> bool:
        """Whether the period has no data."""
        return not any(one.path for one in self.drawn)


def charts(
    rows: Sequence[Document], *, hours: int, now: datetime, marks: Sequence[Mark] = ()
) -> list[Chart]:
    """Return all charts for rows of `history` in time order."""
    return [_chart(kind, rows, marks, hours=hours, now=now) for kind in KINDS]


def _chart(
    kind: Kind, rows: Sequence[Document], marks: Sequence[Mark], *, hours: int, now: datetime
) -> Chart:
    since, span = now - timedelta(hours=hours), hours * 3600.0

    def x_of(moment: datetime) -> float:
        return LEFT + (RIGHT - LEFT) * (moment - since).total_seconds() / span

    values = [v for row in rows for one in kind.curves if (v := _value(row, one)) is not None]
    y_of, up = (_logarithmic if kind.logarithmic else _linear)(kind, values)
    gap_seconds = max(3 * ROW_SECONDS, 2.5 * span / 360)
    return Chart(
        kind,
        rows[-1]["at"] if rows else None,
        list(_outages(rows, now, x_of, gap_seconds)),
        [
            Tick(x_of(at), words, at)
            for at, words in sorted([*marks, *gaps(rows, longest_seconds=gap_seconds)])
        ],
        [
            Drawn(one, _path(rows, one, x_of, y_of, gap_seconds), _newest(rows, one, kind))
            for one in kind.curves
        ],
        list(_across(since, now, STEPS[hours], x_of)),
        up,
        list(_hovers(kind, rows, x_of, span)),
    )


def _value(row: Row, curve: Curve) -> float | None:
    value = row.get(curve.field)
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _newest(rows: Sequence[Row], curve: Curve, kind: Kind) -> str:
    return kind.words(_value(rows[-1], curve)) if rows else kind.words(None)


def _linear(kind: Kind, values: Sequence[float]) -> tuple[Callable[[float], float], list[Tick]]:
    step = nice_step(max([*values, LEAST_TOP]) / 4)
    top = step * math.ceil(max([*values, LEAST_TOP]) / step)

    def y_of(value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * min(max(value, 0.0), top) / top

    marks = [step * n for n in range(round(top / step) + 1)]
    return y_of, [Tick(y_of(mark), _mark(kind, mark)) for mark in marks]


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
    return y_of, [Tick(y_of(10.0**power), _mark(kind, 10.0**power)) for power in powers]


def _mark(kind: Kind, value: float) -> str:
    """Return the label of a mark: an axis has room for one unit."""
    if kind.words is seconds and value >= 10:
        return _("{count} s").format(count=f"{value:,.0f}")
    return kind.words(value)


def nice_step(least: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is at least this."""
    power: float = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * 0.9999)


def _path(
    rows: Sequence[Row],
    curve: Curve,
    x_of: Callable[[datetime], float],
    y_of: Callable[[float], float],
    gap_seconds: float,
) -> str:
    parts: list[str] = []
    before: datetime | None = None
    for row in rows:
        value = _value(row, curve)
        if value is None:
            before = None
            continue
        joined = before is not None and (row["at"] - before).total_seconds() <= gap_seconds
        point = f"{x_of(row['at']):.1f} {y_of(value):.1f}"
        # A point between two gaps is visible, too: its end is round.
        parts.append(f"L{point}" if joined else f"M{point}h.01")
        before = row["at"]
    return "".join(parts)


def _outages(
    rows: Sequence[Row], now: datetime, x_of: Callable[[datetime], float], gap_seconds: float
) -> Iterator[Outage]:
    since: datetime | None = None
    last, cause = now, 1
    for row in rows:
        is_gap = (row["at"] - last).total_seconds() > gap_seconds
        if since is not None and (is_gap or row.get(LINE_FAILS) != cause):
            until = last if is_gap else row["at"]
            yield Outage(x_of(since), x_of(until) - x_of(since), since, until, cause)
            since = None
        if row.get(LINE_FAILS):
            since, last, cause = since or row["at"], row["at"], row[LINE_FAILS]
    if since is not None:
        lasts = (now - last).total_seconds() <= gap_seconds
        end = now if lasts else last
        yield Outage(x_of(since), x_of(end) - x_of(since), since, None if lasts else last, cause)


def _across(
    since: datetime, now: datetime, step: timedelta, x_of: Callable[[datetime], float]
) -> Iterator[Tick]:
    local = since.astimezone()
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    mark = midnight + step * math.ceil((local - midnight) / step)
    while mark <= now:
        yield Tick(x_of(mark), f"{mark.astimezone():%H:%M}", mark.astimezone(UTC))
        mark += step


def _hovers(
    kind: Kind, rows: Sequence[Row], x_of: Callable[[datetime], float], span: float
) -> Iterator[Hover]:
    width = (RIGHT - LEFT) / SLICES
    by_slice: dict[int, Row] = {}
    for row in rows:
        by_slice[int((x_of(row["at"]) - LEFT) // width)] = row
    for n, row in by_slice.items():
        if 0 <= n < SLICES:
            told = [f"{_(one.label)}: {kind.words(_value(row, one))}" for one in kind.curves]
            yield Hover(LEFT + n * width, width, row["at"], told, span / SLICES)
