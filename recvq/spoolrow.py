"""What a row of the spool tells of its document beside the document's own bytes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bson.raw_bson import RawBSONDocument

from recvq.redact import message_id_of

# Channel and key: what order is kept for.
Key = tuple[str, str]


class Row(NamedTuple):
    """The columns but for `n`; `bson` is what MongoDB would have been sent, byte for byte."""

    channel: str
    key: str
    event_id: str | None
    message_id: str | None
    bson: bytes


def key_of_document(document: RawBSONDocument) -> Key:
    """What the document queues up under."""
    return document["channel"], document["key"]


def keys_of(documents: Iterable[RawBSONDocument]) -> frozenset[Key]:
    """All keys of the documents."""
    return frozenset(key_of_document(document) for document in documents)


def as_row(document: RawBSONDocument) -> Row:
    """The row of a document; the message's id is there so that an unsend finds it."""
    return Row(
        *key_of_document(document),
        document.get("eventId"),
        message_id_of(document),
        bytes(document.raw),
    )
