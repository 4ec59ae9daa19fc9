"""Handles lost history (G9).

A kill may end each step. The token is therefore forgotten durably first, and every later step
checks the present state.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from dispatcher.feed.feed import PositionLost
from dispatcher.feed.rescan import Rescan, ScanPass
from dispatcher.keyed.pool import Pool
from dispatcher.keyed.saver import Saver
from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable

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
    """Scans recvq for the thread that reads the feed."""

    def __init__(self, rescan: Rescan, pool: Pool, saver: Saver) -> None:
        self._rescan = rescan
        self._pool = pool
        self._saver = saver

    def scan(
        self,
        cause: PositionLost | None,
        *,
        take: Callable[[Document], bool],
        is_over: Callable[[], bool],
    ) -> ScanPass | None:
        """Pass all documents of recvq that may be unfinished to `take`.

        `take` returns False for a known document. `cause` is None at the very first start. Returns
        the pass at which the stream has to begin; None if `is_over`, which is asked repeatedly,
        returned True. Raises StoreUnavailable, and WrongCollection if recvq is missing, not capped
        or without its index.
        """
        if not self._saver.save():
            raise StoreUnavailable("the lost position could not be forgotten durably")
        began, count = time.monotonic(), ScanCount(take)
        # One step under the pool's lock: documents that finish during the scan must not look new to
        # it.
        after = self._pool.begin_scan()
        log.info("scanning recvq after=%s", after)
        last = self._rescan.scan(after, count, is_over)
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
