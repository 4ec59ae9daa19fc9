"""The forms of numbers and times for people: the filters of the templates.

Texts are in the language of the context.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from markupsafe import Markup, escape

from linedesk.operate.calls import cost_words, reason_words
from linedesk.operate.format import brief, for_long
from linedesk.operate.health import sent_words
from linedesk.operate.text import known
from linedesk.runtime.language import gettext as _
from linedesk.store.records.letters import Cause

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


def ago(moment: Moment) -> str:
    """Return the distance from now: `3 s ago`, `in 5 min`."""
    gone = _gone(moment)
    if gone is None:
        return NONE
    if abs(gone) < 1:
        return _("now")
    words = _("{time} ago") if gone > 0 else _("in {time}")
    return words.format(time=for_long(abs(gone)))


def age(moment: Moment) -> str:
    """Return an age: `37 s old`."""
    gone = _gone(moment)
    return NONE if gone is None else _("{time} old").format(time=for_long(max(0.0, gone)))


def since(moment: Moment) -> str:
    """Return the time since a moment."""
    return seconds(_gone(moment))


def _gone(moment: Moment) -> float | None:
    at = _datetime(moment)
    return None if at is None else (datetime.now(UTC) - at).total_seconds()


def zone() -> str:
    """Return the server's zone: the zone of all times until a script writes the browser's."""
    local = datetime.now().astimezone()
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
    return Markup(MOMENT.sub(lambda found: _within(found[0]), str(escape(text))))


def _within(words: str) -> str:
    """Return a moment of a text as `<time>`; a time of day means the nearest one."""
    text, now = re.sub(r" ?UTC$", "+00:00", words), datetime.now(UTC)
    # Seconds are shown only where they are known.
    form = "moment" if WITH_SECONDS.search(words) else "to_minute"
    form = "clock" if len(words) == len("00:00:00 UTC") else form
    try:
        at = datetime.fromisoformat(f"{now:%Y-%m-%d} {text}" if form == "clock" else text)
    except ValueError:
        return words
    if form == "clock" and at < now - timedelta(hours=12):
        at += timedelta(days=1)
    return _time(at, form)


def _is_number(value: Any) -> bool:
    """Return whether a value is a finite number; rows made by hand may have any value."""
    return isinstance(value, (int, float)) and math.isfinite(value)


def plain(value: Any) -> str:
    """Return any value of a document as text."""
    return str(value) or NONE if value is not None else NONE


FILTERS: dict[str, Callable[..., Any]] = {
    **{one.__name__: one for one in (number, rate, seconds, share, ago, age, since)},
    **{one.__name__: one for one in (plain, short, code, timed, capital, sentence)},
    **{form: partial(_time, form=form) for form in ("clock", "moment", "exact")},
    "pretty": partial(json.dumps, ensure_ascii=False, indent=2, default=str),
    "known": lambda value: known(value) or NONE,
    "cost": cost_words,
    "sent": sent_words,
    "reason": reason_words,
    "explained": lambda row: known(Cause(row["cause"], row["about"])),
    "result": known,
}
