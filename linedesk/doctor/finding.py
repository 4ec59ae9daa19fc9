"""The result of a check: its level, the finding, and what the operator should do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from linedesk.operate.health import HealthProblem

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


ok = partial(Finding, FindingLevel.OK)
"""A finding: as it should be."""
warn = partial(Finding, FindingLevel.WARN)
"""A finding: it works now, but needs attention."""
bad = partial(Finding, FindingLevel.BAD)
"""A finding: it does not work, or data is about to be lost."""
skip = partial(Finding, FindingLevel.SKIP)
"""A finding: not checked, with the reason."""


def of(problem: HealthProblem, *, saw: str = "") -> Finding:
    """A problem as a finding, with the text `saw` if given."""
    return Finding(FindingLevel(problem.level), saw or problem.saw, problem.do)


def size(number: float) -> str:
    """A number of bytes with its unit, such as 1.5 GB."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(number) < KILOBYTE:
            return f"{number:.0f} B" if unit == "B" else f"{number:.3g} {unit}"
        number /= KILOBYTE
    return f"{number:.3g} TB"
