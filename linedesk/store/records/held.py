"""`held`: one row a document that waits long, out of memory and of recvq's reach."""

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
    """Its place among all that was ever held: the order of its key."""
    key: Any
    channel: Any
    document: dict[str, Any]
    why: str
    since: datetime
    """When it was moved here."""

    def to_document(self) -> dict[str, Any]:
        """As it stands in `held`."""
        return {
            "_id": self.id,
            "n": self.n,
            "key": self.key,
            "channel": self.channel,
            "document": self.document,
            "why": self.why,
            "since": self.since,
        }
