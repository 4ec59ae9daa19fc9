"""The forms of values: durations, moments and scopes for people, JSON for programs, and the output
of commands.

Durations and scopes are in the language of the context. JSON has the names of `status`, and times
with their zone. Control characters are removed from text that people wrote: a terminal would obey
them.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

import click

from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark

UNITS = (
    (24 * 3600, mark("{count} d")),
    (3600, mark("{count} h")),
    (60, mark("{count} min")),
    (1, mark("{count} s")),
)
MS_BELOW_SECONDS = 1.0
TENTHS_BELOW_SECONDS = 10.0


def for_long(seconds: float) -> str:
    """Return a duration in its two largest units, such as `2 h 5 min`."""
    left, parts = int(seconds), []
    for size, unit in UNITS:
        if left >= size:
            parts.append(_(unit).format(count=left // size))
        elif parts:
            break
        left %= size
        if len(parts) == 2:
            return _("{larger} {smaller}").format(larger=parts[0], smaller=parts[1])
    return parts[0] if parts else _("{count} s").format(count=0)


def brief(seconds: float | None) -> str:
    """Return a duration of any length: `3.1 ms`, `420 ms`, `4.2 s`, `2 h 5 min`; - for None."""
    if seconds is None:
        return "-"
    if seconds == 0:
        return _("{count} s").format(count=0)
    if seconds < TENTHS_BELOW_SECONDS / 1000:
        return _("{count} ms").format(count=f"{seconds * 1000:.1f}")
    if seconds < MS_BELOW_SECONDS:
        return _("{count} ms").format(count=f"{seconds * 1000:.0f}")
    if seconds < TENTHS_BELOW_SECONDS:
        return _("{count} s").format(count=f"{seconds:.1f}")
    return for_long(seconds)


def local(moment: datetime | None) -> str:
    """Return a moment in this machine's time, with its zone."""
    if moment is None:
        return "-"
    return moment.astimezone().isoformat(sep=" ", timespec="seconds")


def clock(moment: datetime | None) -> str:
    """Return the time of day in this machine's time, to the millisecond."""
    if moment is None:
        return "-"
    return moment.astimezone().strftime("%H:%M:%S.%f")[:-3]


def scope_words(channel: object, key: object) -> str:
    """Return the scope of a pause: everything, a channel or a conversation."""
    if not channel:
        return _("everything")
    return f"{channel}/{key}" if key else _("channel {channel}").format(channel=channel)


def as_json(value: Any) -> Any:
    """Return a value that `json.dumps` accepts.

    A dataclass becomes an object with names in camel case. A time has this machine's zone. A number
    that is not finite becomes null, and a value of any other type becomes its text.
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


# Embeddings, overrides and isolates: they reverse the rest of a line.
TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def echo_json(told: object) -> None:
    """Print a mapping or a dataclass as one JSON object on one line."""
    click.echo(json.dumps(as_json(told), ensure_ascii=False))


def visible(text: str) -> str:
    """Return a text without control characters, which a terminal would obey."""
    return "".join(
        f"\\x{ord(c):02x}"
        if c in TURNING or (unicodedata.category(c) == "Cc" and c not in "\n\t")
        else c
        for c in text
    )


def one_line(value: object) -> str:
    """Return the visible text of a value, on one line and without tabs."""
    return visible(str(value)).replace("\t", " ").replace("\n", " ")
