"""Reads from LINE the month's message limit and how many messages are counted.

`jobworker.line.month` interprets the answers.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from jobworker.errors import LineError
from jobworker.line.answer import LineAnswer
from jobworker.line.client import answer_or_error
from jobworker.line.gate import Gate
from jobworker.line.gate_order import PLACE_SECONDS, Standing, Ticket, TurnClass
from jobworker.line.month import SOON_SECONDS, Month, MonthlyQuota, limit_in, used_in
from jobworker.metrics import WorkerMetrics

log = logging.getLogger(__name__)

# A starting dispatcher has more urgent calls to make. No push waits for a reading.
FIRST_SECONDS = 60.0
# Older figures are not valid.
STALE_SECONDS = 1800.0

LIMIT = "/v2/bot/message/quota"
USED = "/v2/bot/message/quota/consumption"


class Quota:
    """The month's messages, read every ten minutes, at midnight in Japan, and after a refused send.

    A reading is two calls, each by a ticket in the class of the pushes, so it is also made when the
    gate is busy. The second call is made only after LINE answered the first: these endpoints alone
    never open the breaker. A failed reading is repeated only for a refused send, after a minute.

    Any thread may ask. `now` is the wall clock, which determines LINE's month. Nothing is stored: a
    process that starts in a closed month learns this by its first refused push.
    """

    def __init__(
        self,
        gate: Gate,
        *,
        get: Callable[..., LineAnswer],
        later: Callable[[float, Callable[[], None]], None],
        figures: WorkerMetrics,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gate = gate
        self._get = get
        self._later = later
        self._now = now
        self._monotonic = monotonic
        self._lock = threading.Lock()
        # All below under _lock.
        self._month = Month()
        self._is_reading = False
        self._due = math.inf
        self._begun_at = -math.inf
        self._told_at = -math.inf
        self._was_closed = False
        # Of the reading under way; used by one thread after the other.
        self._limit: int | None = None
        self._when_closed: Callable[[], None] | None = None
        figures.ask(self._figures)

    def when_closed(self, act: Callable[[], None]) -> None:
        """Call `act` each time that the month closes; it has to be quick."""
        self._when_closed = act

    def start(self) -> None:
        """Read after a while, and then repeatedly."""
        self._plan(FIRST_SECONDS)

    @property
    def month(self) -> MonthlyQuota:
        """The known figures of the month; quick."""
        with self._lock:
            return self._look()

    @property
    def is_closed(self) -> bool:
        """Whether a push or multicast is not worth a call."""
        return self.month.is_closed

    @property
    def left(self) -> int | None:
        """How many people can still be reached; None if unknown or unlimited."""
        return self.month.left

    def met(self) -> None:
        """LINE refused a send for the monthly limit: read soon, at most once a minute."""
        with self._lock:
            self._month.refused(self._now())
            seconds = self._begun_at + SOON_SECONDS - self._monotonic()
        self._plan(max(0.0, seconds))

    def paid(self, people: int) -> None:
        """LINE accepted a push or multicast for this many people."""
        with self._lock:
            self._month.paid(people, self._now())

    def _look(self) -> MonthlyQuota:
        """Under the lock: the present figures."""
        if self._monotonic() - self._told_at > STALE_SECONDS:
            self._month.forget()
        found = self._month.quota(self._now())
        if found.is_closed is not self._was_closed:
            self._was_closed = found.is_closed
            if found.is_closed:
                if self._when_closed is not None:
                    self._later(0.0, self._when_closed)
                log.warning(
                    "the month's messages are used up: replies only, until a reading shows room "
                    "limit=%s used=%s",
                    *(found.limit, found.used),
                )
            else:
                log.info("the month has room again limit=%s used=%s", found.limit, found.used)
        return found

    def _figures(self) -> dict[str, float | None]:
        with self._lock:
            found, since = self._look(), self._month.closed_since
        return {
            "quota_messages": found.limit,
            "quota_used_messages": found.used,
            "quota_closed_since_seconds": since.timestamp() if since else None,
        }

    # One reading.

    def _plan(self, seconds: float) -> None:
        """Begin a reading after at most this many seconds."""
        with self._lock:
            due = self._monotonic() + seconds
            if self._is_reading or due >= self._due:
                return
            self._due = due
        self._later(seconds, partial(self._read, due))

    def _read(self, due: float) -> None:
        with self._lock:
            if due != self._due:
                # An earlier one has replaced it.
                return
            self._due, self._is_reading = math.inf, True
        self._enter(LIMIT)

    def _enter(self, path: str) -> None:
        standing = Standing(TurnClass.CHAT, self._monotonic() + PLACE_SECONDS)
        self._gate.enter(Ticket(standing, granted=partial(self._take_turn, path)))

    def _take_turn(self, path: str, ticket: Ticket) -> None:
        """On a pool thread: handle a turn for one call of the reading."""
        answer = None
        with self._gate.holding(ticket) as turn:
            if turn.may_call():
                if path == LIMIT:
                    self._begin()
                turn.begin()
                answer = answer_or_error(lambda: self._get(path))
        if answer is None:
            self._enter(path)
        else:
            self._settle(path, answer)

    def _begin(self) -> None:
        with self._lock:
            self._month.begin(self._now())
            self._begun_at = self._monotonic()

    def _settle(self, path: str, answer: LineAnswer | LineError) -> None:
        """Handle an answer: first the limit, then the number used."""
        try:
            if path == LIMIT:
                self._limit = limit_in(answer)
                self._enter(USED)
                return
            self._end(used_in(answer))
        except ValueError as error:
            log.info("quota not known endpoint=%s error=%s", path, error)
            self._end(None)

    def _end(self, used: int | None) -> None:
        """End the reading, with or without LINE's count; plan the next one."""
        with self._lock:
            now = self._now()
            if used is None:
                self._month.failed(now)
            else:
                self._month.told(self._limit, used, now)
                self._told_at = self._monotonic()
            self._is_reading = False
            self._look()
            seconds = self._month.next_seconds(now)
        self._plan(seconds)
