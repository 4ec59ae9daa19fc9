"""Proves that a quiet feed still delivers: a stored heartbeat document has to come back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pymongo.collection import Collection

from linedesk.runtime.liveness import AWAY
from linedesk.store.documents import make_heartbeat
from linedesk.store.errors import StoreUnavailable
from linedesk.store.insert import insert_documents

log = logging.getLogger(__name__)

# A heartbeat is stored after the feed was quiet for this long, and has this long to come back.
HEARTBEAT_AFTER_SECONDS = 30.0
HEARTBEAT_BACK_SECONDS = 30.0
HEARTBEAT_INSERT_SECONDS = 5.0


class Stalled(StoreUnavailable):
    """The feed does not deliver a document that is known to be stored: open it again."""


class Heartbeat:
    """Used by the feed's reader; `closed` returns why recvq takes no inserts, or None."""

    def __init__(
        self,
        recvq: Collection[Any],
        closed: Callable[[], str | None],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recvq = recvq
        self._closed = closed
        self._monotonic = monotonic
        self._quiet_since = monotonic()
        # When the heartbeat under way was confirmed; None without one.
        self._stored_at: float | None = None
        self.refused: str | None = None
        """Why recvq refused a heartbeat during this quiet period; None if it did not."""

    def heard(self) -> None:
        """Restart the quiet period: the feed delivered, was opened, or was not read."""
        self._quiet_since = self._monotonic()
        self._stored_at = None
        self.refused = None

    def quiet(self) -> None:
        """Handle a read without a document; stores a heartbeat when one is due.

        Raises Stalled if a heartbeat was stored HEARTBEAT_BACK_SECONDS ago and was not delivered.
        """
        now = self._monotonic()
        if self._stored_at is not None:
            if now - self._stored_at > HEARTBEAT_BACK_SECONDS:
                self._complain(now - self._stored_at)
        elif now - self._quiet_since > HEARTBEAT_AFTER_SECONDS:
            self._beat()

    def _complain(self, seconds: float) -> None:
        self.heard()
        log.error("the feed does not deliver: a heartbeat is missing seconds=%.0f", seconds)
        raise Stalled("a heartbeat did not come back")

    def _beat(self) -> None:
        try:
            closed = self._closed()
            if closed is not None:
                # Tried again after another quiet period; the guard reports why recvq is closed.
                self.heard()
                self.refused = f"recvq is closed: {closed}"
                return
            one = make_heartbeat(datetime.now(UTC))
            insert_documents(self._recvq, [one], timeout_seconds=HEARTBEAT_INSERT_SECONDS)
        except StoreUnavailable as error:
            self.heard()
            self.refused = AWAY
            log.warning("heartbeat not stored, trying again error=%s", error)
            return
        self._stored_at = self._monotonic()
