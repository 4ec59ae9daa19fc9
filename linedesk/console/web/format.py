"""How numbers and times are written for a person: the filters of the templates."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from markupsafe import Markup, escape

from linedesk.console.format import brief, for_long

Moment = Any
"""A datetime, or the text of one; whatever else there may be is none."""
NONE = "–"
LONGEST_ID = 18
FORMS = {
    "clock": "%H:%M:%S",
    "moment": "%Y-%m-%d %H:%M:%S",
    "to_minute": "%Y-%m-%d %H:%M",
    "exact": "%H:%M:%S",
}
# A moment within a text of ours, with its zone: that of a log line, of `local` or of a status line.
MOMENT = re.compile(
    r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:[+-]\d\d:?\d\d| ?UTC|Z)"
    r"|\b\d\d:\d\d:\d\d UTC\b"
)
WITH_SECONDS = re.compile(r"\d\d:\d\d:\d\d")


def number(value: Any) -> str:
    """A count, its thousands set off: `1,204`."""
    return f"{value:,.0f}" if _is_number(value) else NONE


def rate(value: Any) -> str:
    """How many a second: `0.3/s`, `12.4/s`, `1,204/s`."""
    if not _is_number(value):
        return NONE
    if value <= 0:
        return "0/s"
    if value < 0.1:
        # A few a minute are told as such.
        return f"{value * 60:.1f}/min"
    return f"{value:,.1f}/s" if value < 100 else f"{value:,.0f}/s"


def seconds(value: Any) -> str:
    """A duration however short; before the other side of zero with a minus."""
    if not _is_number(value):
        return NONE
    if value <= 0:
        return f"-{seconds(-value)}" if value else "0 s"
    return brief(value)


def share(value: Any) -> str:
    """A part of the whole: `3 %`."""
    if not _is_number(value):
        return NONE
    return f"{value * 100:.0f} %" if value >= 0.095 or value == 0 else f"{value * 100:.1f} %"


def ago(moment: Moment, now: datetime | None = None) -> str:
    """How long it was ago, or will be: `3 s ago`, `in 5 min`."""
    at = _datetime(moment)
    if at is None:
        return NONE
    gone = ((now or datetime.now(UTC)) - at).total_seconds()
    if abs(gone) < 1:
        return "now"
    return f"{for_long(gone)} ago" if gone > 0 else f"in {for_long(-gone)}"


def clock(moment: Moment) -> Markup:
    """The time of day in this machine's zone, the whole of it in what shows under the pointer."""
    return _time(moment, "clock")


def local_input(moment: Moment) -> str:
    """As a field for a moment takes it, in this machine's zone."""
    at = _datetime(moment)
    return "" if at is None else at.astimezone().strftime("%Y-%m-%dT%H:%M:%S")


def bare_clock(moment: Moment) -> str:
    """The same as plain text, for what takes no element."""
    at = _datetime(moment)
    return NONE if at is None else at.astimezone().strftime(FORMS["clock"])


def age(moment: Moment, now: datetime | None = None) -> str:
    """How old something is: `37 s old`."""
    at = _datetime(moment)
    if at is None:
        return NONE
    return f"{for_long(max(0.0, ((now or datetime.now(UTC)) - at).total_seconds()))} old"


def moment(moment: Moment) -> Markup:
    """Day and time in this machine's zone."""
    return _time(moment, "moment")


def exact(moment: Moment) -> Markup:
    """The time of day with its milliseconds."""
    return _time(moment, "exact")


def zone(now: datetime | None = None) -> str:
    """The server's zone, in which all times are while no script writes them in the browser's."""
    local = (now or datetime.now(UTC)).astimezone()
    return f"{local.tzname()} ({local:%z})"


def _time(moment: Moment, form: str) -> Markup:
    at = _datetime(moment)
    if at is None:
        return Markup(NONE)
    local = at.astimezone()
    # The script writes it in the browser's zone; so a screen has one zone, with or without it.
    return Markup('<time datetime="{}" data-form="{}" title="{}">{}</time>').format(
        at.isoformat(timespec="milliseconds"),
        form,
        f"{local:%Y-%m-%d %H:%M:%S} {zone()}",
        local.strftime(FORMS[form]) + (f".{at.microsecond // 1000:03d}" if form == "exact" else ""),
    )


def _datetime(moment: Moment) -> datetime | None:
    """A moment of a document, or of its JSON; what somebody typed there may be none."""
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            return None
    return moment.astimezone(UTC) if isinstance(moment, datetime) else None


def since(moment: Moment, now: datetime | None = None) -> str:
    """For how long something has been so."""
    at = _datetime(moment)
    return NONE if at is None else seconds(((now or datetime.now(UTC)) - at).total_seconds())


def short(text: Any) -> str:
    """An id whose middle is left out where it is long; the whole of it stands in the title."""
    words = plain(text)
    return words if len(words) <= LONGEST_ID else f"{words[:8]}…{words[-6:]}"


def capital(text: str) -> str:
    """A sentence with a capital letter; ids within it stay as they are."""
    return text[:1].upper() + text[1:]


def code(text: str) -> Markup:
    """What stands between backticks is for a shell; moments are `<time>`s, as all others."""
    parts = [
        Markup("<code>{}</code>").format(one) if n % 2 else timed(one)
        for n, one in enumerate(text.split("`"))
    ]
    return Markup("").join(parts)


def timed(text: str) -> Markup:
    """A text in which each moment that names its zone is a `<time>`, so in the operator's zone."""
    words, found = MOMENT.split(str(text)), MOMENT.findall(str(text))
    told = [escape(words[0])]
    for moment, behind in zip(found, words[1:], strict=True):
        told += [_within(moment), escape(behind)]
    return Markup("").join(told)


def _within(words: str) -> Markup:
    """A moment of a text; of a time of day alone the nearest one is meant."""
    text, now = re.sub(r" ?UTC$", "+00:00", words), datetime.now(UTC)
    # Where no second is known none is shown.
    form = "moment" if WITH_SECONDS.search(words) else "to_minute"
    form = "clock" if len(words) == len("00:00:00 UTC") else form
    try:
        at = datetime.fromisoformat(f"{now:%Y-%m-%d} {text}" if form == "clock" else text)
    except ValueError:
        return escape(words)
    if form == "clock" and at < now - timedelta(hours=12):
        at += timedelta(days=1)
    return _time(at, form)


def pretty(value: Any) -> str:
    """A document as JSON, its Japanese left as it is."""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def _is_number(value: Any) -> bool:
    """Rows may lack a figure, or have in its place what somebody typed."""
    return isinstance(value, (int, float)) and math.isfinite(value)


def plain(value: Any) -> str:
    """Whatever stands in a document, on one line."""
    return str(value) or NONE if value is not None else NONE


FILTERS = {
    "number": number,
    "rate": rate,
    "seconds": seconds,
    "share": share,
    "ago": ago,
    "age": age,
    "clock": clock,
    "bare_clock": bare_clock,
    "local_input": local_input,
    "moment": moment,
    "exact": exact,
    "plain": plain,
    "short": short,
    "since": since,
    "code": code,
    "timed": timed,
    "pretty": pretty,
    "capital": capital,
}
