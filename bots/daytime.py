"""Reading a time of day as people write it in Japanese: `8時30分`, `午後８時半`, `8:30`. Pure."""

from __future__ import annotations

import re
import unicodedata

HOUR, MINUTE = "hour", "minute"
RANGES = {HOUR: range(24), MINUTE: range(60)}

_HALF = re.compile(r"(?P<half>午前|午後)?\s*")
_WHOLE = re.compile(
    _HALF.pattern + r"(?<![\d.])(?P<hour>\d+)\s*時\s*(?:(?P<minute>\d+)\s*分|(?P<thirty>半))",
    re.ASCII,
)
_CLOCK = re.compile(_HALF.pattern + r"(?P<hour>\d+):(?P<minute>\d+)", re.ASCII)
_HOUR = re.compile(_HALF.pattern + r"(?P<hour>\d+)\s*時", re.ASCII)
_BARE_HOUR = re.compile(_HOUR.pattern + "?", re.ASCII)
_MINUTE = re.compile(r"(?P<minute>\d+)\s*分", re.ASCII)
_BARE_MINUTE = re.compile(_MINUTE.pattern + "?|(?P<thirty>半)", re.ASCII)


def plain(text: str) -> str:
    """Full-width digits and signs as ASCII, and nothing around the words."""
    return unicodedata.normalize("NFKC", text).strip()


def whole_time(text: str) -> dict[str, int]:
    """Hour and minute as they stand in a text, whatever is around them; empty where they do not.

    They may be out of range, as everything here may be: 25 is what was said.
    """
    words = plain(text)
    return _parts(_WHOLE.search(words) or _CLOCK.fullmatch(words))


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
    if said.get("minute") or said.get("thirty"):
        parts[MINUTE] = _number(said.get("minute") or "30")
    return parts


def _on_24_hours(hour: int, half: str | None) -> int:
    if half is None or hour > 12:
        return hour
    return hour % 12 + (12 if half == "午後" else 0)


def _number(digits: str) -> int:
    # Python refuses to read thousands of digits, and a few are as far out of range.
    return int(digits.lstrip("0")[:9] or "0")
