"""Replays and their results: the replays of one act on many letters, or of the last hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pymongo
from pymongo.database import Database

from linedesk.console.dead_letters import last_replay
from linedesk.console.lists.events import EventLine, counted, events_named
from linedesk.console.verdict import Result
from linedesk.store.documents import DEADLETTERS
from linedesk.store.errors import translated
from linedesk.store.records.letters import REPLAYED_AT

# The replays of one act; some 4 MB with their runs, calls and letters.
MOST_REPLAYS = 2_000
LATELY = timedelta(hours=1)
READ_SECONDS = 10.0
SETTLED: frozenset[Result] = frozenset({"answered", "no reply"})


@dataclass(frozen=True)
class Replays:
    """Replays and their results so far."""

    total: int
    lines: list[EventLine]
    """The replays that recvq still has, the newest first."""

    @property
    def counts(self) -> dict[Result, int]:
        """The number of replays with each result."""
        found = counted(self.lines)
        lost = self.total - len(self.lines)
        return {**found, "unknown": found.get("unknown", 0) + lost} if lost else found

    @property
    def has_failed(self) -> bool:
        """Whether a replay is a dead letter again."""
        return "failed" in self.counts

    @property
    def is_well(self) -> bool:
        """Whether each was handled, and LINE took its answers."""
        return self.total > 0 and SETTLED.issuperset(self.counts)


def replays_named(database: Database[Any], names: Sequence[str]) -> Replays:
    """Return the results of the replays of these names. Raises StoreUnavailable."""
    return Replays(len(names), events_named(database, names[-MOST_REPLAYS:]))


def replays_lately(database: Database[Any]) -> Replays:
    """Return the result of the last replay of each letter that was replayed in the last hour.

    Raises StoreUnavailable.
    """
    since = {REPLAYED_AT: {"$gte": datetime.now(UTC) - LATELY}}
    with translated(), pymongo.timeout(READ_SECONDS):
        rows = database[DEADLETTERS].find(since, {"replays": 1})
        rows = rows.sort(REPLAYED_AT, -1).limit(MOST_REPLAYS)
        names = [name for row in rows if (name := last_replay(row)) is not None]
    return replays_named(database, names)
