"""`calls`: one row a call of LINE's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from linedesk.store.records.events import EVENT_ID

REQUEST_ID: Final = "requestId"


@dataclass(slots=True)
class CallRecord:
    """One call; the caller fills in `status` and `request_id` when there is an answer."""

    at: datetime | None
    method: str | None
    endpoint: str | None
    event_id: str | None
    key: str | None
    attempt: int
    ms: float = 0.0
    status: int | None = None
    """None where LINE did not answer."""
    request_id: str | None = None
    also: Sequence[Mapping[str, Any]] = ()
    """What travelled in it besides, `{eventId, key}` each; left out where nothing did."""

    @classmethod
    def from_document(cls, row: Mapping[str, Any]) -> CallRecord:
        """A row of `calls`; what one made by hand lacks is None or 0."""
        return cls(
            at=row.get("at"),
            method=row.get("method"),
            endpoint=row.get("endpoint"),
            event_id=row.get(EVENT_ID),
            key=row.get("key"),
            attempt=row.get("attempt") or 1,
            ms=row.get("ms") or 0.0,
            status=row.get("status"),
            request_id=row.get(REQUEST_ID),
            also=row.get("also") or (),
        )

    def to_document(self) -> dict[str, Any]:
        """As it stands in `calls`."""
        return {
            "at": self.at,
            "ms": self.ms,
            "method": self.method,
            "endpoint": self.endpoint,
            "status": self.status,
            REQUEST_ID: self.request_id,
            EVENT_ID: self.event_id,
            "key": self.key,
            "attempt": self.attempt,
            **({"also": list(self.also)} if self.also else {}),
        }
