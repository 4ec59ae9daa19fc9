"""Edited messages: a handler gets the newest text, once.

LINE's reference, "Edit event": an edit has its message's id, and the newest `timestamp` counts,
since edits arrive in any order. A conversation's field `edits` has the newest handled one. Pure.
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
    """By message id, the newest edits that a job's handler gets, and those in its conversation."""

    times: dict[str, int] = field(default_factory=dict)
    before: Mapping[str, int] = field(default_factory=dict)

    def noted(self, decision: Decision) -> Decision:
        """Return the decision with its edits; the oldest of too many leave the conversation."""
        if not self.times:
            return decision
        others = [one for one in self.before if one not in self.times]
        too_many = others[: max(0, len(others) + len(self.times) - MOST_EDITED)]
        changes = {f"{EDITS}.{id_}": at for id_, at in self.times.items()}
        gone = [*decision.gone, *(f"{EDITS}.{id_}" for id_ in too_many)]
        return replace(decision, changes={**decision.changes, **changes}, gone=gone)


def is_edit(document: Mapping[str, Any]) -> bool:
    return text_of(document, "event", "type") == EDIT


def editable_id(document: Mapping[str, Any]) -> str | None:
    """The message id of a text or its edit, unless it was taken back; None for other events."""
    kinds = (text_of(document, "event", "type"), text_of(document, "event", "message", "type"))
    id_ = message_id_of(document)
    if kinds not in (("message", "text"), (EDIT, "text")) or document.get("unsent"):
        return None
    # It becomes the name of a field.
    return id_ if id_ and id_.isalnum() else None


def edited_at(document: Mapping[str, Any]) -> int:
    """The time of a message or an edit, in LINE's milliseconds; 0 if LINE sent none."""
    at = document["event"].get("timestamp")
    return at if isinstance(at, int) else 0


def newest(documents: Iterable[Document], message_id: str, *, after: int) -> Document | None:
    """Return the newest edit of a message; None if none is newer than `after`."""
    edits = (one for one in documents if is_edit(one) and editable_id(one) == message_id)
    found = max(edits, key=edited_at, default=None)
    return found if found is not None and edited_at(found) > after else None
