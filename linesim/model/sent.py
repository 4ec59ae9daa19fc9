"""What the bot has sent, as LINE counts it: by day, by aggregation unit, and each narrowcast.

Days and months are Japan's. Callers hold the simulator's lock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from linesim.model.clock import Clock
from linesim.model.endpoints import JAPAN
from linesim.model.ids import Lasting

MOST_UNITS = 1_000
KEPT_SECONDS = 14 * 24 * 60 * 60
WAITING_SECONDS = 1.0
SENDING_SECONDS = 1.0


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

    @property
    def completed_at(self) -> float:
        return self.accepted_at + WAITING_SECONDS + (0 if self.error else SENDING_SECONDS)

    def phase(self, now: float) -> str:
        if now < self.accepted_at + WAITING_SECONDS:
            return "waiting"
        if now < self.completed_at:
            return "sending"
        return "failed" if self.error else "succeeded"


class Sent:
    """`days` are numbers of users reached, by day and way; `units` are names by month (yyyyMM)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.days: dict[str, dict[str, int]] = {}
        self.units: dict[str, list[str]] = {}
        self.narrowcasts: Lasting[Narrowcast] = Lasting(KEPT_SECONDS, clock, limit=10_000)

    @property
    def today(self) -> str:
        return day_of(self._clock.time())

    def of(self, day: str) -> Mapping[str, int]:
        return self.days.get(day, {})

    @property
    def units_of_month(self) -> list[str]:
        return self.units.setdefault(self.today[:6], [])

    def count(self, way: str, people: int, units: Sequence[str]) -> None:
        """A month has 1,000 units at most; a message with one more is sent without it."""
        ways, names = self.days.setdefault(self.today, {}), self.units_of_month
        ways[way] = ways.get(way, 0) + people
        new = [one for one in units if one not in names]
        names += new[: MOST_UNITS - len(names)]
