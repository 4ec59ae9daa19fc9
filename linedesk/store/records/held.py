"""`held`: one row for each document that waits long, outside memory and recvq."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(slots=True)
class HeldRecord:
    """One document that waits."""

    id: Any
    """Its `_id` in recvq."""
    n: int
    """Its number among all held documents: it gives the order within a key."""
    key: Any
    channel: Any
    document: dict[str, Any]
    why: dict[str, Any] | str
    """See `linedesk.store.records.waits`; a sentence in rows of earlier releases."""
    since: datetime
    """When it was moved here."""

    def to_document(self) -> dict[str, Any]:
        """The row in `held`."""
        return {
            "_id": self.id,
            "n": self.n,
            "key": self.key,
            "channel": self.channel,
            "document": self.document,
            "why": self.why,
            "since": self.since,
        }
