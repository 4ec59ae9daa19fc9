"""How many messages LINE has counted today. Pure.

A day is Japan's, like LINE's month.
"""

from __future__ import annotations

from datetime import date, datetime

from jobworker.line.month import TOKYO


def day_of(moment: datetime) -> date:
    """Return the day in Japan; `moment` is aware."""
    return moment.astimezone(TOKYO).date()


def midnight(now: datetime) -> datetime:
    """Return when the day began in Japan; `now` is aware."""
    return now.astimezone(TOKYO).replace(hour=0, minute=0, second=0, microsecond=0)


class Today:
    """Counts from midnight on. Its owner's lock guards it."""

    def __init__(self) -> None:
        self._day: date | None = None
        self._messages = 0

    def add(self, messages: int, at: datetime) -> None:
        """LINE accepted a call at that moment; one of an earlier day is ignored."""
        day = day_of(at)
        if self._day is None or day > self._day:
            self._day, self._messages = day, 0
        if day == self._day:
            self._messages += messages

    def messages(self, now: datetime) -> int:
        """Return the present count."""
        return self._messages if self._day == day_of(now) else 0
