"""`jobs`: one row for each run of a job."""

from __future__ import annotations

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
