"""How numbers and times are written for a person: the filters of the templates."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

from linedesk.console.format import brief, for_long

Moment = Any
"""A datetime, or the text of one; whatever else there may be is none."""
NONE = "–"
LONGEST_ID = 18


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
    return _time(moment, "%H:%M:%S")


def moment(moment: Moment) -> Markup:
    """Day and time in this machine's zone."""
    return _time(moment, "%Y-%m-%d %H:%M:%S")


def exact(moment: Moment) -> Markup:
    """The time of day with its milliseconds."""
    at = _datetime(moment)
    return _time(at, f"%H:%M:%S.{at.microsecond // 1000:03d}") if at else Markup(NONE)


def zone(now: datetime | None = None) -> str:
    """The zone in which all times are."""
    local = (now or datetime.now(UTC)).astimezone()
    return f"{local.tzname()} ({local:%z})"


def _time(moment: Moment, form: str) -> Markup:
    at = _datetime(moment)
    if at is None:
        return Markup(NONE)
    local = at.astimezone()
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        at.isoformat(timespec="milliseconds"), f"{local:%Y-%m-%d %H:%M:%S %Z}", local.strftime(form)
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
    """A sentence's first letter; ids further back stay as they are."""
    return text[:1].upper() + text[1:]


def code(text: str) -> Markup:
    """What stands between backticks is for a shell."""
    parts = [str(escape(part)) for part in text.split("`")]
    return Markup("".join(f"<code>{one}</code>" if n % 2 else one for n, one in enumerate(parts)))


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
    "clock": clock,
    "moment": moment,
    "exact": exact,
    "plain": plain,
    "short": short,
    "since": since,
    "code": code,
    "pretty": pretty,
    "capital": capital,
}
