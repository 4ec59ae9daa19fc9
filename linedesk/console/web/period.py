"""The period of a list, as an operator asks for it in an address: `from`, `to` and their zone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from fastapi import Query

from linedesk.console.dead_letters import moment_of

# An id of MongoDB has the seconds since 1970 in 32 bits; a day is left for clocks that differ.
FIRST_SECOND, LAST_SECOND = 86_400, 2**32 - 86_400
FORMS = "Write 2026-11-21T09:00, or 30m, 2h or 3d ago"


@dataclass(frozen=True)
class Period:
    """From a moment to another; None leaves an end open."""

    since: datetime | None = None
    until: datetime | None = None
    problem: str | None = None
    """Why what was asked for is no period, for a person."""

    def __bool__(self) -> bool:
        return self.since is not None or self.until is not None

    @property
    def query(self) -> str:
        """The same as the query of an address, whatever the zone of the next one who opens it."""
        ends = {"from": self.since, "to": self.until}
        return urlencode({name: at.isoformat() for name, at in ends.items() if at is not None})


def asked_period(
    since: Annotated[str, Query(alias="from", max_length=40)] = "",
    until: Annotated[str, Query(alias="to", max_length=40)] = "",
    zone: Annotated[str, Query(max_length=64)] = "",
) -> Period:
    """That of an address; `zone` is the browser's, in which its form has the moments."""
    try:
        asked = _moment(since, zone), _moment(until, zone)
    except (ValueError, OverflowError) as error:
        return Period(problem=str(error))
    if None not in asked and asked[0] >= asked[1]:  # type: ignore[operator]
        return Period(problem="The period ends before it begins")
    return Period(*asked)


def _moment(text: str, zone: str) -> datetime | None:
    """Raises ValueError for what is no moment, with words for a person."""
    if not text.strip():
        return None
    try:
        found = moment_of(text, now=datetime.now(UTC), zone=_zone(zone))
        if not FIRST_SECOND <= found.timestamp() <= LAST_SECOND:
            raise ValueError
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is no time. {FORMS}") from None
    return found


def _zone(name: str) -> ZoneInfo | None:
    """None where the address names none, or none that this machine knows: then the server's."""
    try:
        return ZoneInfo(name) if name else None
    except (KeyError, ValueError, OSError):
        return None
