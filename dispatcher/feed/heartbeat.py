"""The proof that a quiet feed still delivers: a document of our own that has to come back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pymongo.collection import Collection

from dispatcher.feed.feed import FEED_LIMITS, FeedLimits
from linedesk.runtime.liveness import AWAY
from linedesk.store.documents import make_heartbeat
from linedesk.store.errors import StoreUnavailable
from linedesk.store.insert import insert_documents

log = logging.getLogger(__name__)


class Stalled(StoreUnavailable):
    """The feed does not bring what was surely stored: open it again."""


class Heartbeat:
    """Kept by the thread that reads the feed, which says what it heard.

    `recvq` is where a heartbeat goes; `closed` says why nothing may be inserted now, or None.
    """

    def __init__(
        self,
        recvq: Collection[Any],
        closed: Callable[[], str | None],
        *,
        limits: FeedLimits = FEED_LIMITS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recvq = recvq
        self._closed = closed
        self._limits = limits
        self._monotonic = monotonic
        self._quiet_since = monotonic()
        # When the one under way was confirmed; None without one.
        self._stored_at: float | None = None
        self.refused: str | None = None
        """Why recvq took none in this quiet; None if it did, or was not asked."""

    def heard(self) -> None:
        """The feed brought a document, was opened, or was not asked: the quiet begins anew."""
        self._quiet_since = self._monotonic()
        self._stored_at = None
        self.refused = None

    def quiet(self) -> None:
        """The feed was asked and brought nothing.

        Raises Stalled if a heartbeat was stored `heartbeat_back_seconds` ago and has not come.
        """
        now = self._monotonic()
        if self._stored_at is not None:
            if now - self._stored_at > self._limits.heartbeat_back_seconds:
                self._complain(now - self._stored_at)
        elif now - self._quiet_since > self._limits.heartbeat_after_seconds:
            self._beat()

    def _complain(self, seconds: float) -> None:
        self.heard()
        log.error("the feed does not deliver: a heartbeat is missing seconds=%.0f", seconds)
        raise Stalled("a heartbeat did not come back")

    def _beat(self) -> None:
        try:
            closed = self._closed()
            if closed is not None:
                # Tried again after another quiet spell; why it is closed is said by the guard.
                self.heard()
                self.refused = f"recvq is closed: {closed}"
                return
            one = make_heartbeat(datetime.now(UTC))
            seconds = self._limits.heartbeat_insert_seconds
            insert_documents(self._recvq, [one], timeout_seconds=seconds)
        except StoreUnavailable as error:
            self.heard()
            self.refused = AWAY
            log.warning("heartbeat not stored, trying again error=%s", error)
            return
        self._stored_at = self._monotonic()
