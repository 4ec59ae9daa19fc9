"""The forms of numbers and times for people: the filters of the templates.

Texts are in the language of the context.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from markupsafe import Markup, escape

from linedesk.operate.format import brief, for_long
from linedesk.operate.text import known
from linedesk.runtime.language import gettext as _

Moment = Any
"""A datetime, or the text of one; any other value counts as none."""
NONE = "–"
LONGEST_ID = 18
FORMS = {
    "clock": "%H:%M:%S",
    "moment": "%Y-%m-%d %H:%M:%S",
    "to_minute": "%Y-%m-%d %H:%M",
    "exact": "%H:%M:%S",
}
# A moment with its zone within a text: from a log line, from `local` or from a status line.
MOMENT = re.compile(
    r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:[+-]\d\d:?\d\d| ?UTC|Z)"
    r"|\b\d\d:\d\d:\d\d UTC\b",
    # Else no boundary is between a Japanese letter and a figure.
    re.ASCII,
)
WITH_SECONDS = re.compile(r"\d\d:\d\d:\d\d")


def number(value: Any) -> str:
    """Return a count with thousands separators: `1,204`."""
    return f"{value:,.0f}" if _is_number(value) else NONE


def rate(value: Any) -> str:
    """Return a rate: `0.3/s`, `12.4/s`, `1,204/s`; a low rate per minute."""
    if not _is_number(value):
        return NONE
    if 0 < value < 0.1:
        return _("{count}/min").format(count=f"{value * 60:.1f}")
    digits = 1 if 0 < value < 100 else 0
    return _("{count}/s").format(count=f"{max(value, 0):,.{digits}f}")


def seconds(value: Any) -> str:
    """Return a duration of any length; a negative one with a minus."""
    if not _is_number(value):
        return NONE
    return f"-{brief(-value)}" if value < 0 else brief(value)


def share(value: Any) -> str:
    """Return a part of the whole: `3 %`."""
    if not _is_number(value):
        return NONE
    digits = 0 if value >= 0.095 or value == 0 else 1
    return _("{number} %").format(number=f"{value * 100:.{digits}f}")


def ago(moment: Moment, now: datetime | None = None) -> str:
    """Return the distance from now: `3 s ago`, `in 5 min`."""
    at = _datetime(moment)
    if at is None:
        return NONE
    gone = ((now or datetime.now(UTC)) - at).total_seconds()
    if abs(gone) < 1:
        return _("now")
    words = _("{time} ago") if gone > 0 else _("in {time}")
    return words.format(time=for_long(abs(gone)))


def clock(moment: Moment) -> Markup:
    """Return the time of day in this machine's zone, with the date in the title."""
    return _time(moment, "clock")


def bare_clock(moment: Moment) -> str:
    """Return the time of day as plain text, for places without elements."""
    at = _datetime(moment)
    return NONE if at is None else at.astimezone().strftime(FORMS["clock"])


def age(moment: Moment, now: datetime | None = None) -> str:
    """Return an age: `37 s old`."""
    at = _datetime(moment)
    if at is None:
        return NONE
    gone = max(0.0, ((now or datetime.now(UTC)) - at).total_seconds())
    return _("{time} old").format(time=for_long(gone))


def moment(moment: Moment) -> Markup:
    """Return day and time in this machine's zone."""
    return _time(moment, "moment")


def exact(moment: Moment) -> Markup:
    """Return the time of day with milliseconds."""
    return _time(moment, "exact")


def zone(now: datetime | None = None) -> str:
    """Return the server's zone: the zone of all times until a script writes the browser's."""
    local = (now or datetime.now(UTC)).astimezone()
    return f"{local.tzname()} ({local:%z})"


def _time(moment: Moment, form: str) -> Markup:
    at = _datetime(moment)
    if at is None:
        return Markup(NONE)
    local = at.astimezone()
    # The script rewrites it in the browser's zone. A screen has one zone, with or without a script.
    return Markup('<time datetime="{}" data-form="{}" title="{}">{}</time>').format(
        at.isoformat(timespec="milliseconds"),
        form,
        f"{local:%Y-%m-%d %H:%M:%S} {zone()}",
        local.strftime(FORMS[form]) + (f".{at.microsecond // 1000:03d}" if form == "exact" else ""),
    )


def _datetime(moment: Moment) -> datetime | None:
    """Return the moment of a document, or of its JSON; None for any other value."""
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            return None
    return moment.astimezone(UTC) if isinstance(moment, datetime) else None


def since(moment: Moment, now: datetime | None = None) -> str:
    """Return the time since a moment."""
    at = _datetime(moment)
    return NONE if at is None else seconds(((now or datetime.now(UTC)) - at).total_seconds())


def short(text: Any) -> str:
    """Return an id, shortened in the middle where it is long; the title has all of it."""
    words = plain(text)
    return words if len(words) <= LONGEST_ID else f"{words[:8]}…{words[-6:]}"


def capital(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """Return a text as a sentence: with a capital first letter and a full stop."""
    whole = _("{sentence}.")
    if isinstance(text, Markup):
        whole = Markup(whole)
    return whole.format(sentence=capital(text))


def code(text: str) -> Markup:
    """Return a text with code between backticks as `<code>` and moments as `<time>`."""
    parts = [
        Markup("<code>{}</code>").format(one) if n % 2 else timed(one)
        for n, one in enumerate(text.split("`"))
    ]
    return Markup("").join(parts)


def timed(text: str) -> Markup:
    """Return a text with each moment that has a zone as a `<time>`, for the operator's zone."""
    words, found = MOMENT.split(str(text)), MOMENT.findall(str(text))
    told = [escape(words[0])]
    for moment, behind in zip(found, words[1:], strict=True):
        told += [_within(moment), escape(behind)]
    return Markup("").join(told)


def _within(words: str) -> Markup:
    """Return a moment of a text as `<time>`; a time of day means the nearest one."""
    text, now = re.sub(r" ?UTC$", "+00:00", words), datetime.now(UTC)
    # Seconds are shown only where they are known.
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
    """Return a document as JSON, with readable Japanese."""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def _is_number(value: Any) -> bool:
    """Return whether a value is a finite number; rows made by hand may have any value."""
    return isinstance(value, (int, float)) and math.isfinite(value)


def plain(value: Any) -> str:
    """Return any value of a document as text."""
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
    "moment": moment,
    "exact": exact,
    "plain": plain,
    "short": short,
    "since": since,
    "code": code,
    "timed": timed,
    "pretty": pretty,
    "capital": capital,
    "sentence": sentence,
    "known": lambda value: known(value) or NONE,
}
