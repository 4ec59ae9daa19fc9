"""What is done about lost history (G9), and about a recvq that was dropped, renamed or converted.

Whatever is done here may end anywhere by a kill: the token is forgotten durably before anything
else, and every later step looks at what is there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from dispatcher.feed.feed import PositionLost, RecvqGone
from dispatcher.feed.rescan import Rescan, ScanPass
from dispatcher.keyed.pool import Pool
from dispatcher.keyed.saver import Saver
from linedesk.runtime.backoff import pause_seconds
from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable
from linedesk.store.queue.repair import ANOTHER, CollectionRepair

log = logging.getLogger(__name__)

FINISH_LOOK_SECONDS = 0.05

SCANNING = "scanning recvq"


@dataclass
class ScanCount:
    """Counts what a scan hands over."""

    take: Callable[[Document], bool]
    documents: int = 0
    new: int = 0

    def __call__(self, document: Document) -> bool:
        self.documents += 1
        is_new = self.take(document)
        self.new += is_new
        return is_new


class Recovery:
    """Kept by the thread that reads the feed. `take` enters a document, False if it is known.

    `waits_for` is told what is waited for as long as it is; `stop` ends every wait and every scan.
    """

    def __init__(
        self,
        history: Rescan,
        pool: Pool,
        saver: Saver,
        keeper: CollectionRepair,
        *,
        take: Callable[[Document], bool],
        waits_for: Callable[[str], None],
        stop: threading.Event,
    ) -> None:
        self._history = history
        self._pool = pool
        self._saver = saver
        self._keeper = keeper
        self._take = take
        self._waits_for = waits_for
        self._stop = stop
        # Why the next scan is needed; None at the very first start.
        self._lost: PositionLost | None = None
        self.losses = 0
        """How often history was lost since the start of the process."""

    def lose(self, error: PositionLost) -> None:
        """From now on there is no token; what is in hand stays there."""
        self._lost = error
        self.losses += 1
        self._pool.forget_token()

    def finish_old(self, gone: RecvqGone) -> bool:
        """Wait until all that the old recvq brought is finished and saved; False if stopped.

        Until then its token is kept: after a crash the oplog still brings what recvq lost.
        """
        in_hand, after = self._pool.standing()
        level = logging.WARNING if gone.stays else logging.ERROR
        log.log(level, _words(gone), gone, in_hand, after, gone.renamed_to or "-")
        failures = 0
        while not self._stop.is_set():
            self._waits_for(f"{gone}: what it brought has to be finished")
            # guard: finished-before-made-anew -> never
            if self._pool.standing()[0] > 0:
                self._stop.wait(FINISH_LOOK_SECONDS)
            elif self._saver.save():
                return True
            else:
                failures += 1
                self._stop.wait(pause_seconds(failures))
        return False

    def scan(self) -> ScanPass | None:
        """Make recvq right and hand over all of it that may be unfinished.

        Stream from the pass that is returned; None if stopped. Raises StoreUnavailable.
        """
        if not self._saver.save():
            raise StoreUnavailable("the lost position could not be forgotten durably")
        self.mend()
        self._waits_for(SCANNING)
        began, tally = time.monotonic(), ScanCount(self._take)
        # One step under the pool's lock: what finishes during the scan must not look new to it.
        after = self._pool.begin_scan()
        log.info("scanning recvq after=%s", after)
        last = self._history.scan(
            after, tally, self._is_over, told=isinstance(self._lost, RecvqGone)
        )
        if last is not None:
            log.log(
                logging.INFO if self._lost is None else logging.WARNING,
                "recvq scanned, streaming from %s documents=%d new=%d seconds=%.1f after=%s "
                "cause=%s",
                last.operation_time,
                tally.documents,
                tally.new,
                time.monotonic() - began,
                after,
                self._lost or "first start",
            )
        return last

    def _is_over(self) -> bool:
        """Asked with each row of a scan, which may take long before the first is handed over."""
        self._waits_for(SCANNING)
        return self._stop.is_set()

    def done(self) -> None:
        """The feed goes on behind the scan."""
        self._pool.end_scan()
        self._lost = None

    def mend(self) -> None:
        """Make recvq capped and indexed; raises StoreUnavailable."""
        wrong = self._keeper.look()
        if wrong is None:
            return
        if wrong in ANOTHER and not isinstance(self._lost, RecvqGone):
            log.error(
                "recvq is not the one that was read: what it held and nobody had read is gone "
                "found=%s after=%s",
                wrong,
                self._pool.standing()[1],
            )
        done = self._keeper.mend()
        if wrong in ANOTHER:
            # The whole database may have been dropped.
            done += self._keeper.mend_neighbours()
        log.warning("recvq made right again found=%s done=%s", wrong, ", ".join(done))


def _words(gone: RecvqGone) -> str:
    """The log line for a recvq that is gone; the order of its values is always the same."""
    if gone.renamed_to:
        return (
            "%s: what it brought is handled; what was stored and never read stays where it was "
            "renamed to, behind after: insert those documents into recvq to have them handled "
            "in_hand=%d after=%s renamed_to=%s"
        )
    if gone.stays:
        return (
            "%s: what it brought is handled, then all that it holds is looked at "
            "in_hand=%d after=%s renamed_to=%s"
        )
    return (
        "%s: what it brought is handled; what was stored and never read is lost with it, its "
        "number is unknown in_hand=%d after=%s renamed_to=%s"
    )
