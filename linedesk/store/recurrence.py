"""When a repeating timer fires: a time of day, days, a cron line, or a rule of RFC 5545. Pure.

A rule gives times without a zone, and dateutil those of RFC 5545. A zone of the IANA database then
makes moments of them, with daylight saving time.
"""

from __future__ import annotations

import errno
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice, product
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dateutil.rrule import rrule, rrulestr

DAY = timedelta(days=1)
# Without a time in so many years a rule never fires: 29 February is a Sunday every 40 years at
# most.
HORIZON = timedelta(days=50 * 366)
MOST_CHARACTERS = 500
MOST_COUNT = 10_000
FIRST_YEAR = 1970
VALID = (
    'valid are a time of day such as "07:30", days and a time ("月・木 12:00", "平日 7:30", '
    '"毎月1日・末日 9:00"), a cron line ("0 12 * * mon") or a rule of RFC 5545 '
    '("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO;BYHOUR=12;BYMINUTE=0"), each also with "until 2027-03-31" '
    'and "quiet 22:00-7:00" behind it'
)


@dataclass(frozen=True)
class Recurrence:
    """The times at which a timer fires, by the clocks of `zone`."""

    at: str
    """The text of the rule, in the form that is stored."""
    zone: ZoneInfo
    rule: _Days | _Rule = field(repr=False, compare=False)
    last: date | None = None
    quiet: tuple[time, time] | None = None

    @classmethod
    def parse(cls, at: str, tz: str, *, now: datetime | None = None) -> Recurrence:
        """Parse the text of a rule and a zone such as "Asia/Tokyo". Raises ValueError, TypeError.

        A rule of RFC 5545 without DTSTART starts at the next full minute after `now`.

        Raises OSError if a zone cannot be read at the moment, for example with too many open files.
        """
        if not isinstance(at, str):
            raise TypeError(f"not a time, but of type {type(at).__name__}; {VALID}")
        if len(at) > MOST_CHARACTERS:
            raise ValueError(f"not a time, but more than {MOST_CHARACTERS} characters")
        zone = _zone(tz)
        text = unicodedata.normalize("NFKC", at).strip()
        if now is not None and re.match(r"(RRULE:)?[A-Z]+=", text.upper()):
            local = now.astimezone(zone).replace(second=0, microsecond=0)
            # Of a time that comes twice only the first would count.
            start = local + timedelta(hours=local.fold, minutes=1)
            text = f"DTSTART:{start:{_STAMP}} {text}"
        return _parsed(text, zone)

    @classmethod
    def from_document(cls, every: Mapping[str, object]) -> Recurrence:
        """Read the form of `as_document`; raises as `parse`."""
        return cls.parse(str(every.get("at")), str(every.get("tz")))

    def as_document(self) -> dict[str, str]:
        """The field `every` of a row in `schedule`."""
        return {"at": self.at, "tz": self.zone.key}

    @property
    def has_end(self) -> bool:
        """Whether it may have no time left."""
        return any(word in self.at for word in ("until ", "UNTIL=", "COUNT="))

    def after(self, moment: datetime) -> datetime | None:
        """The next time after `moment`, in UTC; None if there is none.

        A time that clocks skip in spring fires as long after midnight as on other days. A time that
        occurs twice in autumn fires the first time. A time in the quiet hours moves to their end.
        """
        found = shown = None
        floor = self._shown(moment)
        # Clocks may have skipped a time that is due soon.
        floor = min(floor, self._shown(moment - DAY) + DAY)
        for clock in self.rule.after(floor):
            if self.last is not None and clock.date() > self.last:
                break
            if shown is not None and clock >= shown:
                break
            due = clock.replace(tzinfo=self.zone).astimezone(UTC)
            if due > moment and (found is None or due < found):
                # A skipped time shows a later one, and regular times may lie between.
                found, shown = due, self._shown(due)
        return found and (self.quiet_until(found) or found)

    def quiet_until(self, moment: datetime) -> datetime | None:
        """The end of the quiet hours in which the moment is, in UTC; None if it is in none."""
        if self.quiet is None:
            return None
        first, end = self.quiet
        clock, day = self._shown(moment).time(), self._shown(moment).date()
        if not (first <= clock < end if first < end else clock >= first or clock < end):
            return None
        ends = datetime.combine(day if clock < end else day + DAY, end, self.zone)
        # Where the end occurs twice, the second time; where it is skipped, as for a rule.
        return max(one.astimezone(UTC) for one in (ends, ends.replace(fold=1)))

    def _shown(self, moment: datetime) -> datetime:
        """What the clocks of the zone show, without a zone."""
        return moment.astimezone(self.zone).replace(tzinfo=None)


@dataclass(frozen=True)
class _Days:
    """Times on some days; an empty set means each."""

    times: Sequence[time]
    weekdays: Collection[int] = ()
    """Monday is 0."""
    days: Collection[int] = ()
    """The days of the month; -1 is the last."""
    months: Collection[int] = ()
    is_either: bool = False
    """Whether one of weekday and day of the month is enough."""

    def after(self, floor: datetime) -> Iterator[datetime]:
        """Its times after `floor`, all without a zone, in order."""
        days = (floor.date() + DAY * n for n in range(HORIZON.days))
        times = (datetime.combine(day, at) for day in filter(self._has, days) for at in self.times)
        return (one for one in times if one > floor)

    def _has(self, day: date) -> bool:
        if self.months and day.month not in self.months:
            return False
        by_weekday = not self.weekdays or day.weekday() in self.weekdays
        is_last = -1 in self.days and (day + DAY).day == 1
        by_day = not self.days or day.day in self.days or is_last
        return (by_weekday or by_day) if self.is_either else (by_weekday and by_day)


@dataclass(frozen=True)
class _Rule:
    """A rule of dateutil, with the end that it has itself."""

    rule: rrule
    start: datetime
    step: timedelta | None
    """A start that is later by as much gives the same times from there on."""
    count: int | None
    until: datetime | None

    def after(self, floor: datetime) -> Iterator[datetime]:
        """Its times after `floor`, all without a zone, in order; none that dateutil cannot name."""
        with suppress(LookupError, OverflowError):
            start, last = self.start, max(floor, self.start) + HORIZON
            # dateutil walks through all times since the start.
            if self.step is not None and self.count is None and floor > start:
                start += (floor - start) // self.step * self.step
            until = last if self.until is None else min(last, self.until)
            times = islice(self.rule.replace(dtstart=start, until=until), self.count)
            yield from (one for one in times if one > floor)


# The forms of a rule.

# Errors for a folder of the database, such as "Asia", and for an impossible file name.
_NO_ZONES = frozenset({errno.EISDIR, errno.ENAMETOOLONG})
_TIME_OF_DAY = r"([01]?[0-9]|2[0-3]):([0-5][0-9])"


def _zone(tz: str) -> ZoneInfo:
    try:
        return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_ZONES:
            raise
        raise ValueError(f"not a time zone such as Asia/Tokyo: {tz!r}") from error


# A rule, its last day, and its quiet hours.
_ENDS = re.compile(
    rf"(.*?)(?:\s+until ([0-9-]+))?(?:\s+quiet {_TIME_OF_DAY}-{_TIME_OF_DAY})?",
    re.ASCII | re.DOTALL,
)


@lru_cache(maxsize=4096)
def _parsed(text: str, zone: ZoneInfo) -> Recurrence:
    """Raises ValueError."""
    match = _ENDS.fullmatch(text)
    assert match is not None, "it matches every text"
    try:
        found = _of_days(match[1]) or _of_cron(match[1]) or _of_rfc(match[1], zone)
        last = None if match[2] is None else date.fromisoformat(match[2])
        quiet = None if match[3] is None else _hours(*match.groups()[2:])
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"not a time: {text!r:.100}: {error}") from error
    if found is None:
        raise ValueError(f"not a time: {text!r:.100}; {VALID}")
    at, rule = found
    if last is not None:
        at += f" until {last}"
    if quiet is not None:
        at += f" quiet {quiet[0]:%H:%M}-{quiet[1]:%H:%M}"
    return Recurrence(at, zone, rule, last, quiet)


def _hours(*parts: str) -> tuple[time, time]:
    hour, minute, end_hour, end_minute = map(int, parts)
    quiet = time(hour, minute), time(end_hour, end_minute)
    if quiet[0] == quiet[1]:
        raise ValueError("quiet hours that never end")
    return quiet


WEEKDAYS = "月火水木金土日"
_WEEKDAY = rf"[{WEEKDAYS}](?:曜日?)?"
_ON_WEEKDAYS = re.compile(rf"(?:毎週)?(?:{_WEEKDAY}[・、,と]?)+")
_ON_DAYS = re.compile(r"毎月(?:(?:[0-9]{1,2}日|末日?)[・、,と]?)+")


def _of_days(text: str) -> tuple[str, _Days] | None:
    """A time of day, alone or behind days."""
    match = re.fullmatch(rf"(.*?)\s*{_TIME_OF_DAY}", text, re.ASCII)
    if match is None:
        return None
    days, times = match[1], [time(int(match[2]), int(match[3]))]
    if days in ("", "毎日"):
        return f"{times[0]:%H:%M}", _Days(times)
    if days == "平日":
        return text, _Days(times, weekdays=range(5))
    if _ON_WEEKDAYS.fullmatch(days):
        found = re.findall(_WEEKDAY, days.removeprefix("毎週"))
        return text, _Days(times, weekdays={WEEKDAYS.index(one[0]) for one in found})
    if _ON_DAYS.fullmatch(days):
        numbers = {int(one or -1) for one in re.findall(r"([0-9]+)日|末日?", days)}
        if not numbers <= {-1, *range(1, 32)}:
            raise ValueError("a month has the days 1 to 31")
        return text, _Days(times, days=numbers)
    return None


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CRON_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


def _of_cron(text: str) -> tuple[str, _Days] | None:
    """The five fields of crontab(5): minute, hour, day of the month, month, day of the week.

    Where both kinds of days are given, either is enough, as for cron.
    """
    fields = text.lower().split()
    if len(fields) != 5 or fields[0][0] not in "*0123456789":
        return None
    minutes = _numbers("minute", fields[0], 0, 59)
    hours = _numbers("hour", fields[1], 0, 23)
    return text, _Days(
        [time(hour, minute) for hour, minute in product(hours, minutes)],
        weekdays={(n - 1) % 7 for n in _numbers("day of the week", fields[4], 0, 7, _CRON_DAYS)},
        days=_numbers("day of the month", fields[2], 1, 31),
        months=_numbers("month", fields[3], 1, 12, _MONTHS),
        is_either="*" not in (fields[2][0], fields[4][0]),
    )


def _numbers(
    what: str, text: str, first: int, last: int, names: Sequence[str] = ()
) -> Sequence[int]:
    """The numbers of a field, in order. Raises ValueError."""
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        begin, dash, end = span.partition("-")
        try:
            low = first if begin == "*" else _number(begin, names, first)
            high = _number(end, names, first) if dash else last if slash or begin == "*" else low
            if high < low <= last and names is _CRON_DAYS:
                # Such as sat-mon.
                high += last
            elif not first <= low <= high <= last:
                raise ValueError(part)
            found |= set(range(low, high + 1, _number(step, (), 1) if slash else 1))
        except ValueError as error:
            raise ValueError(f"{what}: {part!r:.20} is not in {first} to {last}") from error
    return sorted(found)


def _number(text: str, names: Sequence[str], first: int) -> int:
    return names.index(text) + first if text in names else int(text)


_RFC = re.compile(r"DTSTART:([0-9]{8}T[0-9]{6})\s+(?:RRULE:)?([A-Z]+=[-+A-Z0-9=;,]+)")
RARE = {"BYMONTHDAY", "BYYEARDAY", "BYWEEKNO", "BYEASTER", "BYSETPOS"}
_STAMP = "%Y%m%dT%H%M%S"


def _of_rfc(text: str, zone: ZoneInfo) -> tuple[str, _Rule] | None:
    """DTSTART, by the clocks of the zone, and one RRULE."""
    text = text.upper()
    if not text.startswith("DTSTART"):
        return None
    match = _RFC.fullmatch(text)
    if match is None:
        raise ValueError("a rule has DTSTART:20270104T090000, in local time, and one RRULE")
    start = datetime.strptime(match[1], _STAMP)
    parts = dict(one.split("=") for one in match[2].strip(";").split(";"))
    count, until = parts.pop("COUNT", None), parts.pop("UNTIL", None)
    freq, interval = parts.get("FREQ", ""), int(parts.get("INTERVAL", 1))
    if freq not in ("DAILY", "WEEKLY", "MONTHLY", "YEARLY"):
        raise ValueError("FREQ is DAILY, WEEKLY, MONTHLY or YEARLY; a cron line fires more often")
    if start.year < FIRST_YEAR or interval < 1 or not 1 <= int(count or 1) <= MOST_COUNT:
        told = f"INTERVAL is 1 or more, COUNT is 1 to {MOST_COUNT}, and DTSTART after"
        raise ValueError(f"{told} {FIRST_YEAR}")
    if "," in parts.get("BYSECOND", ""):
        raise ValueError("BYSECOND is one number")
    days = {"DAILY": 1, "WEEKLY": 7}.get(freq)
    if days and (too_rare := sorted(RARE & parts.keys())):
        # dateutil looks at each day until the year 9999 for one that never comes.
        raise ValueError(f"{too_rare[0]} needs FREQ=MONTHLY or FREQ=YEARLY")
    rule = _Rule(
        rrulestr(";".join(f"{name}={value}" for name, value in parts.items()), dtstart=start),
        start,
        step=None if days is None else DAY * days * interval,
        count=None if count is None else int(count),
        until=None if until is None else _rfc_end(until, zone),
    )
    return f"DTSTART:{match[1]} RRULE:{match[2]}", rule


def _rfc_end(until: str, zone: ZoneInfo) -> datetime:
    """UNTIL by the clocks of the zone. A day without a time is the whole day."""
    if "T" not in until:
        return datetime.strptime(until, "%Y%m%d") + DAY - timedelta(seconds=1)
    end = datetime.strptime(until.removesuffix("Z"), _STAMP)
    if not until.endswith("Z"):
        return end
    return end.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)
