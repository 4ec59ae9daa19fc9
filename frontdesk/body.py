"""From the bytes of a request to the list of its events: bounded, and lenient about their content.

Unknown types and fields pass untouched, since LINE adds them without notice. What is not JSON as
RFC 8259 has it, or has no list of events, is refused with a reason that quotes nothing of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NoReturn

from frontdesk.errors import BadRequest, TooLarge

Event = dict[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

# LINE names no upper bound. A real event takes over 200 bytes, so this is reached only by bodies
# that are small as JSON and large as documents.
MAX_EVENTS = 10_000


async def read_body(receive: Receive, *, limit: int, declared: str | None) -> bytes:
    """The body of one ASGI request, at most `limit` bytes of it.

    `declared` is its Content-Length, so that a body that says it is too large is not read at all.
    Raises TooLarge as soon as the limit is passed, BadRequest if the sender goes away.
    """
    if declared is not None and declared.isascii() and declared.isdecimal():
        _check_size(int(declared), limit)
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BadRequest("sender went away before the body was complete")
        body += message.get("body", b"")
        _check_size(len(body), limit)
        if not message.get("more_body", False):
            return bytes(body)


def parse_events(body: bytes) -> list[Event]:
    """The events of a webhook body, as LINE sent them.

    Raises BadRequest where it is not UTF-8, not JSON, or has no list of objects named events;
    TooLarge for more than MAX_EVENTS of them.
    """
    content = _parse_json(body)
    if not isinstance(content, dict):
        raise BadRequest("body is not a JSON object")
    events = content.get("events")
    if not isinstance(events, list):
        raise BadRequest("events is not a list" if "events" in content else "events is missing")
    if len(events) > MAX_EVENTS:
        raise TooLarge(f"more than {MAX_EVENTS} events")
    if not all(isinstance(event, dict) for event in events):
        raise BadRequest("events holds something that is not an object")
    return events


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise TooLarge(f"body is larger than {limit} bytes")


def _parse_json(body: bytes) -> Any:
    try:
        # Decoded here, since json.loads would also take UTF-16 and encoded surrogates.
        return _DECODER.decode(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise BadRequest("body is not UTF-8") from None
    except RecursionError:
        raise BadRequest("body is nested too deep") from None
    except ValueError:
        raise BadRequest("body is not JSON") from None


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise BadRequest("body holds a number out of range")
    return number


def _refuse_constant(name: str) -> NoReturn:
    """NaN and Infinity are Python's own extension of JSON."""
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse_constant)
