"""LINE's rate limits, one token bucket per endpoint, and the channel's monthly quota of counted
messages.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from linesim import errors
from linesim.clock import Clock
from linesim.endpoints import ENDPOINTS, Rate

JAPAN = timedelta(hours=9)


class Bucket:
    """Full at first; a call takes one token, and tokens come back continuously."""

    def __init__(self, rate: Rate, *, now: float) -> None:
        self._rate = rate
        self._tokens = float(rate.calls)
        self._at = now

    def take(self, now: float) -> bool:
        refill = (now - self._at) * self._rate.calls / self._rate.seconds
        self._tokens = min(float(self._rate.calls), self._tokens + refill)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class RateLimits:
    """`rates` are LINE's own with those of the mapping instead of some; False: no limits.

    Whoever calls holds the simulator's lock.
    """

    def __init__(self, rates: Mapping[str, Rate] | bool, clock: Clock) -> None:
        own = {} if isinstance(rates, bool) else rates
        names = ENDPOINTS if rates is not False else ()
        self._clock = clock
        now = clock.monotonic()
        self._buckets = {
            each.name: Bucket(own.get(each.name, each.rate), now=now) for each in names
        }

    def check(self, endpoint: str) -> None:
        bucket = self._buckets.get(endpoint)
        if bucket and not bucket.take(self._clock.monotonic()):
            raise errors.rate_limited()


class Quota:
    """Counts the people reached by pushes and multicasts in a calendar month of Japan; replies are
    free.

    Whoever calls holds the simulator's lock.
    """

    def __init__(self, limit: int | None, clock: Clock) -> None:
        self.limit = limit
        self._clock = clock
        self._month = self._this_month()
        self._used = 0

    def _this_month(self) -> tuple[int, int]:
        today = datetime.fromtimestamp(self._clock.time(), UTC) + JAPAN
        return today.year, today.month

    @property
    def used(self) -> int:
        if (month := self._this_month()) != self._month:
            self._month, self._used = month, 0
        return self._used

    def check(self, people: int) -> None:
        """Refuses what would pass the limit, and anything at all once the limit is reached."""
        if self.limit is not None and self.used + max(people, 1) > self.limit:
            raise errors.monthly_limit()

    def count(self, people: int) -> None:
        self._used = self.used + people
