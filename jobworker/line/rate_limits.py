"""LINE's rate limits: how often each endpoint may be called, and which ones answered 429.

LINE counts per channel and endpoint, over all recipients (Messaging API reference, "Rate limits").
Its buckets may be emptier than those here. Other programs may use the channel, and a starting
process does not know the use of the previous one. A 429 shows this, and empties the bucket here.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable

from jobworker.errors import LineError
from jobworker.line.answer import LineAnswer, is_endpoint_limit
from linedesk.runtime.backoff import growing_seconds
from linedesk.store.limits import RATE

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0


# Calls a second: a bucket holds at most that many. Source: Messaging API reference, "Rate limits"
# (buckets since 2026-07-31). LINE's example for 60 an hour says that a bucket holds as many calls
# as are refilled. RATE is that of reply, push, profiles, quota and all endpoints not named here.
# The endpoints that linedesk calls. Endpoints that only handlers call are missing: they are not
# held back, and the handler gets LINE's 429.
RATES = {"/v2/bot/message/multicast": 200, "/v2/bot/chat/loading/start": 100}
# A call reaches LINE after it is counted here, and LINE's full bucket takes no refill meanwhile. A
# bucket smaller by a fifth never runs ahead of LINE's for delays of up to a fifth of a second.
SHARE = 0.8


class Bucket:
    """The calls that an endpoint may still take. Pure; every time is monotonic seconds.

    Threads may make `at_once` calls before any of them is counted. A call is therefore allowed only
    while the bucket holds that many, or half of all if that is less.

    | it holds | seconds |
    | --- | --- |
    | enough | 0 |
    | less | until it holds enough, plus one call for each earlier waiter |
    """

    def __init__(self, per_second: int, *, at_once: int = 1, now: float) -> None:
        self._most = per_second * SHARE
        self._per_second = per_second
        self._enough = max(1.0, min(at_once, self._most / 2))
        self._holds = self._most
        self._at = now
        self._told = now

    def seconds(self, now: float) -> float:
        """Return how long to make no call. Each waiter gets a time of its own."""
        self._refill(now)
        if self._holds >= self._enough:
            return 0.0
        # Otherwise all would ask again at once, and only one would succeed.
        ready = now + (self._enough - self._holds) / self._per_second
        self._told = max(ready, self._told + 1 / self._per_second)
        return self._told - now

    def count(self, now: float) -> None:
        self._refill(now)
        self._holds -= 1

    def empty(self, now: float) -> None:
        self._refill(now)
        self._holds = min(0.0, self._holds)

    def _refill(self, now: float) -> None:
        self._holds = min(self._most, self._holds + (now - self._at) * self._per_second)
        self._at = now


class RateLimits:
    """The limits of each endpoint, named by the template of its path. Any thread may ask.

    `at_once`: how many threads may call at the same time.
    """

    def __init__(
        self,
        *,
        at_once: int = 1,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._at_once = at_once
        self._monotonic = monotonic
        self._lock = threading.Lock()
        # All below under _lock, by endpoint.
        self._limited: dict[str, int] = {}
        self._until: dict[str, float] = {}
        self._buckets: dict[str, Bucket] = {}

    def seconds(self, endpoint: str) -> float:
        """Return how long the endpoint must not be called, by LINE's 429 or its limit; 0 if it may
        be.

        A caller that gets 0 makes its call next, and has it counted. The longest wait for the limit
        alone is LONGEST_PAUSE_SECONDS; after that the caller has to ask again.
        """
        with self._lock:
            now = self._monotonic()
            held = self._until.get(endpoint, 0.0) - now
            if held > 0:
                return held
            return min(self._bucket(endpoint, now).seconds(now), LONGEST_PAUSE_SECONDS)

    def count(self, endpoint: str) -> None:
        """Count a call of the endpoint that is made now."""
        with self._lock:
            now = self._monotonic()
            self._bucket(endpoint, now).count(now)

    def note(self, endpoint: str, answer: LineAnswer | LineError) -> None:
        """Note the result of a call of the endpoint: the limit is used up, or a call succeeded.

        After a 429 the endpoint is held back for LINE's Retry-After, otherwise longer with each
        consecutive 429. Of calls that began before the end of a pause only LINE's Retry-After
        counts: they were under way together.
        """
        if not isinstance(answer, LineAnswer):
            return
        with self._lock:
            now, until = self._monotonic(), self._until.get(endpoint, 0.0)
            is_old = answer.began < until
            if not is_endpoint_limit(answer):
                if not is_old:
                    self._limited.pop(endpoint, None)
                return
            self._bucket(endpoint, now).empty(now)
            if is_old:
                self._until[endpoint] = max(until, now + (answer.retry_after or 0.0))
                return
            times = self._limited[endpoint] = self._limited.get(endpoint, 0) + 1
            # A Retry-After of 0 must not cause a hot loop.
            seconds = answer.retry_after or growing_seconds(
                times, first=FIRST_PAUSE_SECONDS, most=LONGEST_PAUSE_SECONDS
            )
            self._until[endpoint] = now + seconds
        log.warning(
            "rate limit, endpoint held back endpoint=%s times=%d seconds=%.1f",
            *(endpoint, times, seconds),
        )

    def _bucket(self, endpoint: str, now: float) -> Bucket:
        """Under the lock. The SDK names the parameters of a path, linedesk does not."""
        name = re.sub(r"{\w*}", "{}", endpoint)
        bucket = self._buckets.get(name)
        if bucket is None:
            rate = RATES.get(name, RATE)
            bucket = self._buckets[name] = Bucket(rate, at_once=self._at_once, now=now)
        return bucket
