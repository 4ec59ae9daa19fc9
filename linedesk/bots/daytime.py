"""Reading a time of day as people write it in Japanese: `8時30分`, `午後８時半`, `8:30`. Pure."""

from __future__ import annotations

import re
import unicodedata

HOUR, MINUTE = "hour", "minute"
RANGES = {HOUR: range(24), MINUTE: range(60)}

# The hours that are after noon behind such a word; one o'clock at night is after midnight.
LATER = {
    "午後": range(12),
    "昼": range(1, 6),
    "夕方": range(1, 12),
    "夜": range(5, 12),
    "晩": range(5, 12),
}
# Those whose twelve o'clock is midnight.
MIDNIGHT = ("午前", "夜", "晩")

# Nothing optional before an optional space: a search would try each of thousands of spaces anew.
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
    """Full-width digits and signs as ASCII, and nothing around the words: no full stop either."""
    return unicodedata.normalize("NFKC", text).strip().rstrip("。!?〜~ ")


def whole_time(text: str) -> dict[str, int]:
    """Hour and minute as they stand in a text, whatever is around them; empty where they do not.

    They may be out of range, as everything here may be: 25 is what was said.
    """
    words = plain(text)
    return _parts(_WHOLE.search(words) or _CLOCK.fullmatch(words))


def only_a_time(text: str) -> dict[str, int]:
    """As `whole_time`, of a text that says nothing else."""
    words = plain(text)
    return _parts(_WHOLE.fullmatch(words) or _CLOCK.fullmatch(words))


def part_of_time(text: str) -> dict[str, int]:
    """The hour or the minute that a text says and nothing else, such as `8時` or `61分`."""
    words = plain(text)
    return _parts(_HOUR.fullmatch(words) or _MINUTE.fullmatch(words))


def answer_to(asked: str, text: str) -> dict[str, int]:
    """What answers the question for the HOUR or the MINUTE: also a number alone."""
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
    # Python refuses to read thousands of digits, and a few are as far out of range.
    return int(digits.lstrip("0")[:9] or "0")
