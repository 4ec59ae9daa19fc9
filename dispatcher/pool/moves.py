"""The part of a save that mailboxes have: how far each has come, and the moves to `held`.

Pure; `dispatcher.pool.saver` calls it under the lock of the mailboxes.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import islice

from dispatcher.commit.tracker import ProgressSnapshot
from dispatcher.conversations.mailbox import Job, KeyState, Mailbox
from dispatcher.pool.mailboxes import Mailboxes
from linedesk.store.documents import Document
from linedesk.store.limits import MOST_WRAPPED_BYTES
from linedesk.store.records.waits import Why, reason

# One transaction moves this many documents to `held`, and about this many bytes.
MOST_MOVED = 200
MOST_MOVED_BYTES = 4 * 1024 * 1024


class Moves:
    """The documents that move to `held`, in batches: a mailbox rests from the choice of its
    documents until they are durable. Then they leave memory, except the first.
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
