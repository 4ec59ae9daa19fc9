"""Handles lost history (G9), and a recvq that was dropped, renamed or converted.

A kill may end each step. The token is therefore forgotten durably first, and every later step
checks the present state.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from dispatcher.feed.feed import PositionLost, RecvqGone
from dispatcher.feed.rescan import Rescan, ScanPass
from dispatcher.keyed.pool import Pool
from dispatcher.keyed.saver import Saver
from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable
from linedesk.store.queue.repair import ANOTHER, CollectionRepair

log = logging.getLogger(__name__)

SCANNING = "scanning recvq"


@dataclass
class ScanCount:
    """Counts the documents that a scan hands over."""

    take: Callable[[Document], bool]
    documents: int = 0
    new: int = 0

    def __call__(self, document: Document) -> bool:
        self.documents += 1
        is_new = self.take(document)
        self.new += is_new
        return is_new


class Recovery:
    """Repairs and scans recvq for the thread that reads the feed."""

    def __init__(self, rescan: Rescan, pool: Pool, saver: Saver, repair: CollectionRepair) -> None:
        self._rescan = rescan
        self._pool = pool
        self._saver = saver
        self._repair = repair

    def report(self, gone: RecvqGone) -> None:
        """Log that recvq is gone, how many of its documents are unfinished, and where the
        rest is.
        """
        in_hand, after = self._pool.standing()
        level = logging.WARNING if gone.stays else logging.ERROR
        log.log(level, _words(gone), gone, in_hand, after, gone.renamed_to or "-")

    def scan(
        self,
        cause: PositionLost | None,
        *,
        take: Callable[[Document], bool],
        is_over: Callable[[], bool],
    ) -> ScanPass | None:
        """Repair recvq, and pass all documents that may be unfinished to `take`.

        `take` returns False for a known document. `cause` is None at the very first start. Returns
        the pass at which the stream has to begin; None if `is_over`, which is asked repeatedly,
        returned True. Raises StoreUnavailable.
        """
        if not self._saver.save():
            raise StoreUnavailable("the lost position could not be forgotten durably")
        self.apply(cause)
        if is_over():
            return None
        began, count = time.monotonic(), ScanCount(take)
        # One step under the pool's lock: documents that finish during the scan must not look new to
        # it.
        after = self._pool.begin_scan()
        log.info("scanning recvq after=%s", after)
        last = self._rescan.scan(after, count, is_over, told=isinstance(cause, RecvqGone))
        if last is not None:
            log.log(
                logging.INFO if cause is None else logging.WARNING,
                "recvq scanned, streaming from %s documents=%d new=%d seconds=%.1f after=%s "
                "cause=%s",
                last.operation_time,
                count.documents,
                count.new,
                time.monotonic() - began,
                after,
                cause or "first start",
            )
        return last

    def apply(self, cause: PositionLost | None = None) -> None:
        """Make recvq capped and indexed; raises StoreUnavailable."""
        wrong = self._repair.look()
        if wrong is None:
            return
        if wrong in ANOTHER and not isinstance(cause, RecvqGone):
            log.error(
                "recvq was replaced: documents that were stored and not read are lost "
                "found=%s after=%s",
                wrong,
                self._pool.standing()[1],
            )
        done = self._repair.apply()
        if wrong in ANOTHER:
            # The whole database may have been dropped.
            done += self._repair.apply_neighbours()
        log.warning("recvq repaired found=%s done=%s", wrong, ", ".join(done))


def _words(gone: RecvqGone) -> str:
    """Return the log line for a lost recvq; its values always have the same order."""
    if gone.renamed_to:
        return (
            "%s: documents that were read are handled; unread ones stay in the renamed collection, "
            "behind the document `after`: insert them into recvq to have them handled "
            "in_hand=%d after=%s renamed_to=%s"
        )
    if gone.stays:
        return (
            "%s: documents that were read are handled, then the new recvq is scanned "
            "in_hand=%d after=%s renamed_to=%s"
        )
    return (
        "%s: documents that were read are handled; documents that were stored and not read are "
        "lost, their number is unknown in_hand=%d after=%s renamed_to=%s"
    )
