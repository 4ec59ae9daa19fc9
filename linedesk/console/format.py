"""How values are written: durations, moments and scopes for people, JSON for programs, and what
commands print.

JSON has the names of `status` and times with their zone. Text that people wrote loses its control
characters, which a terminal would obey.
"""

from __future__ import annotations

import json
import math
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

UNITS = ((24 * 3600, "d"), (3600, "h"), (60, "min"), (1, "s"))
MS_BELOW_SECONDS = 1.0
TENTHS_BELOW_SECONDS = 10.0


def for_long(seconds: float) -> str:
    """A duration in its two largest units, such as `2 h 5 min`."""
    left, parts = int(seconds), []
    for size, unit in UNITS:
        if left >= size:
            parts.append(f"{left // size} {unit}")
        elif parts:
            break
        left %= size
        if len(parts) == 2:
            break
    return " ".join(parts) or "0 s"


def brief(seconds: float | None) -> str:
    """A duration however short: `3.1 ms`, `420 ms`, `4.2 s`, `2 h 5 min`; - for None."""
    if seconds is None:
        return "-"
    if seconds == 0:
        return "0 s"
    if seconds < TENTHS_BELOW_SECONDS / 1000:
        return f"{seconds * 1000:.1f} ms"
    if seconds < MS_BELOW_SECONDS:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < TENTHS_BELOW_SECONDS else for_long(seconds)


def local(moment: datetime | None) -> str:
    """A moment in this machine's time, with its zone."""
    if moment is None:
        return "-"
    return moment.astimezone().isoformat(sep=" ", timespec="seconds")


def clock(moment: datetime | None) -> str:
    """The time of day in this machine's time, to the millisecond."""
    if moment is None:
        return "-"
    return moment.astimezone().strftime("%H:%M:%S.%f")[:-3]


def scope_words(channel: object, key: object) -> str:
    """What a pause is about."""
    if not channel:
        return "everything"
    return f"{channel}/{key}" if key else f"channel {channel}"


def as_json(value: Any) -> Any:
    """What `json.dumps` takes: a dataclass becomes an object, its names in camel case.

    A time is told in this machine's time, with its zone; what JSON does not know as its text, and
    what is no number as null.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {_camel(one.name): as_json(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): as_json(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(inner) for inner in value]
    if isinstance(value, datetime):
        return value.astimezone().isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


LABEL_WIDTH = 13
# They turn the rest of a line round: embeddings, overrides, isolates.
TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def echo_json(told: Mapping[str, Any]) -> None:
    """One JSON object on one line."""
    click.echo(json.dumps(told, ensure_ascii=False, default=plain))


def plain(value: Any) -> str:
    """What JSON has no form for: times with this machine's zone, ids as their text."""
    return value.astimezone().isoformat() if isinstance(value, datetime) else str(value)


def visible(text: str) -> str:
    """Without control characters, which a terminal would obey."""
    return "".join(
        f"\\x{ord(c):02x}"
        if c in TURNING or (unicodedata.category(c) == "Cc" and c not in "\n\t")
        else c
        for c in text
    )


def one_line(value: object) -> str:
    """The same of whatever it is, on one line and without a tab."""
    return visible(str(value)).replace("\t", " ").replace("\n", " ")


def tabbed(cells: Iterable[object]) -> str:
    """One row for a pipe."""
    return "\t".join(one_line(cell) for cell in cells)


def show_page(told: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Labels and their lines, folded to the width of a terminal, and not at all in a pipe."""
    lines_of = [(label, list(lines)) for label, lines in told]
    if not sys.stdout.isatty():
        for label, lines in lines_of:
            for n, line in enumerate(lines):
                click.echo(f"{'' if n else label:<{LABEL_WIDTH}} {visible(line)}".rstrip())
        return
    table = Table.grid(padding=(0, 1))
    table.add_column(width=LABEL_WIDTH)
    table.add_column(overflow="fold")
    for label, lines in lines_of:
        table.add_row(Text(label, style="bold"), Text(visible("\n".join(lines))))
    Console().print(table)
