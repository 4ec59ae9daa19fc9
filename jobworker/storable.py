"""Whether MongoDB can hold what a handler decided; found out before it is recorded. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import bson
from bson.errors import BSONError

from jobworker.conversations import Decision
from jobworker.errors import StateTooLarge

# MongoDB's documents hold 16 MB; state, data and outbox together must stay well below.
MOST_RECORD_BYTES = 2 * 1024 * 1024
# MongoDB refuses documents nested deeper than 180 levels, those around the data included.
MOST_LEVELS = 100


def checked(decision: Decision) -> Decision:
    """The decision itself. Raises StateTooLarge for what MongoDB could not hold."""
    if decision.is_empty:
        return decision
    if _nests_deeper([decision.changes, decision.effects], MOST_LEVELS):
        raise StateTooLarge(f"state or messages nested deeper than {MOST_LEVELS} levels")
    try:
        size = len(bson.encode({"changes": decision.changes, "effects": decision.effects}))
    except (BSONError, OverflowError, TypeError, ValueError) as error:
        raise StateTooLarge(f"state or messages that MongoDB cannot hold: {error}") from error
    if size > MOST_RECORD_BYTES:
        raise StateTooLarge(f"{size} bytes of state and messages, at most {MOST_RECORD_BYTES}")
    return decision


def _nests_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, (Mapping, list, tuple)):
        return False
    parts = value.values() if isinstance(value, Mapping) else value
    return levels == 0 or any(_nests_deeper(part, levels - 1) for part in parts)
