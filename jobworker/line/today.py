"""Counts the sends that LINE accepted today and in this month, by kind. Pure.

A day is Japan's, like LINE's month.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Any

from jobworker.line.month import TOKYO


def day_of(moment: datetime) -> date:
    """Return the day in Japan; `moment` is aware."""
    return moment.astimezone(TOKYO).date()


def midnight(now: datetime) -> datetime:
    """Return when the day began in Japan; `now` is aware."""
    return now.astimezone(TOKYO).replace(hour=0, minute=0, second=0, microsecond=0)


def sent_id(now: datetime) -> str:
    """Return the `_id` of the month's document in `leases`."""
    return f"sent/{now.astimezone(TOKYO):%Y-%m}"


@dataclass(frozen=True)
class Sent:
    """Sends that LINE accepted. LINE's own count may differ."""

    replies: int = 0
    """Calls, which are free."""
    pushes: int = 0
    """Messages counted for pushes to users and multicasts: one for each user."""
    groups: int = 0
    """Messages counted for pushes to groups and rooms: one for each member."""
    unknown: int = 0
    """How many of these calls count as one, since the number of people is not known."""

    @property
    def counted(self) -> int:
        """The number of messages that LINE counts."""
        return self.pushes + self.groups


class SentHere:
    """The sends of this process today and in this month. Its owner's lock guards it."""

    def __init__(self) -> None:
        self._day = date.min
        self._today: Counter[str] = Counter()
        self._month: Counter[str] = Counter()

    def add(self, sent: Sent, at: datetime) -> None:
        """LINE accepted a call at that moment; one of an earlier day is not of today."""
        day = day_of(at)
        if day > self._day:
            if day.replace(day=1) != self._day.replace(day=1):
                self._month.clear()
            self._day = day
            self._today.clear()
        if day == self._day:
            self._today.update(asdict(sent))
        if day.replace(day=1) == self._day.replace(day=1):
            self._month.update(asdict(sent))

    def part(self, now: datetime) -> dict[str, Any]:
        """Return its part of the month's document; empty if it sent nothing in this month."""
        if day_of(now).replace(day=1) != self._day.replace(day=1):
            return {}
        return {"day": self._day.day, "today": dict(self._today), "month": dict(self._month)}


def sent_in(document: Mapping[str, Any], *, day: date | None = None) -> Sent:
    """Return the sum of a month's document, or of one of its days, the latest of each part."""
    total: Counter[str] = Counter()
    for part in document.values():
        if isinstance(part, Mapping) and (day is None or part["day"] == day.day):
            total.update(part["month" if day is None else "today"])
    return Sent(**total)
