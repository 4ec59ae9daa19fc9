"""The result of a check: its level, what was seen, and what the operator should do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from linedesk.console.format import for_long
from linedesk.console.health import DAY_SECONDS, HOUR_SECONDS, HealthProblem

KILOBYTE = 1024.0


class FindingLevel(StrEnum):
    """How a part stands; `skip` means that it could not be looked at, or is not there."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"
    SKIP = "skip"


@dataclass(frozen=True)
class Finding:
    """One line for the operator. `do` is empty where there is nothing to do."""

    state: FindingLevel
    saw: str
    do: str = ""


def ok(saw: str) -> Finding:
    """As it should be."""
    return Finding(FindingLevel.OK, saw)


def warn(saw: str, do: str) -> Finding:
    """It works, and will not for ever."""
    return Finding(FindingLevel.WARN, saw, do)


def bad(saw: str, do: str) -> Finding:
    """It does not work, or something is about to be lost."""
    return Finding(FindingLevel.BAD, saw, do)


def skip(saw: str, do: str = "") -> Finding:
    """It was not looked at, and why."""
    return Finding(FindingLevel.SKIP, saw, do)


def of(problem: HealthProblem | None, *, saw: str = "", well: str = "") -> Finding:
    """A problem as a finding, in the words of `saw` where there are any; ok(well) without one."""
    if problem is None:
        return ok(well or saw)
    return Finding(FindingLevel(problem.level), saw or problem.saw, problem.do)


def size(number: float) -> str:
    """Bytes as people say them, such as 1.5 GB."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(number) < KILOBYTE:
            return f"{number:.0f} B" if unit == "B" else f"{number:.3g} {unit}"
        number /= KILOBYTE
    return f"{number:.3g} TB"


def lasting(seconds: float) -> str:
    """A duration, of which nobody needs more than that it is over three months."""
    if math.isinf(seconds) or seconds > 90 * DAY_SECONDS:
        return "over 90 d"
    return for_long(seconds)


def hourly(bytes_per_second: float) -> str:
    """A rate as people say it, such as 12 MB/h."""
    return f"{size(bytes_per_second * HOUR_SECONDS)}/h"
