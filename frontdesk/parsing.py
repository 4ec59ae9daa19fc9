"""Turns the bytes of a webhook into documents: body, signature, events, BSON.

The signature is over the raw bytes (LINE's documentation, "Verify webhook signature"). The body is
bounded. Unknown types and fields pass unchanged, since LINE adds them without notice. A document
that BSON or MongoDB would refuse is refused here, within the request that brought it.
"""

from __future__ import annotations

import hmac
import json
import logging
import math
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import bson
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument

from frontdesk.errors import BadRequest, BadSignature, TooLarge
from linedesk.store.documents import make_document
from linedesk.store.limits import MOST_LEVELS, MOST_WRAPPED_BYTES, nests_deeper

Event = dict[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

# LINE names no upper bound. A real event takes over 200 bytes, so this is reached only by bodies
# that are small as JSON and large as documents.
MAX_EVENTS = 10_000
HEADER = "x-line-signature"


async def read_body(receive: Receive, *, limit: int, declared: str | None) -> bytes:
    """Return the body of one ASGI request, at most `limit` bytes.

    `declared` is its Content-Length: a body that declares too large a size is not read at all.
    Raises TooLarge as soon as the limit is passed, BadRequest if the client disconnects.
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


def sign(body: bytes, secret: bytes) -> bytes:
    """The value of the x-line-signature header for this body."""
    return b64encode(hmac.digest(secret, body, "sha256"))


def verify(body: bytes, signature: bytes, *, secrets: Iterable[bytes]) -> bool:
    """Return whether the signature was made with any of the secrets.

    Each comparison takes constant time, and all secrets are compared. The time therefore does not
    reveal how much of a guess was right or which secret matched.
    """
    fits = False
    for secret in secrets:
        fits |= hmac.compare_digest(sign(body, secret), signature)
    return fits


def require_signed(body: bytes, signatures: Sequence[str], *, secrets: Iterable[bytes]) -> None:
    """Raise BadSignature unless the header came exactly once and matches this body."""
    if not signatures:
        raise BadSignature("signature is missing")
    if len(signatures) > 1:
        raise BadSignature("more than one signature")
    if not verify(body, signatures[0].encode("latin-1"), secrets=secrets):
        raise BadSignature("signature is wrong")


def parse_events(body: bytes) -> list[Event]:
    """Return the events of a webhook body as LINE sent them.

    Raises BadRequest if it is not UTF-8, not JSON, or has no list of objects named events. Raises
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


log = logging.getLogger(__name__)

_SURROGATE = re.compile("[\ud800-\udfff]")


def encode_events(
    events: Sequence[Event], *, channel: str, accept_time: datetime, body: bytes
) -> list[RawBSONDocument]:
    """Return the recvq documents of one request's events.

    `body` is the source of the events: a body with few brackets cannot be deeply nested. Raises
    BadRequest for values that BSON cannot hold, TooLarge for a document over MongoDB's limit.
    """
    brackets = body.count(b"{") + body.count(b"[")
    if brackets > MOST_LEVELS and any(nests_deeper(event, MOST_LEVELS) for event in events):
        raise BadRequest("an event is nested too deep")
    return [_encode(event, channel, accept_time) for event in events]


def _encode(event: Event, channel: str, accept_time: datetime) -> RawBSONDocument:
    try:
        data = bson.encode(make_document(event, channel=channel, accept_time=accept_time))
    except UnicodeEncodeError:
        log.warning("lone surrogates replaced events=1")
        return _encode(_without_surrogates(event), channel, accept_time)
    except OverflowError:
        # Refused rather than rounded: LINE sends no such number, and a changed one would go
        # unnoticed.
        raise BadRequest("an event holds an integer beyond 64 bits") from None
    except BSONError:
        raise BadRequest("an event holds a name that MongoDB cannot store") from None
    if len(data) > MOST_WRAPPED_BYTES:
        raise TooLarge(f"an event is larger than {MOST_WRAPPED_BYTES} bytes as a document")
    return RawBSONDocument(data)


def _without_surrogates(event: Event) -> Event:
    """Return the event with U+FFFD for each lone half of a surrogate pair.

    UTF-8 cannot represent such a half. It comes from a text that a client cut inside an emoji.
    Browsers replace it as well. Refusing it would lose all other events of the POST.
    """
    text = json.dumps(event, ensure_ascii=False)
    replaced: Event = json.loads(_SURROGATE.sub("\ufffd", text))
    return replaced
