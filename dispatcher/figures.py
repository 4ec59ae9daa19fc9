"""How a dispatcher goes, in one line for whoever asks systemctl; nothing here asks MongoDB."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from dispatcher.companion import Companion
from dispatcher.job import Worker
from dispatcher.lease import Lease
from recvq.pulse import Reason, moment

# Events per second are those of the last so many seconds.
RATE_SECONDS = 10.0


class InHand(NamedTuple):
    """The pool's own figures at one moment."""

    documents: int
    oldest_seconds: float
    passed: int
    """How many documents were finished in all, without a gap."""
    held: tuple[int, int]
    """How many keys have documents in `held`, and how many documents those are."""


class Figures:
    """Asked by one thread; `in_hand` is the pool's, `reason` why the feed brings nothing."""

    def __init__(
        self,
        in_hand: Callable[[], InHand],
        reason: Reason,
        lease: Lease,
        worker: Worker,
        companions: Sequence[Companion],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._in_hand = in_hand
        self._reason = reason
        self._lease = lease
        self._parts: list[Worker | Companion] = [worker, *companions]
        self._began_at = datetime.now(UTC)
        self._monotonic = monotonic
        self._passed: deque[tuple[float, int]] = deque([(monotonic(), in_hand().passed)])

    def status(self) -> str:
        """What waits for whom first, then the figures."""
        now = self._in_hand()
        words = [
            self._reason.fresh(),
            self._leading(),
            f"{self._per_second(now.passed):.1f} events/s",
            f"{now.documents} in hand, oldest {now.oldest_seconds:.1f} s",
            "{1} documents of {0} keys in held".format(*now.held) if any(now.held) else None,
            *(part.status() for part in self._parts),
        ]
        return " · ".join(word for word in words if word)

    def _leading(self) -> str:
        if self._lease.is_fresh():
            return f"holds the lease since {moment(self._began_at)}"
        return "cannot renew the lease"

    def _per_second(self, passed: int) -> float:
        now = self._monotonic()
        while len(self._passed) > 1 and self._passed[1][0] <= now - RATE_SECONDS:
            self._passed.popleft()
        then, before = self._passed[0]
        self._passed.append((now, passed))
        return (passed - before) / max(now - then, 1.0)
