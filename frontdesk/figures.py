"""What one front desk has done, in the figures that whoever runs it shows to a person."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

# The rate is that of the last so many looks, one a second.
LOOKS = 10


@dataclass
class Figures:
    """Counts since the start; all of it belongs to the event loop."""

    accepted_events: int = 0
    refused_requests: int = 0
    _looks: deque[tuple[float, int]] = field(
        default_factory=lambda: deque(maxlen=LOOKS + 1), repr=False
    )

    def status(self, now: float, *, trouble: str | None, spool: dict[str, Any] | None) -> str:
        """One line for a person; `now` is a time of time.monotonic(), a second after the last."""
        self._looks.append((now, self.accepted_events))
        parts = [
            f"{self.accepted_events:,} events accepted",
            f"{self._per_second():.1f}/s",
            f"{self.refused_requests:,} requests refused",
            f"spool {spool['documents']:,} documents" if spool else "spool empty",
        ]
        return " · ".join([trouble, *parts] if trouble else parts)

    def _per_second(self) -> float:
        (began, before), (ended, after) = self._looks[0], self._looks[-1]
        return (after - before) / (ended - began) if ended > began else 0.0


def clock_time(seconds: float) -> str:
    """A time of time.time() as a person reads it in a status."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
