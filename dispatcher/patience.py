"""How the main thread waits before the dispatcher is at work: for MongoDB, and for its turn."""

from __future__ import annotations

import logging
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

from dispatcher.ending import Interrupted, ending_of
from dispatcher.report import STARTING, WAITING, Report
from recvq.errors import StoreUnavailable
from recvq.pause import pause_seconds
from recvq.pulse import AWAY, Reason

log = logging.getLogger(__name__)

Found = TypeVar("Found")


class Patience:
    """Its methods raise Interrupted once `inbox` has something: that ends the process."""

    def __init__(self, inbox: SimpleQueue[int | BaseException], report: Report) -> None:
        self._inbox = inbox
        self._report = report
        self._reason = Reason()
        self._told = ""

    def until_available(
        self, action: Callable[[], Found], doing: str, *, state: str = STARTING
    ) -> Found:
        """What the action returns, once MongoDB lets it; meanwhile `doing` is reported."""
        failures = 0
        self._tell(doing, state)
        while True:
            self._report.beat()
            try:
                found = action()
            except StoreUnavailable as error:
                failures += 1
                log.warning("taking over, trying again error=%s", error)
                self._reason.say(AWAY)
                self._tell(self._reason.fresh() or AWAY, WAITING)
                self.pause(pause_seconds(failures))
            else:
                self._reason.say(None)
                return found

    def _tell(self, words: str, state: str) -> None:
        """Only what is new: a standby asks for the lease several times a second."""
        if words != self._told:
            self._told = words
            self._report.waiting(words, state=state)

    def pause(self, seconds: float, doing: str | None = None) -> None:
        """Wait, unless something arrives; `doing` is reported meanwhile."""
        if doing is not None:
            self._tell(doing, WAITING)
        try:
            message = self._inbox.get(timeout=seconds)
        except Empty:
            return
        raise Interrupted(ending_of(message))
