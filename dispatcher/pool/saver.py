"""The leader's own part of each group that is committed: how far the mailboxes have come, and the
documents that move to `held`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice

from dispatcher.commit.committer import Change
from dispatcher.commit.progress import Progress
from dispatcher.commit.tracker import ProgressSnapshot
from dispatcher.conversations.mailbox import MANY, Job, KeyState, Mailbox
from dispatcher.metrics import DispatcherMetrics
from dispatcher.pool.mailboxes import Mailboxes
from linedesk.store.documents import Document
from linedesk.store.limits import MOST_WRAPPED_BYTES
from linedesk.store.records.waits import Why, reason

log = logging.getLogger(__name__)

# Progress waits so long for a group that is committed anyway, unless a key waits for it. After a
# crash, documents finished since the last group are read again and found in `applied`.
PACE_SECONDS = 0.1
# A quiet feed's token advances; it is saved this often so that it never gets old.
QUIET_SECONDS = 10.0
HELD_AFTER_SECONDS = 60.0
PAUSED_AFTER_SECONDS = 1.0
LOOK_SECONDS = 1.0
"""How often the keys are checked for documents to move."""
# A key is slow if its first document has been under way for this share of HELD_AFTER_SECONDS.
SLOW_PART = 0.1
# One transaction moves this many documents to `held`, and about this many bytes.
MOST_MOVED = 200
MOST_MOVED_BYTES = 4 * 1024 * 1024


class HoldPolicy:
    """Which documents wait so long that they have to move from the window to `held`. Pure.

    A key is held only if its own events are slow. A document that waits because all threads are
    busy stays in the window; otherwise any flood would move recvq into `held`. Paused documents
    move soon, so that progress can advance past them.
    """

    def __init__(self, mailboxes: Mailboxes) -> None:
        self._mailboxes = mailboxes
        self.after_seconds = HELD_AFTER_SECONDS
        self.paused_after_seconds = PAUSED_AFTER_SECONDS
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
        after = self.paused_after_seconds if mailboxes.pauses else self.after_seconds
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
            return self._waited(mailbox, now, self.paused_after_seconds)
        if not self._is_slow(mailbox, now):
            return 0
        if crowded and self._has_much(mailbox) and self._takes_too_long(mailbox):
            return sum(1 for _ in mailbox.in_window())
        return self._waited(mailbox, now, self.after_seconds)

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
        return 0 < mailbox.begun < now - self.after_seconds * SLOW_PART

    def _takes_too_long(self, mailbox: Mailbox) -> bool:
        """Whether its last document would wait too long at the pace since the last check."""
        decided, mailbox.looked = mailbox.decided - mailbox.looked, mailbox.decided
        return mailbox.in_hand * LOOK_SECONDS > decided * self.after_seconds

    def _has_much(self, mailbox: Mailbox) -> bool:
        """Whether it has many documents, or over half of many bytes."""
        if mailbox.in_hand > MANY or not self._has_many_bytes:
            return mailbox.in_hand > MANY
        return sum(job.slot.size for job in mailbox.in_window()) * 2 > self._mailboxes.tracker.size


class Moves:
    """The documents that move to `held`, in batches: a mailbox rests from the choice of its
    documents until they are durable. Then they leave memory, except the first.
    Pure; called under the lock of the mailboxes.
    """

    def __init__(self, mailboxes: Mailboxes) -> None:
        self._mailboxes = mailboxes
        # How many documents of each mailbox have to move, then the batch under way.
        self._wanted: dict[Mailbox, int] = {}
        self._moving: list[Mailbox] = []
        self._rows: list[Document] = []

    @property
    def are_wanted(self) -> bool:
        """Whether another save has to follow at once."""
        return bool(self._wanted or self._moving)

    def want(self, counts: Iterable[tuple[Mailbox, int]]) -> None:
        """Note how many documents of each of these have to move."""
        self._wanted.update(counts)

    def choose(self, at: datetime) -> None:
        """Make a batch of documents to move, unless one is under way."""
        if self._moving:
            return
        size, is_full = 0, False
        while self._wanted and not is_full:
            mailbox, count = self._wanted.popitem()
            chosen: list[Job] = []
            for job in islice(mailbox.in_window(), count):
                if job.slot.size > MOST_WRAPPED_BYTES:
                    # After a document that stays the rest of its mailbox stays.
                    break
                size += job.slot.size
                rows = len(self._rows) + len(chosen)
                is_full = rows == MOST_MOVED or (rows > 0 and size > MOST_MOVED_BYTES)
                if is_full:
                    self._wanted[mailbox] = count - len(chosen)
                    break
                chosen.append(job)
            if chosen:
                self._moving.append(mailbox)
                mailbox.moving = True
                self._mailboxes.place(mailbox)
            for job in chosen:
                self._move(job, at)

    def _move(self, job: Job, at: datetime) -> None:
        mailbox, tracker = job.mailbox, self._mailboxes.tracker
        job.held_n = tracker.next_held()
        channel, key = mailbox.key
        row: Document = {"_id": job.slot.id, "n": job.held_n, "key": key, "channel": channel}
        row |= {"document": job.document, "why": self._why(mailbox), "since": at}
        self._rows.append(row)
        self._mailboxes.count_held(mailbox, 1)
        tracker.finish(job.slot)

    def _why(self, mailbox: Mailbox) -> Document:
        if self._mailboxes.is_paused(mailbox):
            return reason(Why.PAUSED)
        if mailbox.state is KeyState.DEFERRED:
            return mailbox.why
        return reason(Why.BEHIND_SLOW_HANDLER)

    def begin_save(self) -> ProgressSnapshot | None:
        """Return the data to save now; None if nothing changed.

        If it may not be durable, `tracker.not_saved` must follow: the next one covers all of it.
        """
        mailboxes = self._mailboxes
        if not (mailboxes.tracker.changed or mailboxes.tracker.moved):
            return None
        marks = {mailbox: mailbox.decided for mailbox in mailboxes.unsaved}
        return mailboxes.tracker.snapshot(self._rows, mailboxes.gone, marks)

    def saved(self, plan: ProgressSnapshot) -> None:
        """The plan is durable: mailboxes that waited for it may continue."""
        mailboxes = self._mailboxes
        mailboxes.tracker.saved(plan)
        del mailboxes.gone[: len(plan.gone)]
        if plan.rows:
            moved, self._moving, self._rows = self._moving, [], []
            for mailbox in moved:
                mailbox.end_move()
                mailboxes.place(mailbox)
        for mailbox, mark in plan.marks.items():
            mailbox.saved = mark
            if mailbox.decided == mark:
                del mailboxes.unsaved[mailbox]
            if mailbox.state is KeyState.UNSAVED or mailbox.state is KeyState.IDLE:
                mailboxes.place(mailbox)


class Saver:
    """Saves the progress of the mailboxes with each group. Belongs to the thread that commits."""

    def __init__(
        self,
        mailboxes: Mailboxes,
        progress: Progress,
        figures: DispatcherMetrics | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self._progress = progress
        self._figures = figures or DispatcherMetrics(leads=lambda: True)
        self._looked_at = 0.0
        self._saved_at = 0.0
        self._plan: ProgressSnapshot | None = None
        self._lock, self._waking = mailboxes.lock, mailboxes.waking
        # All below under _lock.
        self._mailboxes = mailboxes
        self._moves = Moves(mailboxes)
        self.policy = HoldPolicy(mailboxes)

    def changes(self, *, alone: bool) -> Sequence[Change]:
        self._look()
        self._saved_at = time.monotonic()
        with self._lock:
            # Whatever is finished from now on wakes the committing thread again.
            self._waking.saver_woken = 0
            self._moves.choose(datetime.now(UTC))
            plan = self._moves.begin_save()
        # A record may be in the group: all earlier events of its conversation are finished with it.
        # guard: finished-with-the-record -> self._plan = plan if alone else None
        self._plan = plan
        return [] if alone and self._plan is None else self._progress.changes(self._plan)

    def written(self) -> None:
        self._figures.observe("save_seconds", time.monotonic() - self._saved_at)
        if self._plan is None:
            return
        with self._waking:
            self._moves.saved(self._plan)
        if rows := self._plan.rows:
            keys = {row["key"] for row in rows}
            log.info("documents held documents=%d keys=%d", len(rows), len(keys))
        self._figures.add("saved_progress")

    def not_written(self) -> None:
        """The next group has to cover this one's progress as well."""
        if self._plan is not None:
            with self._waking:
                self._mailboxes.tracker.not_saved()
                self.policy.excuse(self._now())

    def refused(self) -> None:
        self._progress.refused()

    def seconds(self) -> float:
        self._look()
        left = self._saved_at - time.monotonic()
        if self._moves.are_wanted or self._waking.saver_woken > 1:
            return left
        if self._waking.saver_woken:
            return left + PACE_SECONDS
        return min(left + QUIET_SECONDS, LOOK_SECONDS)

    def _look(self) -> None:
        """Find documents to move to `held`; slower with more keys, so not every time."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            self.plan_moves()

    def plan_moves(self) -> None:
        """Find the documents that have waited so long that they have to leave the window."""
        with self._lock:
            self._moves.want(self.policy.due(self._now()))
