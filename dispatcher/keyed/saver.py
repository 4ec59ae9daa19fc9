"""The thread that saves progress by group commit: one write covers all that finished meanwhile."""

from __future__ import annotations

import logging
import threading
import time

from dispatcher.keyed.line import Line
from dispatcher.keyed.pool import Pool
from dispatcher.metrics import DispatcherMetrics
from dispatcher.progress.document import Progress
from linedesk.runtime.backoff import pause_seconds
from linedesk.runtime.thread import BackgroundThread
from linedesk.store.errors import StoreUnavailable

log = logging.getLogger(__name__)

# Saves are at least this far apart unless a key waits for one; after a crash, what finished in
# that time is read again and found in `applied`.
PACE_SECONDS = 0.05
# A feed that is quiet moves its token on; it is saved this often so that it never grows old.
QUIET_SECONDS = 10.0


class Saver(BackgroundThread):
    """Saves the pool's progress until it is stopped, and once more then."""

    def __init__(
        self, pool: Pool, progress: Progress, figures: DispatcherMetrics | None = None
    ) -> None:
        super().__init__("progress", self._run)
        self._pool = pool
        self._progress = progress
        self._figures = figures or DispatcherMetrics(leads=lambda: True)
        self._saving = threading.Lock()

    def stop(self) -> None:
        """Save what is left and end; may be called twice, and before `start`."""
        super().stop()
        self._pool.saving.changed.set()
        self._pool.saving.urgent.set()

    def save(self) -> bool:
        """Save once, if there is anything to save; False if it is not known to be saved."""
        with self._saving:
            return self._save()

    def _save(self) -> bool:
        self._pool.saving.changed.clear()
        covered: list[Line] = []
        try:
            self._pool.saving.hold()
            taken = self._pool.saving.snapshot()
            if taken is None:
                return True
            snapshot, covered = taken
            with self._figures.save_seconds.time():
                self._progress.save(snapshot)
        except StoreUnavailable as error:
            self._pool.saving.not_saved(covered)
            log.warning("progress not saved, trying again error=%s", error)
            return False
        self._pool.saving.saved(snapshot, covered)
        self._figures.saved.inc()
        return True

    def _wait(self) -> None:
        """Until there is something to save, or the feed was quiet for long."""
        deadline = time.monotonic() + QUIET_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            if self._pool.saving.changed.wait(min(left, self._pool.saving.look_seconds)):
                break
            self._pool.saving.look()

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            self.activity.idle()
            self._wait()
            self.activity.busy()
            self._pool.saving.look()
            self._pool.saving.urgent.wait(PACE_SECONDS)
            failures = 0 if self.save() else failures + 1
            if failures:
                self._stop.wait(pause_seconds(failures))
        self.activity.busy()
        self.save()
