"""`jobs`: one row for each run of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from linedesk.store.records.events import EVENT_ID

WAITED_MS: Final = "waitedMs"
GATHERED_WITH: Final = "gatheredWith"


@dataclass(slots=True)
class RunRecord:
    """One run, with or without a call of a handler. Not frozen: there is one for each event."""

    at: datetime | None
    ms: float
    event_id: str | None
    channel: str | None
    key: str | None
    type: str | None
    """The key of the event."""
    waited_ms: float
    """From the webhook's arrival to this run."""
    attempt: int
    outcome: str | None
    effects: int
    error: str | None
    thread: str | None
    gathered_with: str | None = None
    """The name of the first message of a group that was handled together; not set for that one."""

    @classmethod
    def from_document(cls, row: Mapping[str, Any]) -> RunRecord:
        """A row of `jobs`; fields missing in a row made by hand are None or 0."""
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
            gathered_with=row.get(GATHERED_WITH),
        )

    def to_document(self) -> dict[str, Any]:
        row = {
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
        return row if self.gathered_with is None else {**row, GATHERED_WITH: self.gathered_with}
