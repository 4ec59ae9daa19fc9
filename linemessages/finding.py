"""What LINE would find wrong in a message, in the form of its error details."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Finding:
    """One of `details` of LINE's 400. Neither of its texts quotes a value of the message."""

    message: str
    property: str = ""
    is_unknown: bool = False
    """Whether it is a type or field that this release does not know: LINE adds them unannounced
    ("Development guidelines"), so it may be right."""

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
