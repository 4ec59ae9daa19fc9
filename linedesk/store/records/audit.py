"""`audit`: one row for each action of an operator, written before it, completed after it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

BEGUN, DONE = "begun", "done"
ENDED_AT: Final = "endedAt"


def begun_row(
    *, at: datetime, by: str, via: str, act: str, on: str | list[str], why: str
) -> dict[str, Any]:
    """The row of an action before it is done, `via` the page, a command or the dispatcher."""
    return {"at": at, "by": by, "via": via, "act": act, "on": on, "why": why, "outcome": BEGUN}


def ended(outcome: str | dict[str, Any], at: datetime) -> dict[str, Any]:
    """The fields that complete it. A refused act has `{code, reason}` as its outcome."""
    return {"outcome": outcome, ENDED_AT: at}
