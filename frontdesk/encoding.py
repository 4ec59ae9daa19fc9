"""From one event to the BSON bytes of its document, made when the request arrives.

What BSON or MongoDB could not take shows here, in the request that brought it, and never fails
the insert that this request shares with others; and the insert need not encode again.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import bson
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument

from frontdesk.body import Event
from frontdesk.errors import BadRequest, TooLarge
from recvq.documents import make_document

log = logging.getLogger(__name__)

# MongoDB refuses documents nested deeper than 180, and whoever wraps an event needs some of it.
MAX_NESTING = 100
# MongoDB's limit is 16 MB, and a change stream delivers the document inside a larger one.
MAX_DOCUMENT_BYTES = 15 * 1024 * 1024

_SURROGATE = re.compile("[\ud800-\udfff]")


def encode_events(
    events: Sequence[Event], *, channel: str, accept_time: datetime, body: bytes
) -> list[RawBSONDocument]:
    """The recvq documents of one request's events.

    `body` is what they were parsed from: few brackets in it are proof enough of little nesting.
    Raises BadRequest for what BSON cannot hold, TooLarge for a document over MongoDB's limit.
    """
    if body.count(b"{") + body.count(b"[") > MAX_NESTING:
        _check_nesting(events)
    return [_encode(event, channel, accept_time) for event in events]


def _encode(event: Event, channel: str, accept_time: datetime) -> RawBSONDocument:
    try:
        data = bson.encode(make_document(event, channel=channel, accept_time=accept_time))
    except UnicodeEncodeError:
        log.warning("lone surrogates replaced events=1")
        return _encode(_without_surrogates(event), channel, accept_time)
    except OverflowError:
        # Refused rather than rounded: no number of LINE's is that large, and a changed one would
        # go unnoticed.
        raise BadRequest("an event holds an integer beyond 64 bits") from None
    except BSONError:
        raise BadRequest("an event holds a name that MongoDB cannot store") from None
    if len(data) > MAX_DOCUMENT_BYTES:
        raise TooLarge(f"an event is larger than {MAX_DOCUMENT_BYTES} bytes as a document")
    return RawBSONDocument(data)


def _without_surrogates(event: Event) -> Event:
    """The event with U+FFFD for each half of a surrogate pair that lost its other half.

    UTF-8 has no form for such a half. It comes from a text that some client cut inside an emoji,
    so it is replaced, as browsers do: refusing it would cost everybody else's events in the POST.
    """
    text = json.dumps(event, ensure_ascii=False)
    replaced: Event = json.loads(_SURROGATE.sub("\ufffd", text))
    return replaced


def _check_nesting(events: Iterable[Event]) -> None:
    level: list[Any] = list(events)
    for _ in range(MAX_NESTING):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return
    raise BadRequest("an event is nested too deep")


def _children(value: dict[str, Any] | list[Any]) -> list[Any]:
    """What is itself an object or a list among the values directly inside."""
    values = value.values() if isinstance(value, dict) else value
    return [inner for inner in values if isinstance(inner, (dict, list))]
