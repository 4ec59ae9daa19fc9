"""The life cycle of a background thread: how each is started, stopped, joined and watched."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from linedesk.runtime.liveness import LIMIT_SECONDS, ThreadActivity

JOIN_SECONDS = 10.0


class Component(Protocol):
    """A part of a process with threads of its own: what the process starts, watches and stops.

    A thread of it that dies ends the process.
    """

    def start(self) -> None:
        """Begin; after a `stop` it ends at once."""
        ...

    def stop(self) -> None:
        """Begin nothing new; may be called at any time, and again."""
        ...

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the end; returns whether it has ended or was never started."""
        ...

    def stalled(self) -> str | None:
        """Which of its threads hangs, in words; None while all make progress."""
        ...

    def status(self) -> str:
        """How it goes, in words for a person; quick, from any thread. Empty: nothing to report."""
        ...


class BackgroundThread:
    """A Component with one daemon thread of this name, which calls `run` once.

    `run` looks at `_stop` and returns soon after that was set, also where it was set before the
    start. It says on `activity` when it takes up something. What it raises goes to
    `threading.excepthook`, which ends the process. All methods may be called from any thread, in
    any order, any number of times.
    """

    def __init__(
        self, name: str, run: Callable[[], None], *, limit_seconds: float = LIMIT_SECONDS
    ) -> None:
        self.activity = ThreadActivity(name, limit_seconds=limit_seconds)
        self._stop = threading.Event()
        self._starting = threading.Lock()
        self._is_started = False  # under _starting
        self._thread = threading.Thread(target=run, name=name, daemon=True)

    @property
    def stop_asked(self) -> threading.Event:
        """Set when it is to end, for an owner that is no subclass."""
        return self._stop

    def start(self) -> None:
        """Start the thread, unless that was done; after a `stop` it ends at once."""
        with self._starting:
            if not self._is_started:
                self._thread.start()
                self._is_started = True

    def stop(self) -> None:
        """Ask the thread to end."""
        self._stop.set()

    def join(self, timeout_seconds: float = JOIN_SECONDS) -> bool:
        """Wait for the thread to end; returns whether it has ended or was never started."""
        with self._starting:
            # Python refuses to join a thread that is only just being started.
            is_started = self._is_started
        if is_started:
            self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def dead(self) -> bool:
        """Whether the thread has ended although it was not stopped."""
        return self._is_started and not self._thread.is_alive() and not self._stop.is_set()

    def stalled(self) -> str | None:
        """That the thread is at one thing for longer than it may be, in words; else None."""
        return self.activity.stalled()

    def status(self) -> str:
        """Empty, unless the owner has something to report."""
        return ""
