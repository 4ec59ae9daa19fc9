"""The leader's own part of each group that is committed: how far the mailboxes have come."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from dispatcher.commit.committer import Change
from dispatcher.commit.progress import Progress
from dispatcher.commit.tracker import ProgressSnapshot
from dispatcher.metrics import DispatcherMetrics
from dispatcher.pool.hold_policy import HoldPolicy
from dispatcher.pool.mailboxes import Mailboxes
from dispatcher.pool.moves import Moves

log = logging.getLogger(__name__)

# Progress waits so long for a group that is committed anyway, unless a key waits for it. After a
# crash, documents finished since the last group are read again and found in `applied`.
PACE_SECONDS = 0.1
# A quiet feed's token advances; it is saved this often so that it never gets old.
QUIET_SECONDS = 10.0


class Saver:
    """Saves the progress of the mailboxes with each group. Belongs to the thread that commits."""

    def __init__(
        self,
        mailboxes: Mailboxes,
        progress: Progress,
        figures: DispatcherMetrics | None = None,
        policy: HoldPolicy | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self._progress = progress
        self._figures = figures or DispatcherMetrics(leads=lambda: True)
        self._looked_at = 0.0
        self._saved_at = 0.0
        self._plan: ProgressSnapshot | None = None
        self._lock, self._waking = mailboxes.lock, mailboxes.waking
        # All below under _lock.
        self._mailboxes = mailboxes
        self._moves = Moves(mailboxes)
        self._policy = policy or HoldPolicy(mailboxes)

    def changes(self, *, alone: bool) -> Sequence[Change]:
        self._look()
        self._saved_at = time.monotonic()
        with self._lock:
            # Whatever is finished from now on wakes the committing thread again.
            self._waking.saver_woken = 0
            self._moves.choose(datetime.now(UTC))
            plan = self._moves.begin_save()
        # A record may be in the group: all earlier events of its conversation are finished with it.
        # guard: finished-with-the-record -> self._plan = plan if alone else None
        self._plan = plan
        return [] if alone and self._plan is None else self._progress.changes(self._plan)

    def written(self) -> None:
        self._figures.observe("save_seconds", time.monotonic() - self._saved_at)
        if self._plan is None:
            return
        with self._waking:
            self._moves.saved(self._plan)
        if rows := self._plan.rows:
            keys = {row["key"] for row in rows}
            log.info("documents held documents=%d keys=%d", len(rows), len(keys))
        self._figures.add("saved_progress")

    def not_written(self) -> None:
        """The next group has to cover this one's progress as well."""
        if self._plan is not None:
            with self._waking:
                self._mailboxes.tracker.not_saved()
                self._policy.excuse(self._now())

    def refused(self) -> None:
        self._progress.refused()

    def seconds(self) -> float:
        self._look()
        left = self._saved_at - time.monotonic()
        if self._moves.are_wanted or self._waking.saver_woken > 1:
            return left
        if self._waking.saver_woken:
            return left + PACE_SECONDS
        return min(left + QUIET_SECONDS, self._policy.look_seconds)

    def _look(self) -> None:
        """Find documents to move to `held`; slower with more keys, so not every time."""
        now = time.monotonic()
        if now - self._looked_at >= self._policy.look_seconds:
            self._looked_at = now
            self.plan_moves()

    def plan_moves(self) -> None:
        """Find the documents that have waited so long that they have to leave the window."""
        with self._lock:
            self._moves.want(self._policy.due(self._now()))
