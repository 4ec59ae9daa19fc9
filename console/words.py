"""Durations, moments and scopes as a person reads them. Pure."""

from __future__ import annotations

from datetime import datetime

UNITS = ((24 * 3600, "d"), (3600, "h"), (60, "min"), (1, "s"))
MS_BELOW_SECONDS = 1.0
TENTHS_BELOW_SECONDS = 10.0


def for_long(seconds: float) -> str:
    """A duration in its two largest units, such as `2 h 5 min`."""
    left, parts = int(seconds), []
    for size, unit in UNITS:
        if left >= size:
            parts.append(f"{left // size} {unit}")
        elif parts:
            break
        left %= size
        if len(parts) == 2:
            break
    return " ".join(parts) or "0 s"


def brief(seconds: float | None) -> str:
    """A duration however short: `3.1 ms`, `420 ms`, `4.2 s`, `2 h 5 min`; - for None."""
    if seconds is None:
        return "-"
    if seconds == 0:
        return "0 s"
    if seconds < TENTHS_BELOW_SECONDS / 1000:
        return f"{seconds * 1000:.1f} ms"
    if seconds < MS_BELOW_SECONDS:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < TENTHS_BELOW_SECONDS else for_long(seconds)


def local(moment: datetime | None) -> str:
    """A moment in this machine's time, with its zone."""
    if moment is None:
        return "-"
    return moment.astimezone().isoformat(sep=" ", timespec="seconds")


def clock(moment: datetime | None) -> str:
    """The time of day in this machine's time, to the millisecond."""
    if moment is None:
        return "-"
    return moment.astimezone().strftime("%H:%M:%S.%f")[:-3]


def scope_words(channel: object, key: object) -> str:
    """What a pause is about."""
    if not channel:
        return "everything"
    return f"{channel}/{key}" if key else f"channel {channel}"
