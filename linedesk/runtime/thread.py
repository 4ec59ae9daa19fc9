"""The life cycle of a background thread: start, stop, join and supervision."""

from __future__ import annotations

import threading
from collections.abc import Callable

from linedesk.runtime.liveness import LIMIT_SECONDS, ThreadActivity

JOIN_SECONDS = 10.0


class BackgroundThread:
    """A part of a process with one daemon thread of this name, which calls `run` once.

    `run` checks `_stop` and returns soon after it was set, also if it was set before the start. It
    reports each step on `activity`. Its exceptions reach `threading.excepthook`, which ends the
    process. All methods are thread-safe and may be called in any order, any number of times.
    """

    def __init__(
        self, name: str, run: Callable[[], None], *, limit_seconds: float = LIMIT_SECONDS
    ) -> None:
        self.activity = ThreadActivity(name, limit_seconds=limit_seconds)
        self._stop = threading.Event()
        # For threads that sleep until there is something to do; also set by a stop.
        self._wake = threading.Event()
        self._starting = threading.Lock()
        self._is_started = False  # under _starting
        self._thread = threading.Thread(target=run, name=name, daemon=True)

    @property
    def stop_asked(self) -> threading.Event:
        """Set when it is to end, for owners that are not subclasses."""
        return self._stop

    def start(self) -> None:
        """Start the thread unless it was started; after a `stop` it ends at once."""
        with self._starting:
            if not self._is_started:
                self._thread.start()
                self._is_started = True

    def wake(self) -> None:
        """Look at once: there is something to do."""
        self._wake.set()

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()

    def join(self, timeout_seconds: float = JOIN_SECONDS) -> bool:
        """Wait for the thread to end; returns whether it has ended or was never started."""
        with self._starting:
            # Python refuses to join a thread whose start is not complete.
            is_started = self._is_started
        if is_started:
            self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    @property
    def dead(self) -> bool:
        """Whether the thread has ended although it was not stopped."""
        return self._is_started and not self._thread.is_alive() and not self._stop.is_set()

    def stalled(self) -> str | None:
        """A message if one step of the thread takes longer than its limit; else None."""
        return self.activity.stalled()

    def status(self) -> str:
        """The state for operators, quick and thread-safe; empty unless a subclass has one."""
        return ""
