"""Counts the sends that LINE accepted in this month, by kind, and today. Pure.

A day is Japan's, like LINE's month.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import date, datetime
from typing import Any, Literal

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


Kind = Literal["replies", "pushes", "groups"]


@dataclass(frozen=True)
class Sent:
    """Sends of a month that LINE accepted. LINE's own count may differ."""

    replies: int = 0
    """Calls, which are free."""
    pushes: int = 0
    """Messages counted for pushes to users and multicasts: one for each user."""
    groups: int = 0
    """Messages counted for pushes to groups and rooms: one for each member, as far as known."""


class SentHere:
    """The sends of this process in this month and today. Its owner's lock guards it."""

    def __init__(self) -> None:
        self._month = ""
        self._part: Counter[str] = Counter()

    def add(self, kind: Kind, count: int, now: datetime) -> None:
        """LINE accepted a call just now."""
        if self._month != sent_id(now):
            self._month, self._part = sent_id(now), Counter()
        if self._part["day"] != day_of(now).day:
            self._part["day"], self._part["today"] = day_of(now).day, 0
        self._part[kind] += count
        self._part["today"] += 0 if kind == "replies" else count

    def part(self, now: datetime) -> dict[str, int]:
        """Return its part of the month's document; empty if it sent nothing in this month."""
        return dict(self._part) if self._month == sent_id(now) else {}


def sent_in(document: Mapping[str, Any]) -> Sent:
    """Return the sum of a month's document."""
    parts = [part for part in document.values() if isinstance(part, Mapping)]
    return Sent(*(sum(part.get(one.name, 0) for part in parts) for one in fields(Sent)))
