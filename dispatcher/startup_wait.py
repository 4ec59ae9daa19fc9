"""How a dispatcher's main thread waits for MongoDB and for the lease before it begins."""

from __future__ import annotations

import logging
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

from dispatcher.exit_reason import ExitReason, ending_of
from dispatcher.watchdog import STARTING, WAITING, WatchdogReporter
from linedesk.runtime.backoff import pause_seconds
from linedesk.runtime.liveness import AWAY, WaitReason
from linedesk.store.errors import StoreUnavailable

log = logging.getLogger(__name__)


class Interrupted(Exception):
    """A signal came, or a thread died, before the dispatcher had begun."""

    def __init__(self, ending: ExitReason) -> None:
        super().__init__(ending.value)
        self.ending = ending


Found = TypeVar("Found")


class StartupWait:
    """Its methods raise Interrupted once `inbox` has a message: that ends the process."""

    def __init__(self, inbox: SimpleQueue[int | BaseException], report: WatchdogReporter) -> None:
        self._inbox = inbox
        self._report = report
        self._reason = WaitReason()
        self._told = ""

    def until_available(
        self, action: Callable[[], Found], doing: str, *, state: str = STARTING
    ) -> Found:
        """Return the action's result once MongoDB is available; meanwhile `doing` is reported."""
        failures = 0
        self._tell(doing, state)
        while True:
            self._report.beat()
            try:
                found = action()
            except StoreUnavailable as error:
                failures += 1
                log.warning("taking over, trying again error=%s", error)
                self._reason.set(AWAY)
                self._tell(self._reason.fresh() or AWAY, WAITING)
                self.pause(pause_seconds(failures))
            else:
                self._reason.set(None)
                return found

    def _tell(self, words: str, state: str) -> None:
        """Report only changes: a standby asks for the lease several times a second."""
        if words != self._told:
            self._told = words
            self._report.waiting(words, state=state)

    def pause(self, seconds: float, doing: str | None = None) -> None:
        """Wait until the time is over or a message arrives; `doing` is reported meanwhile."""
        if doing is not None:
            self._tell(doing, WAITING)
        try:
            message = self._inbox.get(timeout=seconds)
        except Empty:
            return
        raise Interrupted(ending_of(message))
