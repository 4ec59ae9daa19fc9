"""Tells whoever keeps the process running how it goes, once a second, from a thread of its own.

What it tells is set by the main thread, which may be in a call of MongoDB meanwhile. The thread
itself asks nobody: what it says goes by signs of life that the others give.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from dispatcher.watch import STEP_SECONDS
from recvq.figures import Snapshot
from recvq.pulse import Pulse
from recvq.service import Service, word_seconds
from recvq.thread import BackgroundThread

# Each word of a start or a stop is good for so long: thirty of them may get lost.
MORE_SECONDS = 30.0

STARTING, WAITING, STANDBY, WORKING = "starting", "waiting", "standby", "working"
STALLED, STOPPING = "stalled", "stopping"

Words = Callable[[], str]


class Told(NamedTuple):
    """What was told last, with the figures that it was made of."""

    state: str = STARTING
    words: str = ""
    figures: Snapshot = Snapshot()


class Report(BackgroundThread):
    """One process's; its methods but `stop` are for the main thread.

    `look` takes the figures of the moment, and comes before each word.
    """

    def __init__(self, service: Service, *, look: Callable[[], Snapshot] = Snapshot) -> None:
        super().__init__("report", self._run)
        self._service = service
        self._look = look
        self._main = Pulse("main", limit_seconds=STEP_SECONDS)
        self.told = Told()
        """The last word; replaced as a whole, for anybody to read."""
        # So that nothing is told that was overtaken.
        self._lock = threading.Lock()
        # Under _lock.
        self._is_ready = False
        self._again: Callable[[], None] = lambda: None

    def beat(self) -> None:
        """The main thread goes on to its next call."""
        self._main.beat()

    def waiting(self, status: str, *, state: str = STARTING) -> None:
        """Not at work yet; the main thread has to `beat` meanwhile."""
        self.beat()
        self._say(lambda: status, lambda: state, stalled=self._main.stalled, tell=self._wait)

    def standby(self, status: str) -> None:
        """Another one is at work, and nobody is to wait for that: this one is ready."""
        self._be_ready(status)
        self.waiting(status, state=STANDBY)

    def working(self, status: Words, state: Words, *, stalled: Callable[[], str | None]) -> None:
        """At work, as long as nothing is `stalled`; the main thread has to `beat`."""
        self.beat()
        with self._lock:
            self._look()
        self._be_ready(status())
        self._say(
            status,
            state,
            stalled=lambda: self._main.stalled() or stalled(),
            tell=self._service.alive,
        )

    def stopping(self, status: Words, *, within_seconds: float) -> None:
        """On the way to the end, for so long at the most."""
        until = time.monotonic() + within_seconds
        self._say(
            status,
            lambda: STOPPING,
            stalled=lambda: "does not end" if time.monotonic() > until else None,
            tell=lambda words: self._service.stopping(words, seconds=MORE_SECONDS),
        )

    def _say(
        self,
        status: Words,
        state: Words,
        *,
        stalled: Callable[[], str | None],
        tell: Callable[[str], None],
    ) -> None:
        """At once, and again each second."""

        def say() -> None:
            figures, why = self._look(), stalled()
            if why is None:
                self.told = Told(state(), status(), figures)
                tell(self.told.words)
            else:
                self.told = Told(STALLED, f"stalled: {why}", figures)
                self._service.unwell(self.told.words)

        with self._lock:
            self._again = say
            say()

    def _wait(self, status: str) -> None:
        if self._is_ready:
            self._service.alive(status)
        else:
            self._service.starting(status, seconds=MORE_SECONDS)

    def _be_ready(self, status: str) -> None:
        with self._lock:
            if not self._is_ready:
                self._is_ready = True
                self._service.ready(status)

    def _run(self) -> None:
        while not self._stop.wait(word_seconds(self._service)):
            with self._lock:
                self._again()
