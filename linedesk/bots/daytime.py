"""Reading a time of day as people write it in Japanese: `8時30分`, `午後８時半`, `8:30`. Pure."""

from __future__ import annotations

import re
import unicodedata

HOUR, MINUTE = "hour", "minute"
RANGES = {HOUR: range(24), MINUTE: range(60)}

# The hours that are after noon with such a word; one o'clock at night is after midnight.
LATER = {
    "午後": range(12),
    "昼": range(1, 6),
    "夕方": range(1, 12),
    "夜": range(5, 12),
    "晩": range(5, 12),
}
# With these words twelve o'clock is midnight.
MIDNIGHT = ("午前", "夜", "晩")

# No optional part before an optional space: a search would retry each of thousands of spaces.
_HALF = r"(?:(?P<half>午前|午後|朝|昼|夕方|夜|晩)の?\s*)?"
_WHOLE = re.compile(
    _HALF + r"(?<![\d.])(?P<hour>\d+)\s*時\s*"
    r"(?:(?P<minute>\d+)\s*分(?!前)|(?P<thirty>半)|(?P<sharp>ちょうど|丁度))",
    re.ASCII,
)
_CLOCK = re.compile(_HALF + r"(?P<hour>\d+)\s*[:時]\s*(?P<minute>\d+)", re.ASCII)
_HOUR = re.compile(_HALF + r"(?P<hour>\d+)\s*時", re.ASCII)
_BARE_HOUR = re.compile(_HOUR.pattern + "?", re.ASCII)
_MINUTE = re.compile(r"(?P<minute>\d+)\s*分", re.ASCII)
_BARE_MINUTE = re.compile(_MINUTE.pattern + "?|(?P<thirty>半)", re.ASCII)


def plain(text: str) -> str:
    """The text with ASCII digits and signs, without surrounding spaces and final punctuation."""
    return unicodedata.normalize("NFKC", text).strip().rstrip("。!?〜~ ")


def whole_time(text: str) -> dict[str, int]:
    """The hour and minute anywhere in a text; empty without both.

    They may be out of range, like all values here: 25 is returned as 25.
    """
    words = plain(text)
    return _parts(_WHOLE.search(words) or _CLOCK.fullmatch(words))


def only_a_time(text: str) -> dict[str, int]:
    """Like `whole_time`, for a text with nothing else in it."""
    words = plain(text)
    return _parts(_WHOLE.fullmatch(words) or _CLOCK.fullmatch(words))


def part_of_time(text: str) -> dict[str, int]:
    """The hour or the minute of a text with nothing else in it, such as `8時` or `61分`."""
    words = plain(text)
    return _parts(_HOUR.fullmatch(words) or _MINUTE.fullmatch(words))


def answer_to(asked: str, text: str) -> dict[str, int]:
    """The answer to the question for the HOUR or the MINUTE: a bare number counts, too."""
    bare = _BARE_HOUR if asked == HOUR else _BARE_MINUTE
    return _parts(bare.fullmatch(plain(text))) or part_of_time(text)


def _parts(match: re.Match[str] | None) -> dict[str, int]:
    if match is None:
        return {}
    said = match.groupdict()
    parts = {}
    if said.get("hour"):
        parts[HOUR] = _on_24_hours(_number(said["hour"]), said["half"])
    if said.get("minute"):
        parts[MINUTE] = _number(said["minute"])
    elif said.get("thirty") or said.get("sharp"):
        parts[MINUTE] = 30 if said.get("thirty") else 0
    return parts


def _on_24_hours(hour: int, half: str | None) -> int:
    if hour in LATER.get(half or "", ()):
        return hour + 12
    return 0 if hour == 12 and half in MIDNIGHT else hour


def _number(digits: str) -> int:
    # Python refuses to convert thousands of digits; nine are out of range as well.
    return int(digits.lstrip("0")[:9] or "0")
