"""Stored values as JSON and back: MongoDB's Extended JSON for values that JSON cannot represent.

Dates are `{"$date": "2026-11-23T01:02:03.004Z"}`. Whole numbers beyond 2^53 are `{"$numberLong":
"9007199254740993"}`, since many languages read a JSON number as a double. The rest follows the
relaxed form of https://github.com/mongodb/specifications (extended-json). Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from bson import json_util
from bson.errors import BSONError

from jobworker.errors import BotError

# Beyond it a double cannot represent every whole number.
MOST_SAFE = 2**53
_READING = json_util.JSONOptions(tz_aware=True, tzinfo=UTC)
_WRITING = json_util.JSONOptions(
    json_mode=json_util.JSONMode.RELAXED, tz_aware=True, tzinfo=UTC, strict_uuid=True
)


def to_json(value: Any) -> Any:
    """Return a value that MongoDB stores, in JSON's types. Raises BotError for others."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) <= MOST_SAFE else {"$numberLong": str(int(value))}
    if isinstance(value, Mapping):
        return {_name(name): to_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    if isinstance(value, datetime):
        return {"$date": moment_to_json(value)}
    try:
        return json_util.default(value, _WRITING)
    except (TypeError, ValueError) as error:
        raise BotError(
            f"MongoDB cannot hold this: {type(value).__name__}", reason="not storable"
        ) from error


def from_json(value: Any) -> Any:
    """Return the value that was passed to `to_json`. Raises ValueError for an invalid form."""
    if isinstance(value, list):
        return [from_json(each) for each in value]
    if not isinstance(value, dict):
        return value
    inner = {name: from_json(each) for name, each in value.items()}
    try:
        if set(inner) == {"$date"} and isinstance(inner["$date"], str):
            return moment_from_json(inner["$date"])
        return json_util.object_hook(inner, _READING)
    except (TypeError, KeyError, AttributeError, ArithmeticError, BSONError) as error:
        raise ValueError(f"no Extended JSON: {', '.join(sorted(inner))[:80]}") from error


def moment_to_json(moment: datetime) -> str:
    """RFC 3339 in UTC, with the milliseconds that MongoDB stores. A date without a zone is UTC."""
    utc = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment_from_json(text: object) -> datetime:
    """Return the moment of an RFC 3339 text. Raises ValueError, also for one without a zone."""
    if not isinstance(text, str):
        raise ValueError(f"no date: {type(text).__name__}")
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a date without a time zone")
    return moment.astimezone(UTC)


def to_line(message: Mapping[str, Any]) -> bytes:
    """Return a message as one line of UTF-8. Raises ValueError for numbers outside JSON."""
    text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # JavaScript and other readers of lines also end a line at these two.
    text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    # Half a surrogate pair has no UTF-8; it is written as JSON's own escape.
    # guard: half-a-surrogate -> return text.encode("utf-8", "surrogatepass")
    return text.encode("utf-8", "backslashreplace")


def from_line(line: bytes) -> dict[str, Any]:
    """Return the object in a line. Raises ValueError for anything else."""
    try:
        found = json.loads(line.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError(f"no JSON object: {type(found).__name__}")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number that no double holds")
    return number


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise BotError(
            f"a field's name is a text, not {type(name).__name__}", reason="not storable"
        )
    return name
