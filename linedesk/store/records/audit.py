"""`audit`: one row for each action of an operator, written before the action and completed after
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

BEGUN, DONE = "begun", "done"
ENDED_AT: Final = "endedAt"
# The acts that begin or end a pause.
PAUSING = ("pause", "resume", "resume and drop")


@dataclass(frozen=True)
class AuditRecord:
    """One action."""

    at: datetime
    by: str
    via: str
    """The operator's interface: page or command; dispatcher for its own actions."""
    act: str
    on: str | list[str]
    why: str
    outcome: str = BEGUN
    ended_at: datetime | None = None

    def to_document(self) -> dict[str, Any]:
        """The row in `audit`; without the fields of the end until it has ended."""
        ended = {} if self.ended_at is None else {ENDED_AT: self.ended_at}
        return {
            "at": self.at,
            "by": self.by,
            "via": self.via,
            "act": self.act,
            "on": self.on,
            "why": self.why,
            "outcome": self.outcome,
            **ended,
        }

    @classmethod
    def end(cls, outcome: str, at: datetime) -> dict[str, Any]:
        """The fields that complete it."""
        return {"outcome": outcome, ENDED_AT: at}
