"""What LINE would find wrong in a message, in the form of its error details."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# As LINE's own properties.
NAME = re.compile(r"[a-z][A-Za-z0-9]{0,30}(\[\d+\])*")


@dataclass(slots=True)
class Finding:
    """One of `details` of LINE's 400. Neither of its texts quotes a value of the message."""

    message: str
    property: str = ""
    is_unknown: bool = False
    """Whether it is a type or field that this release does not know: LINE adds them unannounced
    ("Development guidelines"), so it may be right."""

    def place(self) -> str:
        """Its path for a log, without names that a bot made up: they may be a user's words."""
        known, made_up, _ = self.property.partition(".substitution.")
        parts = [one if NAME.fullmatch(one) else "*" for one in known.split(".")]
        return ".".join([*parts, "substitution.*"] if made_up else parts)

    def as_detail(self) -> dict[str, str]:
        """As an entry of LINE's `details`."""
        return {"message": self.message, "property": self.property}


Found = list[Finding]
Check = Callable[[Any, Found], None]
"""Appends what is wrong with a value, with paths that start at the value."""


def put_below(name: str, found: Found) -> None:
    """Put a name before their paths: of `contents[0]`, `text` becomes `contents[0].text`."""
    for one in found:
        joint = "." if one.property and not one.property.startswith("[") else ""
        one.property = f"{name}{joint}{one.property}"
