"""Decides which documents wait so long that they have to move from the window to `held`. Pure.

A key is held only if its own events are slow. A document that waits because all threads are busy
stays in the window; otherwise any flood would move recvq into `held`. Paused documents move soon,
so that progress can advance past them.
"""

from __future__ import annotations

from dispatcher.conversations.mailbox import Mailbox
from dispatcher.pool.queues import MANY, KeyQueues

HELD_AFTER_SECONDS = 60.0
PAUSED_AFTER_SECONDS = 1.0
LOOKS = 60
"""How many times the keys are checked within `HELD_AFTER_SECONDS`."""
# A key is slow if its first document has been under way for this share of that time.
SLOW_PART = 0.1


class HoldPolicy:
    """`bound` and `most_bytes` are the pool's; with 0 seconds no document is ever held."""

    def __init__(
        self,
        *,
        after_seconds: float,
        paused_after_seconds: float = PAUSED_AFTER_SECONDS,
        bound: int,
        most_bytes: int,
    ) -> None:
        self._after = after_seconds
        self._paused_after = min(after_seconds, paused_after_seconds)
        self._bound = bound
        self._most_bytes = most_bytes
        self.look_seconds = min(1.0, max(0.01, after_seconds / LOOKS))
        """How often `due` needs to be called."""
        # Waits count from here at the earliest: delays caused by MongoDB are no key's fault.
        self._counts_from = 0.0

    def excuse(self, now: float) -> None:
        """MongoDB refused a save: the time until now counts for no document."""
        self._counts_from = now

    def due(self, queues: KeyQueues, now: float) -> list[tuple[Mailbox, int]]:
        """Return how many documents of each key have to move, the oldest ones first."""
        oldest = queues.tracker.oldest
        crowded = len(queues.tracker) * 2 > self._bound or self._has_many_bytes(queues)
        after = self._paused_after if queues.pauses else self._after
        if not self._after or oldest is None or (not crowded and now - oldest.since < after):
            return []
        counts = (
            (queue, self._count(queues, queue, now, crowded=crowded)) for queue in queues.all()
        )
        return [
            (queue, count)
            for queue, count in counts
            if count and (queue.held or queues.held_keys < self._bound)
        ]

    def _count(self, queues: KeyQueues, queue: Mailbox, now: float, *, crowded: bool) -> int:
        if queue.moving:
            return 0
        if queues.is_paused(queue):
            return self._waited(queue, now, self._paused_after)
        if not self._is_slow(queues, queue, now):
            return 0
        if crowded and self._has_much(queues, queue) and self._takes_too_long(queue):
            return sum(1 for _ in queue.in_window())
        return self._waited(queue, now, self._after)

    def _waited(self, queue: Mailbox, now: float, seconds: float) -> int:
        """Return how many of the key's documents have waited at least this long."""
        count = 0
        for job in queue.in_window():
            if now - max(job.slot.since, self._counts_from) < seconds:
                break
            count += 1
        return count

    def _is_slow(self, queues: KeyQueues, queue: Mailbox, now: float) -> bool:
        """Whether the key delays itself: it waits for a thread only while all are busy."""
        if queues.first_ready is None:
            return True
        return 0 < queue.begun < now - self._after * SLOW_PART

    def _takes_too_long(self, queue: Mailbox) -> bool:
        """Whether its last document would wait too long at the pace since the last check."""
        decided, queue.looked = queue.decided - queue.looked, queue.decided
        return queue.in_hand * self.look_seconds > decided * self._after

    def _has_many_bytes(self, queues: KeyQueues) -> bool:
        return queues.tracker.size * 2 > self._most_bytes

    def _has_much(self, queues: KeyQueues, queue: Mailbox) -> bool:
        """Whether the key has many documents, or over half of many bytes."""
        if queue.in_hand > MANY or not self._has_many_bytes(queues):
            return queue.in_hand > MANY
        return sum(job.slot.size for job in queue.in_window()) * 2 > queues.tracker.size
