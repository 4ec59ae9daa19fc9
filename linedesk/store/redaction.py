"""What is left of a message that its sender took back: that it was there, and which it was. Pure.

LINE asks to delete stored copies of a message that was unsent ("Receive messages", unsend event).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from linedesk.store.documents import Document

# What names a message; all else of it, whatever LINE adds one day, is its content.
KEPT = ("type", "id")


def redacted(document: Mapping[str, Any]) -> Document:
    """A copy of a recvq document without its message's content, marked `unsent: true`.

    Everything that names the event stays; so does a document without a message, but for the mark.
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

    Only the message is written anew: an update of more may meet field names that MongoDB takes
    in an insert alone.
    """
    message = redacted(document)["event"].get("message", {})
    return {f"{at}event.message": message, f"{at}unsent": True}


def message_id_of(document: Mapping[str, Any]) -> str | None:
    """The id of the message that a document brings or edits; None where it brings none."""
    return _text(document, "message", "id")


def unsent_id_of(document: Mapping[str, Any]) -> str | None:
    """The id of the message that a document takes back; None for any other event."""
    event = document.get("event")
    if not isinstance(event, Mapping) or event.get("type") != "unsend":
        return None
    return _text(document, "unsend", "messageId")


def _text(document: Mapping[str, Any], part: str, name: str) -> str | None:
    event = document.get("event")
    inner = event.get(part) if isinstance(event, Mapping) else None
    value = inner.get(name) if isinstance(inner, Mapping) else None
    return value if isinstance(value, str) and value else None
