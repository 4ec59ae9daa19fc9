"""LINE's answer to one call, and what its status and words say of every kind of call. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

# LINE tells the meanings of a 429 apart by these words only.
MONTHLY_LIMIT = "monthly limit"
SAME_USER = "same user"


@dataclass(frozen=True)
class LineAnswer:
    """LINE's answer to one call."""

    status: int
    text: str = ""
    request_id: str | None = None
    retry_after: float | None = None
    whole: bool = True
    """Whether all of its body came; else the words that decide may be missing."""
    began: float = math.inf
    """When its call began, monotonic; infinite where that is not known, as if just now."""


def is_no_verdict(status: int) -> bool:
    """Whether a status says nothing of what LINE did: its own failures, and what LINE's API never
    answers, so that it comes from something on the way (a redirect, a proxy's time-out).
    """
    return status >= 500 or status < 200 or 300 <= status < 400 or status == 408


def is_endpoint_limit(answer: LineAnswer) -> bool:
    """Whether the answer holds back its endpoint for everybody, not just one user or the month.

    LINE tells the meanings of a 429 apart by their words only; words unknown count as this one.
    """
    words = answer.text.lower()
    return answer.status == 429 and MONTHLY_LIMIT not in words and SAME_USER not in words
