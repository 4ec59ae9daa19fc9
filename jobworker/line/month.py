"""The month's messages: the rest of LINE's quota, and whether pushes are worth a call. Pure.

LINE counts pushes and multicasts by the people reached, in calendar months of Japan; replies are
free (docs, "Messaging API pricing"). Its count is approximate, and includes the sends of LINE's
console (reference, "Get number of messages sent this month").
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from jobworker.errors import LineError
from jobworker.line.answer import LineAnswer
from linedesk.store.limits import TOKYO, midnight

DAY_SECONDS = 86_400.0
# The pause between two readings, and between two while a refused send waits for one.
EVERY_SECONDS = 600.0
SOON_SECONDS = 60.0


@dataclass(frozen=True)
class MonthlyQuota:
    """The counted messages of this month, as far as LINE has reported them."""

    limit: int | None = None
    """The plan's limit; None while unknown, and for a plan without a limit."""
    used: int | None = None
    """LINE's approximate count plus linedesk's sends since then; None while unknown."""
    is_closed: bool = False
    """Whether LINE refuses pushes and multicasts; replies still work."""

    @property
    def left(self) -> int | None:
        """How many people can still be reached; None if limit or count is unknown."""
        if self.is_closed:
            return 0
        if self.limit is None or self.used is None:
            return None
        return max(0, self.limit - self.used)


class MonthState(Enum):
    """The known state of the month; see the table of `Month`."""

    OPEN = "open"
    REFUSED = "refused"
    """A send met the monthly limit, and no reading has begun since."""
    ASKED = "asked"
    """A reading has begun since then."""
    CLOSED = "closed"
    """That reading showed that the quota is used up."""


class Month:
    """Whether the month is closed, and the rest of it. One reading is under way at a time.

    A refusal alone does not close the month. LINE also refuses a call that merely does not fit, and
    while a delivery of its console reserves messages. A reading alone does not close it either,
    since LINE's count is approximate.

    | state | a send is refused | a reading begins | shows room | shows none | fails | a new month |
    | --- | --- | --- | --- | --- | --- | --- |
    | OPEN | REFUSED | - | - | - | - | - |
    | REFUSED | - | ASKED | - | - | - | OPEN |
    | ASKED | - | - | OPEN | CLOSED | REFUSED | OPEN |
    | CLOSED | - | - | OPEN | - | - | OPEN |

    `-`: the state stays. The month changes by the clock in Japan, in either direction: LINE's
    counts of another month do not apply, and a wrong clock costs one refused push. A reading that
    began in another month has failed. `now` is an aware moment of the wall clock.
    """

    def __init__(self) -> None:
        self.state = MonthState.OPEN
        self.closed_since: datetime | None = None
        """When the reading arrived that closed the month."""
        self._month: tuple[int, int] | None = None
        self._limit: int | None = None
        self._used: int | None = None
        # People reached since the reading of `_used` began, and since the last reading began.
        self._paid = 0
        self._paid_since_begin = 0
        self._begun_in: tuple[int, int] | None = None

    def quota(self, now: datetime) -> MonthlyQuota:
        self._turn(now)
        used = None if self._used is None else self._used + self._paid
        return MonthlyQuota(self._limit, used, self.state is MonthState.CLOSED)

    def refused(self, now: datetime) -> None:
        """LINE refused a send with its 429 for the monthly limit."""
        self._turn(now)
        if self.state is MonthState.OPEN:
            self.state = MonthState.REFUSED

    def paid(self, people: int, now: datetime) -> None:
        """LINE accepted a push or multicast for this many people."""
        self._turn(now)
        self._paid += people
        self._paid_since_begin += people

    def begin(self, now: datetime) -> None:
        """A reading begins: the first of its calls is made next."""
        self._turn(now)
        self._begun_in = self._month
        self._paid_since_begin = 0
        if self.state is MonthState.REFUSED:
            self.state = MonthState.ASKED

    def told(self, limit: int | None, used: int, now: datetime) -> None:
        """The reading ended with LINE's figures; `limit` is None for a plan without one."""
        self._turn(now)
        if self._begun_in != self._month:
            self.failed(now)
            return
        self._limit, self._used = limit, used
        # LINE's count may be older than these sends.
        self._paid = self._paid_since_begin
        if limit is None or used < limit:
            if self.state is not MonthState.REFUSED:
                self._open()
        elif self.state is MonthState.ASKED:
            self.state, self.closed_since = MonthState.CLOSED, now

    def failed(self, now: datetime) -> None:
        self._turn(now)
        if self.state is MonthState.ASKED:
            self.state = MonthState.REFUSED

    def forget(self) -> None:
        """The figures are too old. Those of a closed month remain: its count only grows."""
        if self.state is not MonthState.CLOSED:
            self._limit = self._used = None

    def next_seconds(self, now: datetime) -> float:
        """Return when to read next: soon for a refused send, at the latest at midnight in Japan."""
        if self.state in (MonthState.REFUSED, MonthState.ASKED):
            return SOON_SECONDS
        # A timer may fire slightly early by the wall clock, and would be set repeatedly.
        to_midnight = max(1.0, DAY_SECONDS - (now - midnight(now)).total_seconds())
        return min(EVERY_SECONDS, to_midnight)

    def _open(self) -> None:
        self.state, self.closed_since = MonthState.OPEN, None

    def _turn(self, now: datetime) -> None:
        """Drop the counts of another month; the plan's limit remains."""
        in_japan = now.astimezone(TOKYO)
        month = in_japan.year, in_japan.month
        if self._month not in (None, month):
            self._open()
            self._used, self._paid, self._paid_since_begin = None, 0, 0
        self._month = month


def limit_in(answer: LineAnswer | LineError) -> int | None:
    """Return the plan's limit; None for a plan without one. Raises ValueError for other answers.

    LINE's reference, "Get the target limit for sending messages this month".
    """
    told = _json(answer)
    if told.get("type") == "none":
        return None
    if told.get("type") != "limited":
        raise ValueError("no type of limit that is known")
    return _count(told.get("value"))


def people_in(answer: LineAnswer | LineError) -> int:
    """Return how many people are in a group or room. Raises ValueError for other answers."""
    return _count(_json(answer).get("count"))


def used_in(answer: LineAnswer | LineError) -> int:
    """Return how many messages LINE has counted. Raises ValueError for other answers."""
    return _count(_json(answer).get("totalUsage"))


def _json(answer: LineAnswer | LineError) -> dict[str, Any]:
    if not isinstance(answer, LineAnswer) or answer.status != 200:
        raise ValueError("no answer, or a refusal")
    try:
        told = json.loads(answer.text)
    except RecursionError as error:
        raise ValueError("no JSON within reason") from error
    if not isinstance(told, dict):
        raise ValueError("no JSON object")
    return told


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("no number of messages")
    return value
