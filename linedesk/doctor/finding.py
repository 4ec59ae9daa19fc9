"""The result of a check: its level, the finding, and what the operator should do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from linedesk.operate.format import for_long
from linedesk.operate.health import DAY_SECONDS, HOUR_SECONDS, HealthProblem
from linedesk.runtime.language import gettext as _

KILOBYTE = 1024.0


class FindingLevel(StrEnum):
    """The level of a finding; `skip`: the check did not run, or there is nothing to check."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"
    SKIP = "skip"


@dataclass(frozen=True)
class Finding:
    """One line for the operator. `do` is empty if there is nothing to do."""

    state: FindingLevel
    saw: str
    do: str = ""


def ok(saw: str) -> Finding:
    """A finding: as it should be."""
    return Finding(FindingLevel.OK, saw)


def warn(saw: str, do: str) -> Finding:
    """A finding: it works now, but needs attention."""
    return Finding(FindingLevel.WARN, saw, do)


def bad(saw: str, do: str) -> Finding:
    """A finding: it does not work, or data is about to be lost."""
    return Finding(FindingLevel.BAD, saw, do)


def skip(saw: str, do: str = "") -> Finding:
    """A finding: not checked, with the reason."""
    return Finding(FindingLevel.SKIP, saw, do)


def of(problem: HealthProblem | None, *, saw: str = "", well: str = "") -> Finding:
    """A problem as a finding, with the text `saw` if given; without a problem ok(well)."""
    if problem is None:
        return ok(well or saw)
    return Finding(FindingLevel(problem.level), saw or problem.saw, problem.do)


def size(number: float) -> str:
    """A number of bytes with its unit, such as 1.5 GB."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(number) < KILOBYTE:
            return f"{number:.0f} B" if unit == "B" else f"{number:.3g} {unit}"
        number /= KILOBYTE
    return f"{number:.3g} TB"


def lasting(seconds: float) -> str:
    """A duration; above three months only that it is longer."""
    if math.isinf(seconds) or seconds > 90 * DAY_SECONDS:
        return _("over 90 days")
    return for_long(seconds)


def hourly(bytes_per_second: float) -> str:
    """A rate with its unit, such as 12 MB/h."""
    return _("{size}/h").format(size=size(bytes_per_second * HOUR_SECONDS))
