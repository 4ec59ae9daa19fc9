"""What the bot has sent, as LINE counts it: by day, by aggregation unit, and each narrowcast.

Days and months are Japan's. Callers hold the simulator's lock.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from linesim.model.clock import Clock
from linesim.model.endpoints import JAPAN
from linesim.model.recent import Recent

MOST_UNITS = 1_000
WAITING_SECONDS = 1.0
SENDING_SECONDS = 1.0
FOLLOWED_SECONDS = 14 * 24 * 60 * 60


def day_of(at: float) -> str:
    """The day of a Unix time, as LINE writes it: yyyyMMdd."""
    return (datetime.fromtimestamp(at, UTC) + JAPAN).strftime("%Y%m%d")


@dataclass(frozen=True)
class Narrowcast:
    """`accepted_at` is Unix time, `to` are the users reached, `error` is LINE's code of a failure.

    The messages are in the chats at once; the phases follow the clock.
    """

    accepted_at: float
    to: tuple[str, ...]
    error: int | None = None

    def phase(self, now: float) -> Literal["waiting", "sending", "succeeded", "failed"]:
        age = now - self.accepted_at
        if age < WAITING_SECONDS:
            return "waiting"
        if self.error is not None:
            return "failed"
        return "sending" if age < WAITING_SECONDS + SENDING_SECONDS else "succeeded"

    @property
    def completed_at(self) -> float:
        spent = WAITING_SECONDS + (SENDING_SECONDS if self.error is None else 0.0)
        return self.accepted_at + spent


class Sent:
    """`days` are numbers of users reached, by day and way; `units` are names by month (yyyyMM)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.days: dict[str, dict[str, int]] = {}
        self.units: dict[str, list[str]] = {}
        self.narrowcasts: Recent[str, Narrowcast] = Recent(10_000)

    @property
    def today(self) -> str:
        return day_of(self._clock.time())

    def count(self, way: str, people: int, units: Sequence[str]) -> None:
        """A month has 1,000 units at most; a message with one more is sent without it."""
        ways = self.days.setdefault(self.today, {})
        ways[way] = ways.get(way, 0) + people
        names = self.units.setdefault(self.today[:6], [])
        new = [one for one in dict.fromkeys(units) if one not in names]
        names += new[: MOST_UNITS - len(names)]

    def narrowcast(self, request_id: str) -> Narrowcast | None:
        """LINE knows a narrowcast for 14 days."""
        known = self.narrowcasts.get(request_id)
        is_kept = known and self._clock.time() - known.accepted_at < FOLLOWED_SECONDS
        return known if is_kept else None
