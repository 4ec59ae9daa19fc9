"""Reads from LINE the month's message limit and how many messages are counted.

`jobworker.line.month` interprets the answers.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from jobworker.errors import LineError
from jobworker.line.answer import LineAnswer
from jobworker.line.gate_order import PLACE_SECONDS, Standing
from jobworker.line.month import SOON_SECONDS, Month, MonthlyQuota, limit_in, used_in
from jobworker.line.side_call import Line, NotCalled, SideCall
from linedesk.store.records.calls import TurnClass

log = logging.getLogger(__name__)

# A starting dispatcher has more urgent calls to make. No push waits for a reading.
FIRST_SECONDS = 60.0
# Older figures are not valid.
STALE_SECONDS = 1800.0

LIMIT = "/v2/bot/message/quota"
USED = "/v2/bot/message/quota/consumption"


class Quota(SideCall):
    """The month's messages, read every ten minutes, at midnight in Japan, and after a refused send.

    A reading is two calls, each in the class of the pushes, so it is also made when the gate is
    busy. The second call is made only after LINE answered the first: these endpoints alone
    never open the breaker. A failed reading is repeated only for a refused send, after a minute.

    Any thread may ask. The wall clock determines LINE's month. Nothing is stored: a
    process that starts in a closed month learns this by its first refused push.
    """

    patient = True

    def __init__(self, line: Line) -> None:
        super().__init__(line, LIMIT)
        # Of the reading's thread.
        self._limit: int | None = None
        # All below under _changed.
        self._month = Month()
        self._due = math.inf
        self._begun_at = -math.inf
        self._told_at = -math.inf
        self._was_closed = False
        self.when_closed: Callable[[], None] | None = None
        """Called each time that the month closes; has to be quick."""
        line.figures.ask(self._figures)

    def start(self) -> None:
        """Read after a while, and then repeatedly."""
        self._again(FIRST_SECONDS)

    @property
    def month(self) -> MonthlyQuota:
        """The known figures of the month; quick."""
        with self._changed:
            return self._look()

    def met(self) -> None:
        """LINE refused a send for the monthly limit: read soon, at most once a minute."""
        with self._changed:
            self._month.refused(self._line.now())
            seconds = self._begun_at + SOON_SECONDS - self._line.monotonic()
        self._again(max(0.0, seconds))

    def paid(self, people: int) -> None:
        """LINE accepted a push or multicast for this many people."""
        with self._changed:
            self._month.paid(people, self._line.now())

    def _look(self) -> MonthlyQuota:
        """Under the lock: the present figures."""
        if self._line.monotonic() - self._told_at > STALE_SECONDS:
            self._month.forget()
        found = self._month.quota(self._line.now())
        if found.is_closed is not self._was_closed:
            self._was_closed = found.is_closed
            if found.is_closed:
                if self.when_closed is not None:
                    self._line.later(0.0, self.when_closed)
                log.warning(
                    "the month's messages are used up: replies only, until a reading shows room "
                    "limit=%s used=%s",
                    *(found.limit, found.used),
                )
            else:
                log.info("the month has room again limit=%s used=%s", found.limit, found.used)
        return found

    def _figures(self) -> dict[str, float | None]:
        with self._changed:
            found, since = self._look(), self._month.closed_since
        return {
            "quota_messages": found.limit,
            "quota_used_messages": found.used,
            "quota_closed_since_seconds": since.timestamp() if since else None,
        }

    # One reading: first the limit, then the number used.

    def _again(self, seconds: float) -> None:
        """Begin a reading, or go on with one, after at most this many seconds."""
        with self._changed:
            due = self._line.monotonic() + seconds
            if due >= self._due:
                return
            self._due = due
        self._line.later(seconds, self._wake)

    def _wake(self) -> None:
        with self._changed:
            if self._line.monotonic() < self._due:
                # An earlier one has replaced it.
                return
            self._due = math.inf
        self.due()

    def standing(self) -> Standing:
        return Standing(TurnClass.CHAT, self._line.monotonic() + PLACE_SECONDS)

    def request(self) -> LineAnswer:
        """Ask for the present one of the two."""
        if self.path == LIMIT:
            with self._changed:
                self._month.begin(self._line.now())
                self._begun_at = self._line.monotonic()
        return self._line.client.get(self.path)

    def answered(self, answer: LineAnswer | LineError) -> float:
        """Make the second call, or use the figures and plan the next reading."""
        used = None
        try:
            if self.path == LIMIT:
                self._limit, self.path = limit_in(answer), USED
                return 0.0
            used = used_in(answer)
        except ValueError as error:
            log.info("quota not known endpoint=%s error=%s", self.path, error)
        self.path = LIMIT
        with self._changed:
            now = self._line.now()
            if used is None:
                self._month.failed(now)
            else:
                self._month.told(self._limit, used, now)
                self._told_at = self._line.monotonic()
            self._look()
            return self._month.next_seconds(now)

    def not_called(self, why: NotCalled) -> float | None:
        """Wait for the rate limit, as for a fresh lease."""
        return SOON_SECONDS if why is NotCalled.HELD_BACK else super().not_called(why)
