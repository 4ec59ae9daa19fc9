"""`jobs`: one row a run of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from linedesk.store.records.events import EVENT_ID

WAITED_MS: Final = "waitedMs"


@dataclass(slots=True)
class RunRecord:
    """One run, whether it called a handler or not. Not frozen: there is one for each event."""

    at: datetime | None
    ms: float
    event_id: str | None
    channel: str | None
    key: str | None
    type: str | None
    """That of the event."""
    waited_ms: float
    """From the webhook's arrival to this run."""
    attempt: int
    outcome: str | None
    effects: int
    error: str | None
    thread: str | None

    @classmethod
    def from_document(cls, row: Mapping[str, Any]) -> RunRecord:
        """A row of `jobs`; what one made by hand lacks is None or 0."""
        return cls(
            at=row.get("at"),
            ms=row.get("ms") or 0.0,
            event_id=row.get(EVENT_ID),
            channel=row.get("channel"),
            key=row.get("key"),
            type=row.get("type"),
            waited_ms=row.get(WAITED_MS) or 0.0,
            attempt=row.get("attempt") or 1,
            outcome=row.get("outcome"),
            effects=row.get("effects") or 0,
            error=row.get("error"),
            thread=row.get("thread"),
        )

    def to_document(self) -> dict[str, Any]:
        """As it stands in `jobs`."""
        return {
            "at": self.at,
            "ms": self.ms,
            EVENT_ID: self.event_id,
            "channel": self.channel,
            "key": self.key,
            "type": self.type,
            WAITED_MS: self.waited_ms,
            "attempt": self.attempt,
            "outcome": self.outcome,
            "effects": self.effects,
            "error": self.error,
            "thread": self.thread,
        }
