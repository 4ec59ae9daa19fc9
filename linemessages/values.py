"""Checks of single values: texts, URLs, numbers, choices, sizes, colours. Pure.

The messages are those of LINE's reference where it shows them ("Validate message objects").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from linemessages.finding import Check, Finding, Found, put_below
from linemessages.text import graphemes, units

EMPTY = "May not be empty"
LINKS = ("http", "https", "line", "tel")
"""The schemes of a link (reference, "URI action")."""
SPACE_OR_CONTROL = re.compile(r"[\s\x00-\x1f\x7f]")
RATIO = re.compile(r"(\d+(?:\.\d+)?):(\d+(?:\.\d+)?)")
MOST_RATIO = 100_000
MOST = 2**53
"""No limit: JSON's largest whole number."""


def text(most: int, least: int = 1, *, count: Callable[[str], int] = units) -> Check:
    """A text of at most this length."""

    def check(value: Any, found: Found) -> None:
        if not isinstance(value, str):
            found.append(Finding("Must be a string"))
        elif not value and least:
            found.append(Finding(EMPTY))
        # Cheap first: a character has at most two units, and at most one grapheme.
        elif len(value) * 2 > most and count(value) > most:
            found.append(Finding(f"Length must be between 0 and {most}"))

    return check


def visible(most: int, least: int = 1) -> Check:
    """A text of at most so many grapheme clusters."""
    return text(most, least, count=graphemes)


def url(most: int = 2_000, schemes: Collection[str] = ("https",)) -> Check:
    """A URL with one of these schemes, or with any scheme."""
    told = f" with the scheme {' or '.join(schemes)}" if schemes else ""

    def check(value: Any, found: Found) -> None:
        if not isinstance(value, str) or not value:
            found.append(Finding(EMPTY))
            return
        scheme, colon, rest = value.partition(":")
        if not colon or (schemes and scheme.lower() not in schemes):
            found.append(Finding(f"Must be a URI{told}"))
        elif (scheme.startswith("http") and not rest.strip("/")) or SPACE_OR_CONTROL.search(value):
            found.append(Finding("Must be a valid URI"))
        if units(value) > most:
            found.append(Finding(f"Length must be between 0 and {most}"))

    return check


def number(least: float, most: float, *, whole: bool = False, by_five: bool = False) -> Check:
    """A number in these bounds."""
    told = (
        f"Must be between {least:.10g} and {most:.10g}"
        if most < MOST
        else f"Must be {least:g} or more"
    )

    def check(value: Any, found: Found) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            found.append(Finding("Must be a number"))
        elif not least <= value <= most:
            found.append(Finding(told))
        elif whole and value != int(value):
            found.append(Finding("Must be an integer"))
        if by_five and isinstance(value, int | float) and value % 5:
            found.append(Finding("must be a multiple of five"))

    return check


def or_unlimited(most: float) -> Check:
    """A whole number from 1 to `most`, or -1 for no limit."""
    limited = number(1, most, whole=True)

    def check(value: Any, found: Found) -> None:
        if value != -1:
            limited(value, found)

    return check


def boolean(value: Any, found: Found) -> None:
    """True or false."""
    if not isinstance(value, bool):
        found.append(Finding("Must be a boolean"))


def one_of(choices: Sequence[str]) -> Check:
    """One of these words."""
    known = frozenset(choices)

    def check(value: Any, found: Found) -> None:
        if not isinstance(value, str) or value not in known:
            found.append(Finding(f"Must be one of the following values: [{', '.join(choices)}]"))

    return check


def pattern(expression: str, told: str) -> Check:
    """A text that matches as a whole."""
    matches = re.compile(expression).fullmatch

    def check(value: Any, found: Found) -> None:
        if not isinstance(value, str) or not matches(value):
            found.append(Finding(told))

    return check


def size(*words: str, percent: bool = False, negative: bool = False) -> Check:
    """A size in pixels, as one of these words, or in percent."""
    sign, units_ = "-?" if negative else "", "(px|%)" if percent else "px"
    told = " or ".join(["a number of pixels", *["a percentage"] * percent, *words])
    return pattern("|".join([rf"{sign}\d+(\.\d+)?{units_}", *words]), f"Must be {told}")


def ratio(value: Any, found: Found) -> None:
    """Width to height, as "20:13"; the height is at most three times the width."""
    match = RATIO.fullmatch(value) if isinstance(value, str) else None
    width, height = map(float, match.groups()) if match else (0.0, 0.0)
    if not (1 <= width <= MOST_RATIO and 1 <= height <= MOST_RATIO and height <= 3 * width):
        found.append(Finding("Must be {width}:{height}, each from 1 to 100000, no higher than 3:1"))


def items(each: Check, least: int, most: int | None) -> Check:
    """A list of so many entries, each of them right."""
    told = f"Size must be between {least} and {most}" if most is not None else EMPTY

    def check(value: Any, found: Found) -> None:
        if not isinstance(value, list):
            found.append(Finding("Must be an array"))
            return
        if len(value) < least or (most is not None and len(value) > most):
            found.append(Finding(told))
        for place, one in enumerate(value):
            before = len(found)
            each(one, found)
            if len(found) > before:
                put_below(f"[{place}]", found[before:])

    return check


colour = pattern("#[0-9A-Fa-f]{6}(?:[0-9A-Fa-f]{2})?", "Must be a color code: #RRGGBB or #RRGGBBAA")
