"""Edited messages: a handler gets the newest text, once.

LINE's reference, "Edit event": an edit has the id of its message. Edits may arrive in any order;
the one with the largest `timestamp` is the present text. The field `edits` of a conversation says
up to which timestamp the edits of its last messages are handled. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jobworker.record.conversations import Decision
from linedesk.store.documents import Document, text_of
from linedesk.store.records.conversations import EDITS
from linedesk.store.redaction import message_id_of

EDIT = "messageEdited"
# The last edited messages that are known of one conversation.
MOST_EDITED = 100


@dataclass
class HandledEdits:
    """The edits that a job's handler gets, for its record."""

    times: dict[str, int] = field(default_factory=dict)
    """By message id, the timestamp of the newest one."""
    before: Mapping[str, int] = field(default_factory=dict)
    """The conversation's, the oldest message first."""

    def noted(self, decision: Decision) -> Decision:
        """Return the decision with its edits; the oldest of too many leave the conversation."""
        if not self.times:
            return decision
        known = [one for one in self.before if one not in self.times]
        too_many = known[: max(0, len(known) + len(self.times) - MOST_EDITED)]
        return replace(
            decision,
            changes={**decision.changes, **{_path(id_): at for id_, at in self.times.items()}},
            gone=[*decision.gone, *map(_path, too_many)],
        )


def is_edit(document: Mapping[str, Any]) -> bool:
    """Whether the document edits a message."""
    return text_of(document, "event", "type") == EDIT


def editable_id(document: Mapping[str, Any]) -> str | None:
    """The id of a text that its sender may edit, or has edited here; None for other events."""
    kind = text_of(document, "event", "message", "type")
    if kind != "text" or text_of(document, "event", "type") not in ("message", EDIT):
        return None
    id_ = message_id_of(document)
    # It becomes the name of a field.
    return id_ if id_ and id_.isalnum() and not document.get("unsent") else None


def edited_at(document: Mapping[str, Any]) -> int:
    """The time of a message or an edit, in LINE's milliseconds; 0 if LINE sent none."""
    at = document["event"].get("timestamp")
    return at if isinstance(at, int) else 0


def newest(documents: Iterable[Document], message_id: str, *, after: int) -> Document | None:
    """Return the newest edit of a message; None if none is newer than `after`."""
    found = [
        one
        for one in documents
        if is_edit(one) and editable_id(one) == message_id and edited_at(one) > after
    ]
    return max(found, key=edited_at, default=None)


def with_text_of(document: Document, edit: Document) -> Document:
    """Return a copy with the edit's message: the event, its time and its reply token stay."""
    return {**document, "event": {**document["event"], "message": edit["event"]["message"]}}


def _path(message_id: str) -> str:
    return f"{EDITS}.{message_id}"
