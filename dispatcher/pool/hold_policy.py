"""Decides which documents wait so long that they have to move from the window to `held`. Pure.

A key is held only if its own events are slow. A document that waits because all threads are busy
stays in the window; otherwise any flood would move recvq into `held`. Paused documents move soon,
so that progress can advance past them.
"""

from __future__ import annotations

from dispatcher.conversations.mailbox import MANY, Mailbox
from dispatcher.pool.mailboxes import Mailboxes

HELD_AFTER_SECONDS = 60.0
PAUSED_AFTER_SECONDS = 1.0
LOOKS = 60
"""How many times the keys are checked within `HELD_AFTER_SECONDS`."""
# A key is slow if its first document has been under way for this share of that time.
SLOW_PART = 0.1


class HoldPolicy:
    """Documents leave the window after so many seconds, paused ones sooner."""

    def __init__(
        self,
        mailboxes: Mailboxes,
        after_seconds: float = HELD_AFTER_SECONDS,
        paused_after_seconds: float = PAUSED_AFTER_SECONDS,
    ) -> None:
        self._mailboxes = mailboxes
        self._after = after_seconds
        self._paused_after = min(after_seconds, paused_after_seconds)
        self.look_seconds = min(1.0, max(0.01, after_seconds / LOOKS))
        """How often `due` needs to be called."""
        # Waits count from here at the earliest: delays caused by MongoDB are no key's fault.
        self._counts_from = 0.0

    def excuse(self, now: float) -> None:
        """MongoDB refused a save: the time until now counts for no document."""
        self._counts_from = now

    def due(self, now: float) -> list[tuple[Mailbox, int]]:
        """Return how many documents of each have to move, the oldest ones first."""
        mailboxes = self._mailboxes
        oldest = mailboxes.tracker.oldest
        crowded = len(mailboxes.tracker) * 2 > mailboxes.bound or self._has_many_bytes
        after = self._paused_after if mailboxes.pauses else self._after
        if oldest is None or (not crowded and now - oldest.since < after):
            return []
        counts = [(one, self._count(one, now, crowded=crowded)) for one in mailboxes.all()]
        return [
            (mailbox, count)
            for mailbox, count in counts
            if count and (mailbox.held or mailboxes.held_keys < mailboxes.bound)
        ]

    @property
    def _has_many_bytes(self) -> bool:
        return self._mailboxes.tracker.size * 2 > self._mailboxes.most_bytes

    def _count(self, mailbox: Mailbox, now: float, *, crowded: bool) -> int:
        if mailbox.moving:
            return 0
        if self._mailboxes.is_paused(mailbox):
            return self._waited(mailbox, now, self._paused_after)
        if not self._is_slow(mailbox, now):
            return 0
        if crowded and self._has_much(mailbox) and self._takes_too_long(mailbox):
            return sum(1 for _ in mailbox.in_window())
        return self._waited(mailbox, now, self._after)

    def _waited(self, mailbox: Mailbox, now: float, seconds: float) -> int:
        """Return how many of its documents have waited at least this long."""
        count = 0
        for job in mailbox.in_window():
            if now - max(job.slot.since, self._counts_from) < seconds:
                break
            count += 1
        return count

    def _is_slow(self, mailbox: Mailbox, now: float) -> bool:
        """Whether it delays itself: it waits for a thread only while all are busy."""
        if self._mailboxes.lines.first_ready is None:
            return True
        return 0 < mailbox.begun < now - self._after * SLOW_PART

    def _takes_too_long(self, mailbox: Mailbox) -> bool:
        """Whether its last document would wait too long at the pace since the last check."""
        decided, mailbox.looked = mailbox.decided - mailbox.looked, mailbox.decided
        return mailbox.in_hand * self.look_seconds > decided * self._after

    def _has_much(self, mailbox: Mailbox) -> bool:
        """Whether it has many documents, or over half of many bytes."""
        if mailbox.in_hand > MANY or not self._has_many_bytes:
            return mailbox.in_hand > MANY
        return sum(job.slot.size for job in mailbox.in_window()) * 2 > self._mailboxes.tracker.size
