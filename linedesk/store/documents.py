"""The names of the collections, and the conversion of a LINE event to a document. No I/O.

Documents are readable in the mongo shell: plain names, dates as dates, no encodings.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bson import ObjectId

from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID

RECVQ = "recvq"
PROGRESS = "progress"
LEASES = "leases"
CONVERSATIONS = "conversations"
BATCHES = "batches"
HELD = "held"
SCHEDULE = "schedule"
DEADLETTERS = "deadletters"
CALLS = "calls"
JOBS = "jobs"
CONTROL = "control"
STATUS = "status"
HISTORY = "history"
AUDIT = "audit"

SCHEMA = 3
"""The form in which this release writes documents (docs/reference/collections.md).

The dispatcher's row of `progress` has it as `schema`; if absent, it is 1.
"""

Document = dict[str, Any]


def key_of(event: Mapping[str, Any]) -> str | None:
    """The conversation an event belongs to: groupId, else roomId, else userId; None without source.

    Sources as in LINE's reference, "Source" of a webhook event object.
    """
    source = event.get("source")
    if not isinstance(source, Mapping):
        return None
    for name in ("groupId", "roomId", "userId"):
        value = source.get(name)
        if isinstance(value, str) and value:
            return value
    return None


def make_document(event: Document, *, channel: str, accept_time: datetime) -> Document:
    """The recvq document of one event; `event` is LINE's JSON, stored untouched.

    `_id` is made here, at arrival, and never changes. `eventId` is omitted if LINE sent none, since
    the partial unique index would index null as a value. An event without a source is its own key.
    """
    document: Document = {"_id": ObjectId()}
    event_id = event.get("webhookEventId")
    if isinstance(event_id, str) and event_id:
        document[EVENT_ID] = event_id
    document["channel"] = channel
    document["key"] = key_of(event) or name_of(document)
    document[ACCEPT_TIME] = accept_time
    document["event"] = event
    return document


def make_heartbeat(accept_time: datetime) -> Document:
    """A document that bots never see: it proves that the feed works and advances its position."""
    return {"_id": ObjectId(), "heartbeat": True, ACCEPT_TIME: accept_time}


def is_heartbeat(document: Mapping[str, Any]) -> bool:
    """Whether the document is the dispatcher's own; LINE's events have no such field."""
    return document.get("heartbeat") is True


def has_a_place(document: Mapping[str, Any]) -> bool:
    """Whether `_id` and key can be looked up; typed in a shell they may be of any type."""
    try:
        hash((document["_id"], document.get("channel"), document.get("key")))
    except TypeError:
        return False
    return True


def name_of(document: Mapping[str, Any]) -> str:
    """The event's name in all other collections: its eventId, else the document's `_id`."""
    return str(document.get(EVENT_ID) or document["_id"])


def conversation_id(document: Mapping[str, Any]) -> str:
    """The `_id` in `conversations` of the conversation that a document belongs to."""
    return f"{document['channel']}/{document['key']}"


def text_of(raw: Mapping[str, Any], *path: str) -> str | None:
    """The non-empty text at a path of the raw event; None for anything else."""
    value: Any = raw
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value if isinstance(value, str) and value else None
