"""Values as JSON for programs: the names of `status`, times with their zone. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any


def as_json(value: Any) -> Any:
    """What `json.dumps` takes: a dataclass becomes an object, its names in camel case.

    A time is told in this machine's time, with its zone; what JSON does not know as its text, and
    what is no number as null.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {_camel(one.name): as_json(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): as_json(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(inner) for inner in value]
    if isinstance(value, datetime):
        return value.astimezone().isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
