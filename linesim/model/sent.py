"""What the bot has sent, as LINE counts it: by day, by aggregation unit, for the month's quota, and
each narrowcast.

Days and months are Japan's. Callers hold the simulator's lock.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from linesim.model import errors
from linesim.model.clock import Clock
from linesim.model.ids import Lasting

JAPAN = timedelta(hours=9)
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

    @property
    def units_of_month(self) -> list[str]:
        return self.units.setdefault(self.today[:6], [])

    def count(self, way: str, people: int, units: Sequence[str]) -> None:
        """A month has 1,000 units at most; a message with one more is sent without it."""
        ways, names = self.days.setdefault(self.today, {}), self.units_of_month
        ways[way] = ways.get(way, 0) + people
        new = [one for one in units if one not in names]
        names += new[: MOST_UNITS - len(names)]


class Quota:
    """Of the users reached in a calendar month; replies are free, and so is a message that cannot
    be received (docs, "Messaging API pricing").

    `reserved` is the part that a delivery of LINE's console reserves while it lasts: LINE refuses
    messages beyond the rest, and the consumption does not show it.
    """

    def __init__(self, limit: int | None, sent: Sent) -> None:
        self.limit = limit
        self.reserved = 0
        self._sent = sent

    @property
    def used(self) -> int:
        month = self._sent.today[:6]
        ways = (ways for day, ways in self._sent.days.items() if day.startswith(month))
        return sum(people for each in ways for way, people in each.items() if way != "reply")

    @property
    def left(self) -> float:
        """The messages that may still be sent."""
        return math.inf if self.limit is None else self.limit - self.used - self.reserved

    def check(self, people: int) -> None:
        """Refuses messages beyond the limit, and all messages once the limit is reached."""
        if max(people, 1) > self.left:
            raise errors.monthly_limit()
