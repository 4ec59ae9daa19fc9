"""The leader's own part of each group that is committed: how far the pool has come."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dispatcher.commit.committer import Change
from dispatcher.commit.progress import Progress
from dispatcher.commit.tracker import ProgressSnapshot
from dispatcher.metrics import DispatcherMetrics
from dispatcher.pool.pool import Pool

# Progress waits so long for a group that is committed anyway, unless a key waits for it. After a
# crash, documents finished since the last group are read again and found in `applied`.
PACE_SECONDS = 0.1
# A quiet feed's token advances; it is saved this often so that it never gets old.
QUIET_SECONDS = 10.0


class Saver:
    """Saves the pool's progress with each group. Belongs to the thread that commits."""

    def __init__(
        self, pool: Pool, progress: Progress, figures: DispatcherMetrics | None = None
    ) -> None:
        self._pool = pool
        self._progress = progress
        self._figures = figures or DispatcherMetrics(leads=lambda: True)
        self._looked_at = 0.0
        self._saved_at = 0.0
        self._plan: ProgressSnapshot | None = None

    def changes(self, *, alone: bool) -> Sequence[Change]:
        self._look()
        self._pool.changed.clear()
        self._saved_at = time.monotonic()
        # A record may be in the group: all earlier events of its conversation are finished with it.
        # guard: finished-with-the-record -> self._plan = self._pool.begin_save() if alone else None
        self._plan = self._pool.begin_save()
        return [] if alone and self._plan is None else self._progress.changes(self._plan)

    def written(self) -> None:
        self._figures.observe("save_seconds", time.monotonic() - self._saved_at)
        if self._plan is not None:
            self._pool.saved(self._plan)
            self._figures.add("saved_progress")

    def not_written(self) -> None:
        if self._plan is not None:
            self._pool.not_saved()

    def refused(self) -> None:
        self._progress.refused()

    def seconds(self) -> float:
        self._look()
        left = self._saved_at - time.monotonic()
        if not self._pool.changed.is_set():
            return min(left + QUIET_SECONDS, self._pool.look_seconds)
        return left if self._pool.urgent.is_set() else left + PACE_SECONDS

    def _look(self) -> None:
        """Find documents to move to `held`; slower with more keys, so not every time."""
        now = time.monotonic()
        if now - self._looked_at >= self._pool.look_seconds:
            self._looked_at = now
            self._pool.plan_moves()
