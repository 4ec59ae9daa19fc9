"""The thread that saves progress: one write covers all documents finished before it."""

from __future__ import annotations

import logging
import threading
import time

from dispatcher.keyed.pool import Pool
from dispatcher.metrics import DispatcherMetrics
from dispatcher.progress.document import Progress
from linedesk.runtime.backoff import pause_seconds
from linedesk.runtime.thread import BackgroundThread
from linedesk.store.errors import StoreUnavailable

log = logging.getLogger(__name__)

# Saves are at least this far apart unless a key waits for one. After a crash, documents finished
# since the last save are read again and found in `applied`.
PACE_SECONDS = 0.05
# A quiet feed's token advances; it is saved this often so that it never gets old.
QUIET_SECONDS = 10.0


class Saver(BackgroundThread):
    """Saves the pool's progress until it is stopped, and once more at the end."""

    def __init__(
        self,
        pool: Pool,
        progress: Progress,
        figures: DispatcherMetrics | None = None,
    ) -> None:
        super().__init__("progress", self._run)
        self._looked_at = 0.0
        self._pool = pool
        self._progress = progress
        self._figures = figures or DispatcherMetrics(leads=lambda: True)
        self._saving = threading.Lock()

    def stop(self) -> None:
        """Save the rest and end; may be called twice, and before `start`."""
        super().stop()
        self._pool.changed.set()
        self._pool.urgent.set()

    def save(self) -> bool:
        """Save once if anything changed; False if it is not known to be saved."""
        with self._saving:
            self._pool.changed.clear()
            plan = self._pool.begin_save()
            if plan is None:
                return True
            began = time.monotonic()
            try:
                self._progress.save(plan)
            except StoreUnavailable as error:
                self._pool.not_saved()
                log.warning("progress not saved, trying again error=%s", error)
                return False
            finally:
                self._figures.observe("save_seconds", time.monotonic() - began)
            self._pool.saved(plan)
            self._figures.add("saved_progress")
            return True

    def _wait(self) -> None:
        """Wait for data to save, the quiet time, or the stop; another save may clear `changed`."""
        deadline = time.monotonic() + QUIET_SECONDS
        while not self._stop.is_set() and (left := deadline - time.monotonic()) > 0:
            if self._pool.changed.wait(min(left, self._pool.look_seconds)):
                break
            self._look()

    def _look(self) -> None:
        """Find documents to move to `held`; slower with more keys, so not every time."""
        now = time.monotonic()
        if now - self._looked_at >= self._pool.look_seconds:
            self._looked_at = now
            self._pool.plan_moves()

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            self.activity.idle()
            self._wait()
            self.activity.busy()
            self._look()
            self._pool.urgent.wait(PACE_SECONDS)
            failures = 0 if self.save() else failures + 1
            if failures:
                self._stop.wait(pause_seconds(failures))
        self.activity.busy()
        self.save()
