"""When a timer that rings every day rings next: a time of day in a zone, summer time included.

Pure. Zones are those of the IANA database, as `zoneinfo` reads it.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

# A folder of the database, such as "Asia", and a name that no file can have.
_NO_ZONES = frozenset({errno.EISDIR, errno.ENAMETOOLONG})
_TIME_OF_DAY = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])", re.ASCII)


@dataclass(frozen=True)
class Daily:
    """Every day at `at` on the clocks of `zone`."""

    at: time
    zone: ZoneInfo

    @classmethod
    def parse(cls, at: str, tz: str) -> Daily:
        """Of a text such as "07:30" and a zone such as "Asia/Tokyo"; raises ValueError.

        Raises OSError where a zone cannot be read at the moment, such as with too many open files.
        """
        match = _TIME_OF_DAY.fullmatch(at)
        if match is None:
            raise ValueError(f"not a time of day such as 07:30: {at!r}")
        try:
            zone = ZoneInfo(tz)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in _NO_ZONES:
                raise
            raise ValueError(f"not a time zone such as Asia/Tokyo: {tz!r}") from error
        return cls(time(int(match[1]), int(match[2])), zone)

    @classmethod
    def from_document(cls, every: Mapping[str, Any]) -> Daily:
        """As `as_document` made it; raises ValueError for anything else, and OSError as `parse`."""
        return cls.parse(str(every.get("at")), str(every.get("tz")))

    def as_document(self) -> dict[str, str]:
        """As the field `every` of a row in `schedule` holds it."""
        return {"at": f"{self.at:%H:%M}", "tz": self.zone.key}

    def after(self, moment: datetime) -> datetime:
        """The next time later than the moment, in UTC; once a day, however the clocks are set.

        A time that clocks skip in spring rings as long after midnight as on any other day; one
        that comes twice in autumn rings the first time.
        """
        day = moment.astimezone(self.zone).date() - timedelta(days=1)
        while (rings := self._on(day)) <= moment:
            day += timedelta(days=1)
        return rings

    def _on(self, day: date) -> datetime:
        return datetime.combine(day, self.at, self.zone).astimezone(UTC)
