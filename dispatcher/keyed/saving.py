"""The pool's side of a save: what it tells, what moves to `held` with it, and who waits for it."""

from __future__ import annotations

import threading
import time

from dispatcher.keyed.holding import Holding, ids_of
from dispatcher.keyed.line import Line
from dispatcher.keyed.lines import Lines
from dispatcher.keyed.rereading import Load
from dispatcher.progress.tracker import ProgressSnapshot, ProgressTracker


class Saving:
    """What the saver's thread asks of a pool. `room` is a condition of the pool's lock."""

    def __init__(
        self,
        ledger: ProgressTracker,
        lines: Lines,
        holding: Holding,
        *,
        room: threading.Condition,
        load: Load,
    ) -> None:
        self.changed = threading.Event()
        """Set when there may be progress to save."""
        self.urgent = lines.urgent
        """Set when a key waits for that save."""
        self.look_seconds = holding.look_seconds
        """How often `look` is worth its while."""
        self._lock = room
        self._load = load
        # All below under _lock.
        self._ledger = ledger
        self._lines = lines
        self._holding = holding

    def look(self) -> None:
        """See whether anything has waited so long that it has to leave the window."""
        with self._lock:
            self._holding.look(time.monotonic())
            wanted = self._holding.is_wanted
        if wanted:
            self.changed.set()

    def hold(self) -> None:
        """Make ready what the next snapshot moves to `held`.

        Raises StoreUnavailable: what was chosen is then made ready the next time.
        """
        with self._lock:
            if self._holding.settles:
                return
            chosen = list(self._holding.choose())
        read = self._load(short) if (short := ids_of(chosen)) else {}
        with self._lock:
            self._holding.take(read)
            self._lock.notify_all()

    def snapshot(self) -> tuple[ProgressSnapshot, list[Line]] | None:
        """What to save, and the lines whose decisions it covers; None if nothing changed."""
        with self._lock:
            gone = self._lines.gone
            if not (self._ledger.changed or self._holding.settles or gone):
                return None
            return self._ledger.snapshot(self._holding.rows, gone), self._lines.take_touched()

    def saved(self, snapshot: ProgressSnapshot, covered: list[Line]) -> None:
        """The snapshot is durable: the keys that waited for it may decide on."""
        with self._lock:
            self._ledger.saved(snapshot)
            del self._lines.gone[: len(snapshot.gone)]
            self._holding.settled()
            self._lines.forget(covered)
            self.urgent.clear()
            self._lines.unblock()
            if self._holding.is_wanted:
                self.changed.set()
                self.urgent.set()

    def not_saved(self, covered: list[Line]) -> None:
        """The save failed or its outcome is unknown: the next one has to cover all of it."""
        with self._lock:
            self._ledger.not_saved()
            self._holding.excuse(time.monotonic())
            self._lines.touch_again(covered)
        # Without it a key that waits for the save would wait until something else finishes.
        self.changed.set()
