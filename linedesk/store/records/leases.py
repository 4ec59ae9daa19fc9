"""`leases`: the row `dispatcher`, which one process holds, and the counter of epochs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

OWNER: Final = "owner"
EPOCH: Final = "epoch"
UNTIL: Final = "until"
IMPORTING: Final = "importing"


@dataclass(frozen=True)
class LeaseRecord:
    """The row as read."""

    owner: str | None
    """Machine, pid and start of the current or last holder (`dispatcher.lease`)."""
    epoch: int
    until: datetime | None
    """None: never held."""
    is_importing: bool = False
    """An import has begun to write and is incomplete: the database is half written."""

    @classmethod
    def from_document(cls, row: Mapping[str, Any]) -> LeaseRecord:
        """Read a row written by `linedesk init` or a holder."""
        return cls(row[OWNER], row.get(EPOCH, 0), row.get(UNTIL), bool(row.get(IMPORTING)))

    @property
    def holding(self) -> dict[str, Any]:
        """A filter for the row while the same process holds it."""
        return {OWNER: self.owner, EPOCH: self.epoch}


NEVER_HELD: Final[Mapping[str, Any]] = {OWNER: None, EPOCH: 0, UNTIL: None}
"""The initial row."""
