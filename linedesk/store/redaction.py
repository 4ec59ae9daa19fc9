"""Removes the content of unsent messages; only their type and id are kept. Pure.

LINE asks to delete stored copies of a message that was unsent ("Receive messages", unsend event).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from linedesk.store.documents import Document, text_of

# The fields that identify a message; all other fields, also future ones, are content.
KEPT = ("type", "id")


def redacted(document: Mapping[str, Any]) -> Document:
    """A copy of a recvq document without its message's content, marked `unsent: true`.

    Everything that identifies the event is kept. A document without a message only gets the mark.
    """
    emptied: Document = {**document, "unsent": True}
    event = document.get("event")
    if isinstance(event, Mapping) and "message" in event:
        message = event["message"]
        known = message if isinstance(message, Mapping) else {}
        kept = {name: known[name] for name in KEPT if isinstance(known.get(name), str)}
        emptied["event"] = {**event, "message": kept}
    return emptied


def emptying(document: Mapping[str, Any], *, at: str = "") -> Document:
    """The same as the fields of a `$set`, for a document that is stored under the path `at`.

    Only the message is rewritten: other fields may have names that MongoDB accepts only in inserts.
    """
    message = redacted(document)["event"].get("message", {})
    return {f"{at}event.message": message, f"{at}unsent": True}


def message_id_of(document: Mapping[str, Any]) -> str | None:
    """The id of the message in a document or edited by it; None without one."""
    return text_of(document, "event", "message", "id")


def unsent_id_of(document: Mapping[str, Any]) -> str | None:
    """The id of the message that a document unsends; None for other events."""
    if text_of(document, "event", "type") != "unsend":
        return None
    return text_of(document, "event", "unsend", "messageId")
